package memstore

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync"
	interned "unique"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// definition is a job, or what remains of a deleted one. Its row is unpacked while commits use it; see warm.
type definition struct {
	space  *space
	key    jobs.Key
	uid    jobs.ID
	app    string
	change uint64
	row    *kernel.Definition // nil = packed
	packed *kernel.Packed     // nil = the row has changed since
	elder  *elder             // nil = it has not been deleted
	gone   bool
	exists bool // false before it has a row, and once what remains of it is dropped, too
}

// get returns the row. It does not change the definition: readers share it.
func (d *definition) get() *kernel.Definition {
	if d.row != nil {
		return d.row
	}
	return d.packed.Unpack()
}

// take sets the row.
func (d *definition) take(row *kernel.Definition) {
	d.count(-1)
	d.uid, d.app, d.change, d.gone = row.UID, interned.Make(row.App).Value(), row.Change, row.Gone()
	d.row, d.packed, d.exists = row, nil, true
	d.count(1)
}

// count counts the job for its app.
func (d *definition) count(by int) {
	if !d.exists || d.gone {
		return
	}
	if d.space.jobsOf[d.app] += by; d.space.jobsOf[d.app] == 0 {
		delete(d.space.jobsOf, d.app)
	}
}

func (d *definition) pack() {
	if d.packed == nil {
		d.packed = d.row.Pack(d.key)
	}
	d.row = nil
}

// mostWarm is how many definitions are kept unpacked, 2 KB each: those that commits have used last. Tests have fewer.
var mostWarm = 16_384

// warm is the definitions that are unpacked, in a ring.
type warm struct {
	ring []*definition
	next int
}

// add adds a definition that was packed, or is new, in place of the oldest one.
func (w *warm) add(d *definition) {
	if len(w.ring) < mostWarm {
		w.ring = append(w.ring, d)
		return
	}
	if old := w.ring[w.next]; old.exists {
		old.pack()
	}
	w.ring[w.next] = d
	w.next = (w.next + 1) % mostWarm
}

// room adds an unpacked definition if no other one has to be packed for it, and reports whether it did.
func (w *warm) room(d *definition) bool {
	if len(w.ring) == mostWarm {
		return false
	}
	w.ring = append(w.ring, d)
	return true
}

// definition returns the row of a definition, for a commit.
func (r *rows) definition(d *definition) *kernel.Definition {
	if d.row == nil {
		d.row = d.packed.Unpack()
		r.warm.add(d)
	}
	return d.row
}

// change records that a definition was given a change number. It is void when the definition has a later one.
type change struct {
	number uint64
	of     *definition
}

func (c change) void() bool { return !c.of.exists || c.of.change != c.number }

// putDefinition files a row. byKey has existing jobs, not what remains of others.
func (r *rows) putDefinition(row *kernel.Definition) {
	s := r.space(row.Tenant)
	d := s.definitions[row.Key]
	known := d != nil
	if !known {
		d = s.define(row.Key)
		r.defined++
	}
	listed, renumbered := known && !d.gone, !known || d.change != row.Change
	if d.row == nil {
		r.warm.add(d)
	}
	d.take(row)
	switch {
	case listed && d.gone:
		s.byKey.remove(d.key)
	case !listed && !d.gone:
		s.byKey.add(d)
	}
	r.ageDefinition(d, row)
	if renumbered {
		r.number(change{row.Change, d})
	}
	r.changed(s, row.Key)
}

func (s *space) define(key jobs.Key) *definition {
	d := &definition{space: s, key: key}
	s.definitions[key] = d
	return d
}

func (r *rows) ageDefinition(d *definition, row *kernel.Definition) {
	if d.elder == nil && d.gone {
		d.elder = &elder{row: row.Ref()}
	}
	if d.elder != nil {
		r.age(d.elder, row)
	}
}

// restoreDefinition files a row as putDefinition does, but unsorted: with a million of them, sorting each in at once
// would take minutes. restoredDefinitions sorts and packs them.
func (r *rows) restoreDefinition(row *kernel.Definition) (*definition, error) {
	s := r.space(row.Tenant)
	if s.definitions[row.Key] != nil {
		return nil, fmt.Errorf("restore: job %s of tenant %s exists twice", row.Key, row.Tenant)
	}
	d := s.define(row.Key)
	r.defined++
	d.take(row)
	r.ageDefinition(d, row)
	r.changes = append(r.changes, change{row.Change, d})
	return d, nil
}

// packers packs rows beside what restores other rows.
type packers struct {
	list []interface{ pack() }
	busy sync.WaitGroup
	free chan struct{} // limits how many work at the same time
}

// add takes something that nothing else uses until wait returns.
func (p *packers) add(of interface{ pack() }) {
	if p.list = append(p.list, of); len(p.list) == 512 {
		p.flush()
	}
}

func (p *packers) flush() {
	if p.free == nil {
		p.free = make(chan struct{}, runtime.GOMAXPROCS(0))
	}
	list := p.list
	p.list = nil
	p.free <- struct{}{}
	p.busy.Go(func() {
		for _, of := range list {
			of.pack()
		}
		<-p.free
	})
}

// wait returns when all rows are packed.
func (p *packers) wait() {
	p.flush()
	p.busy.Wait()
}

func (r *rows) restoredDefinitions() {
	slices.SortFunc(r.changes, func(a, b change) int { return cmp.Compare(a.number, b.number) })
	for _, s := range r.spaces {
		list := make([]*definition, 0, len(s.definitions))
		for _, d := range s.definitions {
			if !d.gone {
				list = append(list, d)
			}
		}
		slices.SortFunc(list, func(a, b *definition) int { return cmp.Compare(a.key, b.key) })
		s.byKey.fill(list)
	}
}

func (r *rows) dropDefinition(s *space, key jobs.Key) {
	d := s.definitions[key]
	if d == nil {
		return
	}
	if !d.gone {
		s.byKey.remove(key)
	}
	if d.elder != nil {
		r.age(d.elder, nil)
	}
	d.count(-1)
	delete(s.definitions, key)
	d.exists = false
	r.defined--
	r.changed(s, key)
}

// number adds a change. Void ones are removed once they are the most.
func (r *rows) number(c change) {
	if len(r.changes) > 2*r.defined+64 {
		r.changes = slices.DeleteFunc(r.changes, change.void)
	}
	i := len(r.changes)
	if i > 0 && r.changes[i-1].number > c.number {
		i = r.since(c.number)
	}
	r.changes = slices.Insert(r.changes, i, c)
}

// since is the index of the first change above a number.
func (r *rows) since(number uint64) int {
	i, _ := slices.BinarySearchFunc(r.changes, number, func(c change, n uint64) int {
		if c.number > n {
			return 1
		}
		return -1
	})
	return i
}

// sorted is definitions by key, in parts: an insertion moves the pointers of one part, not those of a million jobs.
type sorted struct{ parts [][]*definition }

// mostPart is the length of a part at which it is split.
const mostPart = 1024

// find returns the place of a key, or the one where it belongs: part is len(parts) only if there are none.
func (l *sorted) find(key jobs.Key) (part, at int, found bool) {
	part, _ = slices.BinarySearchFunc(l.parts, key, func(p []*definition, k jobs.Key) int { return cmp.Compare(p[len(p)-1].key, k) })
	if part == len(l.parts) {
		if part == 0 {
			return 0, 0, false
		}
		return part - 1, len(l.parts[part-1]), false
	}
	at, found = slices.BinarySearchFunc(l.parts[part], key, func(d *definition, k jobs.Key) int { return cmp.Compare(d.key, k) })
	return part, at, found
}

// add adds a definition that is not in the list.
func (l *sorted) add(d *definition) {
	part, at, _ := l.find(d.key)
	if part == len(l.parts) {
		l.parts = append(l.parts, nil)
	}
	p := slices.Insert(l.parts[part], at, d)
	l.parts[part] = p
	if len(p) == mostPart {
		l.parts = slices.Insert(l.parts, part+1, slices.Clone(p[mostPart/2:]))
		clear(p[mostPart/2:])
		l.parts[part] = p[:mostPart/2]
	}
}

func (l *sorted) remove(key jobs.Key) {
	part, at, found := l.find(key)
	if !found {
		return
	}
	if l.parts[part] = slices.Delete(l.parts[part], at, at+1); len(l.parts[part]) == 0 {
		l.parts = slices.Delete(l.parts, part, part+1)
	}
}

// fill sets the list to sorted definitions.
func (l *sorted) fill(list []*definition) {
	l.parts = nil
	for p := range slices.Chunk(list, mostPart/2) {
		l.parts = append(l.parts, slices.Clip(p))
	}
}

// from visits the definitions whose key is not below the given one, until visit is false. It reports whether it visited
// all of them.
func (l *sorted) from(key jobs.Key, visit func(*definition) bool) bool {
	part, at, _ := l.find(key)
	for ; part < len(l.parts); part++ {
		for _, d := range l.parts[part][at:] {
			if !visit(d) {
				return false
			}
		}
		at = 0
	}
	return true
}
