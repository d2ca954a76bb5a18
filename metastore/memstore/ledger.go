package memstore

import (
	"cmp"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// tallies is the counts of a job, by hour and state.
type tallies struct {
	counts []count
	elder  elder
}

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

func (r *rows) putTally(t *kernel.Tally) {
	s := r.space(t.Tenant)
	of := s.tallies[t.Job]
	if of == nil {
		of = &tallies{elder: elder{row: kernel.Ref{Kind: kernel.RowTally, Tenant: s.tenant, ID: t.Job}}}
		s.tallies[t.Job] = of
	}
	of.add(t.Hour, t.State, t.N)
	s.total.add(t.Hour, t.State, t.N)
	r.ageTallies(of)
}

// ageTallies notes how old the oldest of them is, if that has changed.
func (r *rows) ageTallies(of *tallies) {
	switch {
	case len(of.counts) == 0:
		r.age(&of.elder, nil)
	case of.elder.place == 0 || of.elder.at != of.counts[0].hour+int64(time.Hour):
		r.age(&of.elder, &kernel.Tally{Hour: of.counts[0].hour})
	}
}

func (r *rows) dropTally(s *space, ref kernel.Ref) {
	of := s.tallies[ref.ID]
	if of == nil {
		return
	}
	s.total.add(ref.At, ref.State, -of.get(ref.At, ref.State))
	if s.total.get(ref.At, ref.State) == 0 {
		s.total.drop(ref.At, ref.State)
	}
	of.drop(ref.At, ref.State)
	r.ageTallies(of)
	if len(of.counts) == 0 {
		delete(s.tallies, ref.ID)
	}
}

// ledger is a job's missed ranges in the order of their first due times, which is also that of their last.
type ledger struct {
	list  []*kernel.Missed
	elder elder
}

func (r *rows) putMissed(m *kernel.Missed) {
	s := r.space(m.Tenant)
	of := s.missed[m.Job]
	if of == nil {
		of = &ledger{elder: elder{row: kernel.Ref{Kind: kernel.RowMissed, Tenant: s.tenant, ID: m.Job}}}
		s.missed[m.Job] = of
	}
	i, found := findMissed(of.list, m.From)
	if found {
		of.list = slices.Clone(of.list) // readers may hold the old one
		of.list[i] = m
	} else {
		of.list = slices.Insert(slices.Clip(of.list), i, m)
	}
	r.age(&of.elder, of.list[0])
}

func (r *rows) dropMissed(s *space, ref kernel.Ref) {
	of := s.missed[ref.ID]
	if of == nil {
		return
	}
	i, found := findMissed(of.list, time.Unix(0, ref.At))
	if !found {
		return
	}
	if len(of.list) == 1 {
		r.age(&of.elder, nil)
		delete(s.missed, ref.ID)
		return
	}
	of.list = slices.Concat(of.list[:i], of.list[i+1:])
	r.age(&of.elder, of.list[0])
}

func findMissed(list []*kernel.Missed, from time.Time) (int, bool) {
	return slices.BinarySearchFunc(list, from, func(m *kernel.Missed, t time.Time) int { return m.From.Compare(t) })
}
