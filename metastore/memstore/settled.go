package memstore

import (
	"hash/maphash"
	"iter"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// A settled run leaves the live rows, but its name stays for a while, so that a command that is sent twice gets its
// outcome. These stubs have no pointers, so the garbage collector does not scan them. They are in generations by the
// time of the commit, and a whole generation is dropped at once.

// Stubs stay for at least kept of the store's time, and for less than kept and one period.
const (
	period = metastore.NamePeriod
	kept   = metastore.KeepFinal
)

type settled struct {
	period      int64 // of the last commit
	generations []*generation
}

// generation is the stubs of one period, 24 bytes each, in the order in which runs ended. One that a snapshot shares is
// closed: the period continues with another.
type generation struct {
	period int64
	closed bool
	stubs  []stub
	slots  []uint32 // open addressing by ID: places in stubs, counted from 1; a power of two, at most 3/4 in use
	ends   []end    // which stubs share
	number map[end]uint32
}

type stub struct {
	id      jobs.ID
	end     uint32 // in ends; removed = the stub does not count
	attempt uint32
}

// end is how and where a run ended.
type end struct {
	space       uint32
	state       jobs.State
	key, worker string
}

const removed = 1<<32 - 1

// seed makes places in slots independent of the IDs that clients choose.
var seed = maphash.MakeSeed()

// settle sends a finished run to the archive and leaves a stub. A run that a commit puts twice goes once.
func (r *rows) settle(s *space, run *kernel.Run) {
	if known := r.settled.add(s.number, run); known {
		for i := len(r.ended) - 1; i >= 0; i-- {
			if old := r.ended[i]; old.ID == run.ID && old.Tenant == run.Tenant {
				r.ended[i] = run
				return
			}
		}
	}
	r.ended = append(r.ended, run)
}

// tick advances to the time of a commit and drops what is too old by then. What the commit itself has settled before
// it set its time belongs to that time.
func (r *rows) tick(at time.Time) {
	now := metastore.Period(at)
	if now <= r.settled.period {
		return
	}
	for _, run := range r.ended {
		r.settled.remove(r.space(run.Tenant).number, run.ID)
	}
	r.settled.move(now)
	for _, run := range r.ended {
		r.settled.add(r.space(run.Tenant).number, run)
	}
}

func (s *settled) move(now int64) {
	s.period = now
	for len(s.generations) > 0 && s.generations[0].period < now-int64(kept/period) {
		s.generations[0] = nil
		s.generations = s.generations[1:]
	}
}

// open is the generation that new stubs go to.
func (s *settled) open() *generation {
	if n := len(s.generations); n > 0 && s.generations[n-1].period == s.period && !s.generations[n-1].closed {
		return s.generations[n-1]
	}
	g := &generation{period: s.period, number: make(map[end]uint32)}
	s.generations = append(s.generations, g)
	return g
}

// add leaves a stub, and reports whether one was in the open generation: the commit under way may have left it.
func (s *settled) add(space uint32, run *kernel.Run) (known bool) {
	return s.open().put(run.ID, run.Attempt, end{space, run.State, string(run.Key), run.Worker})
}

// remove removes a stub of the commit under way.
func (s *settled) remove(space uint32, id jobs.ID) {
	if st := s.open().find(space, id); st != nil {
		st.end = removed
	}
}

// get is the latest stub of a run as a row, or nil.
func (s *settled) get(t jobs.Tenant, space uint32, id jobs.ID) *kernel.Run {
	for _, g := range slices.Backward(s.generations) {
		if st := g.find(space, id); st != nil {
			return g.row(t, st)
		}
	}
	return nil
}

// put adds a stub, or replaces that of the same run.
func (g *generation) put(id jobs.ID, attempt uint32, e end) (known bool) {
	n, ok := g.number[e]
	if !ok {
		n = uint32(len(g.ends))
		g.ends = append(g.ends, e)
		g.number[e] = n
	}
	st := stub{id, n, attempt}
	if old := g.find(e.space, id); old != nil {
		*old = st
		return true
	}
	g.stubs = append(g.stubs, st)
	if len(g.stubs)*4 > len(g.slots)*3 {
		g.slots = make([]uint32, max(64, 2*len(g.slots)))
		for i := range g.stubs {
			g.index(i)
		}
	} else {
		g.index(len(g.stubs) - 1)
	}
	return false
}

// index notes the place of a stub in a free slot.
func (g *generation) index(place int) {
	at := g.slot(g.stubs[place].id)
	for g.slots[at] != 0 {
		at = (at + 1) & (len(g.slots) - 1)
	}
	g.slots[at] = uint32(place + 1)
}

// find returns the stub of a run, or nil.
func (g *generation) find(space uint32, id jobs.ID) *stub {
	if len(g.slots) == 0 {
		return nil
	}
	for at := g.slot(id); g.slots[at] != 0; at = (at + 1) & (len(g.slots) - 1) {
		if st := &g.stubs[g.slots[at]-1]; st.id == id && st.end != removed && g.ends[st.end].space == space {
			return st
		}
	}
	return nil
}

// slot is where the search for an ID begins.
func (g *generation) slot(id jobs.ID) int {
	return int(maphash.Comparable(seed, id)) & (len(g.slots) - 1)
}

func (g *generation) row(t jobs.Tenant, st *stub) *kernel.Run {
	e := &g.ends[st.end]
	return &kernel.Run{Tenant: t, ID: st.id, Key: jobs.Key(e.key), State: e.state, Attempt: st.attempt, Worker: e.worker}
}

// share closes all generations and returns them: they never change again.
func (s *settled) share() []*generation {
	for _, g := range s.generations {
		g.closed = true
	}
	return append([]*generation(nil), s.generations...)
}

// rows is the stubs as rows of settled runs that ended when the generation began, as a snapshot has them.
func (g *generation) rows(tenants []jobs.Tenant) iter.Seq[kernel.Row] {
	return func(yield func(kernel.Row) bool) {
		g.each(tenants, func(st kernel.Stub) bool {
			return yield(&kernel.Run{Tenant: st.Tenant, ID: st.ID, Key: jobs.Key(st.Key), State: st.State, Attempt: st.Attempt, Worker: st.Worker, Ended: st.Ended})
		})
	}
}

// restore puts back a stub of a snapshot, in any order of time.
func (s *settled) restore(space uint32, st *kernel.Stub) {
	p := metastore.Period(st.Ended)
	at := 0
	for at < len(s.generations) && s.generations[at].period < p {
		at++
	}
	if at == len(s.generations) || s.generations[at].period != p {
		s.generations = slices.Insert(s.generations, at, &generation{period: p, number: make(map[end]uint32)})
	}
	s.generations[at].put(st.ID, st.Attempt, end{space, st.State, st.Key, st.Worker})
}

// each calls fn with the stubs, as a snapshot has them, until it is false.
func (g *generation) each(tenants []jobs.Tenant, fn func(kernel.Stub) bool) bool {
	ended := time.Unix(0, g.period*int64(period)).UTC()
	for i := range g.stubs {
		st := &g.stubs[i]
		if st.end == removed {
			continue
		}
		e := &g.ends[st.end]
		if !fn(kernel.Stub{Tenant: tenants[e.space], ID: st.id, Key: e.key, Worker: e.worker, Attempt: st.attempt, State: e.state, Ended: ended}) {
			return false
		}
	}
	return true
}
