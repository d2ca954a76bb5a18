package archive

import (
	"encoding/binary"
	"hash/maphash"
	"sort"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// index finds runs of the open file. Each has a place, counted from 0 as they were added; queries walk lists of
// places. It takes 59 bytes a run and has no pointers to any.
type index struct {
	numbers []uint64 // the keys in the file, by place
	states  []uint8  // with the flag hidden, by place
	ended   []int64  // by place
	live    int      // how many are not hidden
	seed    maphash.Seed
	ids     map[uint64]uint32 // by the hash of tenant and id
	shelves map[string]*shelf // by tenant
}

// hidden is the flag of a purged run.
const hidden = 0x80

// shelf is the lists of one tenant.
type shelf struct {
	all     places
	jobs    map[string]*ofJob
	workers map[string]*places
	parents map[jobs.ID]*places
	states  [16]places // of all but Succeeded, which nearly all are in
}

// ofJob is a job's runs, and how many of them are not hidden.
type ofJob struct {
	places
	count
}

// places is in order. A reader's copy never changes.
type places []uint32

func newIndex() *index {
	return &index{seed: maphash.MakeSeed(), ids: make(map[uint64]uint32), shelves: make(map[string]*shelf)}
}

// hash is of a secret seed, so that clients cannot choose ids that collide.
func (x *index) hash(tenant []byte, id jobs.ID) uint64 {
	var b [16 + 256]byte
	copy(b[:], id[:])
	return maphash.Bytes(x.seed, b[:16+copy(b[16:], tenant)])
}

// next is the place that the next run gets.
func (x *index) next() uint32 { return uint32(len(x.numbers)) }

// number is the key in the file of the run at a place, or 0 if it was purged.
func (x *index) number(place uint32) uint64 {
	if x.states[place]&hidden != 0 {
		return 0
	}
	return x.numbers[place]
}

func (x *index) add(number uint64, l *label) {
	place := x.next()
	x.numbers = append(x.numbers, number)
	x.states = append(x.states, uint8(l.state))
	x.ended = append(x.ended, l.ended)
	x.live++
	x.ids[x.hash(l.tenant, l.id)] = place
	s := x.shelves[string(l.tenant)]
	if s == nil {
		s = &shelf{jobs: make(map[string]*ofJob), workers: make(map[string]*places), parents: make(map[jobs.ID]*places)}
		x.shelves[string(l.tenant)] = s
	}
	s.all = append(s.all, place)
	of := s.jobs[string(l.key)]
	if of == nil {
		of = new(ofJob)
		s.jobs[string(l.key)] = of
	}
	of.places = append(of.places, place)
	of.add(l.state, 1)
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

// hide purges a run of a job.
func (x *index) hide(of *ofJob, place uint32) {
	of.add(jobs.State(x.states[place]), -1)
	x.states[place] |= hidden
	x.live--
}

func push[K comparable](lists map[K]*places, name K, place uint32) {
	l := lists[name]
	if l == nil {
		l = new(places)
		lists[name] = l
	}
	*l = append(*l, place)
}

// find chooses the shortest list that has all that a query selects, up to but without the run of a number.
func (x *index) find(q *metastore.RunQuery, before uint64) places {
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
		if of := s.jobs[string(q.Job)]; of != nil {
			consider(&of.places)
		} else {
			consider(nil)
		}
	}
	if q.Worker != "" {
		consider(s.workers[q.Worker])
	}
	if !q.Parent.IsZero() {
		consider(s.parents[q.Parent])
	}
	if q.State != kernel.New && q.State != jobs.Succeeded {
		consider(&s.states[q.State&15])
	}
	if before > 0 {
		best = best[:sort.Search(len(best), func(i int) bool { return x.numbers[best[i]] >= before })]
	}
	return best
}

func keyOf(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }
