package memstore

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/jobs"
)

// definition is a job's row; nil once it is deleted.
type definition struct{ row *jobs.Definition }

// change says that a definition was given a change number. It is void when the definition has a later one.
type change struct {
	number uint64
	of     *definition
}

func (c change) void() bool { return c.of.row == nil || c.of.row.Change != c.number }

func (r *rows) putDefinition(d *jobs.Definition) {
	s := r.space(d.Tenant)
	def := s.definitions[d.Key]
	if def == nil {
		def = new(definition)
		s.definitions[d.Key] = def
		i, _ := findDefinition(s.byKey, d.Key)
		def.row = d
		s.byKey = slices.Insert(s.byKey, i, def)
		r.defined++
	} else if def.row.Change == d.Change {
		def.row = d
		return
	}
	def.row = d
	r.number(change{d.Change, def})
}

func (r *rows) dropDefinition(s *space, key jobs.Key) {
	def := s.definitions[key]
	if def == nil {
		return
	}
	i, _ := findDefinition(s.byKey, key)
	s.byKey = slices.Delete(s.byKey, i, i+1)
	delete(s.definitions, key)
	def.row = nil
	r.defined--
}

// number adds a change. Those that have become void are thrown out once they are the most.
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

// since is where the changes above a number begin.
func (r *rows) since(number uint64) int {
	i, _ := slices.BinarySearchFunc(r.changes, number, func(c change, n uint64) int {
		if c.number > n {
			return 1
		}
		return -1
	})
	return i
}

func findDefinition(list []*definition, key jobs.Key) (int, bool) {
	return slices.BinarySearchFunc(list, key, func(d *definition, k jobs.Key) int { return cmp.Compare(d.row.Key, k) })
}

// tallies is what was counted of a job, by hour and state.
type tallies struct{ counts []count }

type count struct {
	hour  int64
	n     int64
	state jobs.State
}

func (t *tallies) find(hour int64, state jobs.State) (int, bool) {
	return slices.BinarySearchFunc(t.counts, count{hour: hour, state: state}, func(a, b count) int {
		return cmp.Or(cmp.Compare(a.hour, b.hour), cmp.Compare(a.state, b.state))
	})
}

func (t *tallies) add(hour int64, state jobs.State, n int64) {
	i, found := t.find(hour, state)
	if !found {
		t.counts = slices.Insert(t.counts, i, count{hour: hour, state: state})
	}
	t.counts[i].n += n
}

func (t *tallies) get(hour int64, state jobs.State) int64 {
	if i, found := t.find(hour, state); found {
		return t.counts[i].n
	}
	return 0
}

func (t *tallies) drop(hour int64, state jobs.State) {
	if i, found := t.find(hour, state); found {
		t.counts = slices.Delete(t.counts, i, i+1)
	}
}

func (s *space) putTally(t *jobs.Tally) {
	of := s.tallies[t.Job]
	if of == nil {
		of = new(tallies)
		s.tallies[t.Job] = of
	}
	of.add(t.Hour, t.State, t.N)
	s.total.add(t.Hour, t.State, t.N)
}

func (s *space) dropTally(ref jobs.Ref) {
	of := s.tallies[ref.ID]
	if of == nil {
		return
	}
	s.total.add(ref.At, ref.State, -of.get(ref.At, ref.State))
	if s.total.get(ref.At, ref.State) == 0 {
		s.total.drop(ref.At, ref.State)
	}
	if of.drop(ref.At, ref.State); len(of.counts) == 0 {
		delete(s.tallies, ref.ID)
	}
}
