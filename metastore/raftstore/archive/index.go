package archive

import (
	"encoding/binary"
	"hash/maphash"
	"sort"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// index finds runs. Each has a place, counted from 0 as they were added; lists of places are what queries walk.
// It holds about 40 bytes a run and no pointers to any.
type index struct {
	numbers []uint64 // the keys in the file, by place - gone
	gone    uint32   // how many of the oldest places were pruned
	seed    maphash.Seed
	ids     map[uint64]uint32 // by the hash of tenant and id
	shelves map[string]*shelf // by tenant
}

// shelf is the lists of one tenant.
type shelf struct {
	all     places
	jobs    map[string]*places
	workers map[string]*places
	parents map[jobs.ID]*places
	states  [16]places // of all but Succeeded, which nearly all are in
}

// places is in order. Its front is cut off when runs are pruned; what a reader holds never changes.
type places []uint32

func newIndex() *index {
	return &index{seed: maphash.MakeSeed(), ids: make(map[uint64]uint32), shelves: make(map[string]*shelf)}
}

// hash is of a secret seed, so that nobody can choose ids that collide.
func (x *index) hash(tenant []byte, id jobs.ID) uint64 {
	var b [16 + 256]byte
	copy(b[:], id[:])
	return maphash.Bytes(x.seed, b[:16+copy(b[16:], tenant)])
}

// next is the place that the next run gets.
func (x *index) next() uint32 { return x.gone + uint32(len(x.numbers)) }

// number is the key in the file of the run at a place, or 0 if it was pruned.
func (x *index) number(place uint32) uint64 {
	if place < x.gone {
		return 0
	}
	return x.numbers[place-x.gone]
}

func (x *index) add(number uint64, l *label) {
	place := x.next()
	x.numbers = append(x.numbers, number)
	x.ids[x.hash(l.tenant, l.id)] = place
	s := x.shelves[string(l.tenant)]
	if s == nil {
		s = &shelf{jobs: make(map[string]*places), workers: make(map[string]*places), parents: make(map[jobs.ID]*places)}
		x.shelves[string(l.tenant)] = s
	}
	s.all = append(s.all, place)
	push(s.jobs, string(l.key), place)
	if len(l.worker) > 0 {
		push(s.workers, string(l.worker), place)
	}
	if !l.parent.IsZero() {
		push(s.parents, l.parent, place)
	}
	if l.state != jobs.Succeeded {
		s.states[l.state&15] = append(s.states[l.state&15], place)
	}
}

func push[K comparable](lists map[K]*places, name K, place uint32) {
	l := lists[name]
	if l == nil {
		l = new(places)
		lists[name] = l
	}
	*l = append(*l, place)
}

// drop forgets the oldest run, which has this label.
func (x *index) drop(l *label) {
	place := x.gone
	x.numbers = x.numbers[1:]
	x.gone++
	if h := x.hash(l.tenant, l.id); x.ids[h] == place {
		delete(x.ids, h)
	}
	s := x.shelves[string(l.tenant)]
	if s == nil {
		return
	}
	s.all.cut(place)
	shift(s.jobs, string(l.key), place)
	shift(s.workers, string(l.worker), place)
	shift(s.parents, l.parent, place)
	s.states[l.state&15].cut(place)
	if len(s.all) == 0 {
		delete(x.shelves, string(l.tenant))
	}
}

func (p *places) cut(place uint32) {
	if len(*p) > 0 && (*p)[0] == place {
		*p = (*p)[1:]
	}
}

func shift[K comparable](lists map[K]*places, name K, place uint32) {
	if l := lists[name]; l != nil {
		if l.cut(place); len(*l) == 0 {
			delete(lists, name)
		}
	}
}

// find chooses the shortest list that holds all that a query asks for, up to but without the run of a number.
func (x *index) find(q *metastore.InstanceQuery, before uint64) places {
	s := x.shelves[string(q.Tenant)]
	if s == nil {
		return nil
	}
	best := s.all
	consider := func(l *places) {
		if l == nil {
			best = nil
		} else if len(*l) < len(best) {
			best = *l
		}
	}
	if q.Job != "" {
		consider(s.jobs[string(q.Job)])
	}
	if q.Worker != "" {
		consider(s.workers[q.Worker])
	}
	if !q.Parent.IsZero() {
		consider(s.parents[q.Parent])
	}
	if q.State != jobs.New && q.State != jobs.Succeeded {
		consider(&s.states[q.State&15])
	}
	if before > 0 {
		best = best[:sort.Search(len(best), func(i int) bool { return x.number(best[i]) >= before })]
	}
	return best
}

func keyOf(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }
