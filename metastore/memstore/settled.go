package memstore

import (
	"iter"
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

// generation is the stubs of one period. One that a snapshot shares is closed: the period continues with another.
type generation struct {
	period int64
	closed bool
	stubs  map[stubName]stub
	names  []string // keys and workers, by number
	number map[string]uint32
}

type stubName struct {
	space uint32
	id    jobs.ID
}

type stub struct {
	key, worker uint32
	attempt     uint32
	state       jobs.State
}

// settle sends a finished run to the archive and leaves a stub. A run that a commit puts twice goes once.
func (r *rows) settle(s *space, run *kernel.Run) {
	name := stubName{s.number, run.ID}
	if known := r.settled.add(name, run); known {
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
		r.settled.remove(stubName{r.space(run.Tenant).number, run.ID})
	}
	r.settled.move(now)
	for _, run := range r.ended {
		r.settled.add(stubName{r.space(run.Tenant).number, run.ID}, run)
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
	g := &generation{period: s.period, stubs: make(map[stubName]stub), number: make(map[string]uint32)}
	s.generations = append(s.generations, g)
	return g
}

// add leaves a stub, and reports whether one was in the open generation: the commit under way may have left it.
func (s *settled) add(name stubName, run *kernel.Run) (known bool) {
	g := s.open()
	before := len(g.stubs)
	g.stubs[name] = stub{key: g.word(string(run.Key)), worker: g.word(run.Worker), attempt: run.Attempt, state: run.State}
	return len(g.stubs) == before
}

// remove removes a stub of the commit under way.
func (s *settled) remove(name stubName) { delete(s.open().stubs, name) }

// get is the latest stub of a name as a row, or nil.
func (s *settled) get(t jobs.Tenant, name stubName) *kernel.Run {
	for i := len(s.generations) - 1; i >= 0; i-- {
		if st, ok := s.generations[i].stubs[name]; ok {
			return s.generations[i].row(t, name.id, st)
		}
	}
	return nil
}

// word is the number of a name in the generation.
func (g *generation) word(name string) uint32 {
	n, ok := g.number[name]
	if !ok {
		n = uint32(len(g.names))
		g.names = append(g.names, name)
		g.number[name] = n
	}
	return n
}

func (g *generation) row(t jobs.Tenant, id jobs.ID, st stub) *kernel.Run {
	return &kernel.Run{Tenant: t, ID: id, Key: jobs.Key(g.names[st.key]), State: st.state, Attempt: st.attempt, Worker: g.names[st.worker]}
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
		for name, st := range g.stubs {
			run := g.row(tenants[name.space], name.id, st)
			run.Ended = time.Unix(0, g.period*int64(period)).UTC()
			if !yield(run) {
				return
			}
		}
	}
}

// restore puts back a stub of a snapshot, in any order of time.
func (s *settled) restore(name stubName, run *kernel.Run) {
	p := metastore.Period(run.Ended)
	at := 0
	for at < len(s.generations) && s.generations[at].period < p {
		at++
	}
	if at == len(s.generations) || s.generations[at].period != p {
		s.generations = append(s.generations, nil)
		copy(s.generations[at+1:], s.generations[at:])
		s.generations[at] = &generation{period: p, stubs: make(map[stubName]stub), number: make(map[string]uint32)}
	}
	g := s.generations[at]
	g.stubs[name] = stub{key: g.word(string(run.Key)), worker: g.word(run.Worker), attempt: run.Attempt, state: run.State}
}
