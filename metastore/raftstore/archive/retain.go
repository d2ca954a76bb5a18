package archive

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// Purging a run sets a bit: one small transaction for each file of a pass, however many runs those are. Disk space is
// freed when all or most of a file is purged.

var _ metastore.Retainer = (*Archive)(nil)

// excess is what a pass has to purge of a job.
type excess struct {
	since             int64 // purge what ended before
	young             int64 // nothing that ended since, unless it is too old
	succeeded, others int   // and so many of the oldest
}

// pass is one walk through all files.
type pass struct {
	*metastore.Retention
	of      map[job]*excess
	over    int   // jobs that have more runs than they keep
	newest  int64 // nothing that ended later is too old
	dropped int
}

func (e *excess) over() bool { return e.succeeded > 0 || e.others > 0 }

// takes reports whether a run is to be purged, and counts it. Runs of a job come oldest first.
func (p *pass) takes(e *excess, state jobs.State, old, young bool) bool {
	n, was := &e.others, e.over()
	if state == jobs.Succeeded {
		n = &e.succeeded
	}
	if !old && (young || *n <= 0) {
		return false
	}
	*n--
	if was && !e.over() {
		p.over--
	}
	p.dropped++
	return true
}

// Retain purges. Each node does so by itself: archives of nodes differ only by runs that one has purged and another
// not yet.
func (a *Archive) Retain(ctx context.Context, r metastore.Retention) (metastore.Retained, error) {
	if err := a.ready(ctx); err != nil {
		return metastore.Retained{}, err
	}
	// A log that is replayed after a crash brings back runs that were not on disk.
	if err := a.Sync(); err != nil {
		return metastore.Retained{}, err
	}
	p := &pass{Retention: &r, of: map[job]*excess{}}
	err := a.retain(ctx, p)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("purge runs of archive %s: %w", a.path, err)
	}
	_, bytes := a.Size()
	return metastore.Retained{Dropped: p.dropped, Bytes: bytes}, err
}

func (a *Archive) retain(ctx context.Context, p *pass) error {
	if err := a.judge(p); err != nil {
		return err
	}
	// Files may be sealed meanwhile, but only Retain deletes any.
	for i := 0; ; i++ {
		gone, over, err := a.hideIn(p, i)
		if err != nil || ctx.Err() != nil {
			return cmpErr(err, ctx)
		}
		if over {
			break
		}
		if gone {
			i--
		}
	}
	if err := a.hideOpen(p); err != nil {
		return err
	}
	if err := a.bound(p); err != nil {
		return err
	}
	for range mostTidied {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.filing.Lock()
		did, err := a.tidy()
		a.filing.Unlock()
		if err != nil || !did {
			return err
		}
	}
	return nil
}

// mostTidied is how many files a pass rewrites at most: the next continues.
const mostTidied = 4

func cmpErr(err error, ctx context.Context) error {
	if err != nil {
		return err
	}
	return ctx.Err()
}

// judge finds out what is to be purged of each job.
func (a *Archive) judge(p *pass) error {
	counts := map[job]count{}
	a.filing.Lock()
	for name, c := range a.counts {
		if *c == (count{}) {
			delete(a.counts, name)
			continue
		}
		counts[name] = *c
	}
	a.mu.RLock()
	for tenant, s := range a.index.shelves {
		for key, of := range s.jobs {
			name := job{jobs.Tenant(tenant), jobs.Key(key)}
			c := counts[name]
			c.succeeded, c.others = c.succeeded+of.succeeded, c.others+of.others
			counts[name] = c
		}
	}
	a.mu.RUnlock()
	a.filing.Unlock()
	for name, c := range counts {
		kept, err := p.Of(name.tenant, name.key)
		if err != nil {
			return err
		}
		e := &excess{since: nanos(kept.Since), young: math.MaxInt64}
		if !kept.Young.IsZero() {
			e.young = nanos(kept.Young)
		}
		if kept.Succeeded > 0 {
			e.succeeded = max(0, c.succeeded-kept.Succeeded)
		}
		if kept.Others > 0 {
			e.others = max(0, c.others-kept.Others)
		}
		if e.over() {
			p.over++
		}
		p.newest = max(p.newest, e.since)
		p.of[name] = e
	}
	return nil
}

// hideIn purges runs of a sealed file. over means that there is no such file.
func (a *Archive) hideIn(p *pass, i int) (gone, over bool, err error) {
	a.filing.Lock()
	defer a.filing.Unlock()
	if i >= len(a.sealed) {
		return false, true, nil
	}
	s := a.sealed[i]
	if p.over == 0 && s.begins >= p.newest {
		return false, false, nil
	}
	bits, hid := slices.Clone(s.hidden), 0
	var forgotten []func()
	err = s.view(func(runs *bbolt.Bucket, f *finder) error {
		bounds := map[int64]int{} // up to which place runs have ended before a time
		bound := func(since int64) (int, error) {
			if n, ok := bounds[since]; ok {
				return n, nil
			}
			lo, hi := 0, f.runs()
			for lo < hi {
				mid := (lo + hi) / 2
				at := mid // or the next undamaged one
				for ; at < hi; at++ {
					number := f.number(uint32(at))
					if l, _, err := readLabel(number, runs.Get(keyOf(number))); err == nil {
						if l.ended < since {
							lo = at + 1
						}
						break
					}
				}
				if lo <= mid {
					hi = mid
				}
			}
			bounds[since] = lo
			return lo, nil
		}
		var failed error
		err := f.each(func(g *group) {
			e := p.of[job{jobs.Tenant(g.tenant), jobs.Key(g.key)}]
			if e == nil || failed != nil || !e.over() && s.begins >= e.since {
				return
			}
			old, young := 0, f.runs()
			if s.begins < e.since {
				old, failed = bound(e.since)
			}
			if e.over() && e.young < math.MaxInt64 && failed == nil {
				young, failed = bound(e.young)
			}
			c := a.counts[job{jobs.Tenant(g.tenant), jobs.Key(g.key)}]
			for j := range g.len() {
				place := g.at(j)
				state := jobs.State(f.states[place])
				if !s.isHidden(place) && p.takes(e, state, int(place) < old, int(place) >= young) {
					bits[place/8] |= 1 << (place % 8)
					hid++
					forgotten = append(forgotten, func() { c.add(state, -1) })
				}
			}
		})
		if err != nil {
			return err
		}
		return failed
	})
	if err != nil || hid == 0 {
		return false, false, err
	}
	if s.live > hid {
		err = disk.Guard(s.path, func() error {
			return s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketFind).Put(keyHidden, summed(bits)) })
		})
		if err != nil {
			return false, false, err
		}
	}
	for _, count := range forgotten {
		count()
	}
	a.files.Lock()
	defer a.files.Unlock()
	s.hidden, s.live = bits, s.live-hid
	if s.live > 0 {
		return false, false, nil
	}
	a.sealed = slices.Delete(a.sealed, i, i+1)
	return true, false, s.remove()
}

// hideOpen purges runs of the open file, and of the buffer.
func (a *Archive) hideOpen(p *pass) error {
	a.filing.Lock()
	defer a.filing.Unlock()
	type chosen struct {
		of    *ofJob
		place uint32
	}
	var all []chosen
	var list []byte
	a.mu.RLock()
	x := a.index
	for tenant, s := range x.shelves {
		for key, of := range s.jobs {
			e := p.of[job{jobs.Tenant(tenant), jobs.Key(key)}]
			if e == nil || of.succeeded+of.others == 0 {
				continue
			}
			for _, place := range of.places {
				if x.ended[place] >= e.since && (!e.over() || x.ended[place] >= e.young) {
					break // and so are those after it
				}
				if x.states[place]&hidden == 0 && p.takes(e, jobs.State(x.states[place]), x.ended[place] < e.since, x.ended[place] >= e.young) {
					all = append(all, chosen{of, place})
					list = binary.BigEndian.AppendUint64(list, x.numbers[place])
				}
			}
		}
	}
	a.mu.RUnlock()
	if len(all) == 0 {
		return nil
	}
	err := disk.Guard(a.path, func() error {
		return a.db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(bucketHidden)
			if err != nil {
				return err
			}
			n, err := b.NextSequence()
			if err != nil {
				return err
			}
			return b.Put(keyOf(n), summed(list))
		})
	})
	if err != nil {
		return err
	}
	for part := range slices.Chunk(all, 500) { // commits may run in between
		a.mu.Lock()
		for _, c := range part {
			x.hide(c.of, c.place)
		}
		a.mu.Unlock()
	}
	return nil
}

// bound deletes the oldest files while all of them take more space than they may. Files are sealed while they are
// small compared with that space.
func (a *Archive) bound(p *pass) error {
	a.filing.Lock()
	defer a.filing.Unlock()
	a.sealAt = a.cfg.SealAt
	if p.Bytes <= 0 {
		return nil
	}
	a.sealAt = min(a.sealAt, max(p.Bytes/8, 64<<10))
	a.mu.RLock()
	full := a.bytes >= a.sealAt
	a.mu.RUnlock()
	if full {
		if err := a.seal(); err != nil {
			return err
		}
	}
	for {
		if _, bytes := a.Size(); bytes <= p.Bytes || len(a.sealed) == 0 {
			return nil
		}
		s := a.sealed[0]
		err := s.view(func(_ *bbolt.Bucket, f *finder) error {
			return f.each(func(g *group) {
				c := a.counts[job{jobs.Tenant(g.tenant), jobs.Key(g.key)}]
				for i := range g.len() {
					if place := g.at(i); !s.isHidden(place) {
						c.add(jobs.State(f.states[place]), -1)
					}
				}
			})
		})
		if err != nil {
			return err
		}
		p.dropped += s.live
		a.files.Lock()
		a.sealed = slices.Delete(a.sealed, 0, 1)
		err = s.remove()
		a.files.Unlock()
		if err != nil {
			return err
		}
	}
}
