package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// Purging a run sets a bit: one small write for each file of a pass, however many runs those are. Disk space is freed
// when all or most of a file is purged.

var _ metastore.Retainer = (*Archive)(nil)

// excess is what a pass has to purge of a job.
type excess struct {
	owner             metastore.Owner
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
	a.purging.Lock()
	defer a.purging.Unlock()
	// A log that is replayed after a crash brings back runs that were not on disk.
	if err := a.Sync(); err != nil {
		return metastore.Retained{}, err
	}
	p := &pass{Retention: &r, of: map[job]*excess{}}
	err := a.retain(ctx, p)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("purge runs of archive %s: %w", a.dir, err)
	}
	_, bytes := a.Size()
	return metastore.Retained{Dropped: p.dropped, Bytes: bytes}, err
}

func (a *Archive) retain(ctx context.Context, p *pass) error {
	if err := a.judge(p); err != nil {
		return err
	}
	a.files.RLock()
	sealed := slices.Clone(a.sealed)
	a.files.RUnlock()
	for _, s := range sealed {
		if err := cmp.Or(a.hideIn(p, s), ctx.Err()); err != nil {
			return err
		}
	}
	if err := a.hideOpen(p); err != nil {
		return err
	}
	if err := a.bound(ctx, p); err != nil {
		return err
	}
	var errs []error // a damaged segment holds up no other
	for range mostTidied {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.filing.Lock()
		did, err := a.tidy()
		a.filing.Unlock()
		errs = append(errs, err)
		if !did {
			break
		}
	}
	return errors.Join(errs...)
}

// mostTidied is how many files a pass rewrites at most: the next continues.
const mostTidied = 4

// judge finds out what is to be purged of each job.
func (a *Archive) judge(p *pass) error {
	counts := map[job]count{}
	a.filing.Lock()
	if a.counts == nil {
		a.counts = map[job]*count{}
		for _, s := range a.sealed {
			if err := a.countIn(s, 1); err != nil {
				a.counts = nil
				a.filing.Unlock()
				return err
			}
		}
	}
	for name, c := range a.counts {
		if *c == (count{}) {
			delete(a.counts, name)
			continue
		}
		counts[name] = *c
	}
	a.mu.RLock()
	for name, n := range named(a.index.names, a.index.counts) {
		c := counts[name]
		counts[name] = count{c.succeeded + n.succeeded, c.others + n.others}
	}
	a.mu.RUnlock()
	a.filing.Unlock()
	for name, c := range counts {
		kept, err := p.Of(name.tenant, name.key)
		if err != nil {
			return err
		}
		e := &excess{owner: metastore.Owner{Tenant: name.tenant, App: kept.App}, since: nanos(kept.Since), young: math.MaxInt64}
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

// choose is the runs of a file to be purged: their bits, and how many they are of each job.
func (p *pass) choose(t *table) (bits []byte, by map[job]count) {
	written := t.offsets.len() // a later run would be purged before it is in the file
	bits = make([]byte, (written+7)/8)
	counts, of := make([]count, len(t.names)), make([]*excess, len(t.names))
	may := false
	for i, name := range t.names {
		of[i] = p.of[name]
		may = may || of[i] != nil && written > 0 && (of[i].over() || of[i].since > t.endedAt(0))
	}
	if !may { // as in most segments, when one tenant is deleted
		return nil, nil
	}
	for place := range written {
		i := t.jobs.at(place)
		e := of[i]
		if e == nil || t.isHidden(place) {
			continue
		}
		ended := t.endedAt(place)
		if ended >= p.newest && p.over == 0 {
			break // and so did those after it
		}
		if state := t.state(place); p.takes(e, state, ended < e.since, ended >= e.young) {
			bits[place/8] |= 1 << (place % 8)
			counts[i].add(state, 1)
		}
	}
	return bits, named(t.names, counts)
}

// hideIn purges runs of a segment.
func (a *Archive) hideIn(p *pass, s *segment) error {
	a.filing.Lock()
	defer a.filing.Unlock()
	if p.over == 0 && s.begins >= p.newest {
		return nil
	}
	return a.hide(s, p.choose)
}

// hide purges the runs of a segment that choose returns, and the segment with its last run. filing must be held.
func (a *Archive) hide(s *segment, choose func(*table) (bits []byte, by map[job]count)) error {
	var bits []byte
	var by map[job]count
	if err := s.index(func(t *table) { bits, by = choose(t) }); err != nil || len(by) == 0 {
		return err
	}
	hid := countSet(bits)
	bits = or(bits, s.hidden)
	if s.live > hid {
		if err := writeGone(s.path, s.salt, bits); err != nil {
			return err
		}
	}
	for name, n := range by {
		a.counts[name].take(n)
	}
	a.files.Lock()
	defer a.files.Unlock()
	s.hidden, s.live = bits, s.live-hid
	if s.live > 0 {
		return nil
	}
	i := slices.Index(a.sealed, s)
	a.sealed = slices.Delete(a.sealed, i, i+1)
	return s.remove()
}

// hideOpen purges runs of the open file.
func (a *Archive) hideOpen(p *pass) error {
	a.filing.Lock()
	defer a.filing.Unlock()
	a.mu.RLock()
	t := a.index.table
	a.mu.RUnlock()
	bits, by := p.choose(&t)
	if len(by) == 0 {
		return nil
	}
	bits = or(bits, t.hidden)
	if err := writeGone(a.openPath(), t.salt, bits); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.index.hide(bits, by)
	return nil
}

// bound purges runs while all files take more space than they may (see bytes.go). Files are sealed while they are small
// compared with that space.
func (a *Archive) bound(ctx context.Context, p *pass) error {
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
	if a.fits(p) {
		return nil
	}
	if err := a.shrink(p); err != nil {
		return err
	}
	var errs []error
	for !a.fits(p) && ctx.Err() == nil {
		did, err := a.rewrite()
		if _, damaged := errors.AsType[*disk.Damaged](err); damaged {
			errs = append(errs, err) // it stays as it is, and the others are rewritten
		} else if err != nil || !did {
			errs = append(errs, err, a.dropOldest(p)) // which needs no space, as on a full disk
			break
		}
		a.filing.Unlock() // the archive writes in between
		a.filing.Lock()
	}
	return errors.Join(append(errs, ctx.Err())...)
}
