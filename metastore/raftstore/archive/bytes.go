package archive

import (
	"slices"

	"github.com/carillon-scheduler/carillon/metastore"
)

// When the files take more space than they may, each owner's runs beyond its share are purged, the oldest first, and
// then segments are rewritten without them. Where one owner has nearly all, these are whole segments.

// fits reports whether all files take no more space than they may.
func (a *Archive) fits(p *pass) bool {
	_, bytes := a.Size()
	return bytes <= p.Bytes
}

// shrink purges the runs of segments beyond their owners' shares, and so many more that the next file has room. filing
// must be held.
func (a *Archive) shrink(p *pass) error {
	sizes := map[metastore.Owner]int64{}
	for _, s := range a.sealed {
		if err := s.index(func(t *table) { s.measure(t, p, sizes) }); err != nil {
			return err
		}
	}
	_, all := a.Size()
	for _, s := range a.sealed {
		all -= s.size
	}
	excess := metastore.Excess(sizes, p.Bytes-all-a.sealAt)
	for _, s := range slices.Clone(a.sealed) {
		if len(excess) == 0 {
			break
		}
		if err := a.hide(s, func(t *table) ([]byte, map[job]count) { return s.beyond(t, p, excess) }); err != nil {
			return err
		}
	}
	return nil
}

// measure adds the bytes of a segment's runs to those of their owners.
func (s *segment) measure(t *table, p *pass, sizes map[metastore.Owner]int64) {
	owners := p.owners(t)
	for place := range t.runs() {
		if !t.isHidden(place) {
			sizes[owners[t.jobs.at(place)]] += s.bytesOf(t, place)
		}
	}
}

// beyond chooses the oldest runs of owners until they have no excess any more.
func (s *segment) beyond(t *table, p *pass, excess map[metastore.Owner]int64) (bits []byte, by map[job]count) {
	bits = make([]byte, (t.runs()+7)/8)
	counts, owners := make([]count, len(t.names)), p.owners(t)
	for place := range t.runs() {
		i := t.jobs.at(place)
		if of := owners[i]; excess[of] > 0 && !t.isHidden(place) {
			bits[place/8] |= 1 << (place % 8)
			counts[i].add(t.state(place), 1)
			p.dropped++
			if excess[of] -= s.bytesOf(t, place); excess[of] <= 0 {
				delete(excess, of)
			}
		}
	}
	return bits, named(t.names, counts)
}

// owners are those of the jobs in a table. The runs of a job that the pass does not know yet belong to no app.
func (p *pass) owners(t *table) []metastore.Owner {
	of := make([]metastore.Owner, len(t.names))
	for i, name := range t.names {
		of[i].Tenant = name.tenant
		if e := p.of[name]; e != nil {
			of[i] = e.owner
		}
	}
	return of
}

// bytesOf is about how many bytes of a segment a run takes: its record, and its part of the index.
func (s *segment) bytesOf(t *table, place int) int64 {
	end := s.indexAt
	if place+1 < t.runs() {
		end = int64(t.offsets.at(place + 1))
	}
	return end - int64(t.offsets.at(place)) + (s.size-s.indexAt)/int64(s.runs)
}

// rewrite writes the segment anew of which most bytes are purged, and reports whether there was one. filing must be held.
func (a *Archive) rewrite() (did bool, err error) {
	best, most := -1, int64(0)
	for i, s := range a.sealed {
		if purged := s.size * int64(s.runs-s.live) / int64(s.runs); !s.damaged && purged > most {
			best, most = i, purged
		}
	}
	if best < 0 {
		return false, nil
	}
	return true, a.merge(best, best+1)
}

// dropOldest deletes the oldest segments while all files take too much: nothing in them can be purged by owner. filing
// must be held.
func (a *Archive) dropOldest(p *pass) error {
	for !a.fits(p) && len(a.sealed) > 0 {
		s := a.sealed[0]
		if err := a.countIn(s, -1); err != nil {
			return err
		}
		p.dropped += s.live
		a.files.Lock()
		a.sealed = slices.Delete(a.sealed, 0, 1)
		err := s.remove()
		a.files.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
