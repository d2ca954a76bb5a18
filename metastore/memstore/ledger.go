package memstore

import (
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

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
	if r.restoring {
		of.list = append(of.list, m)
		return
	}
	switch i, found := findMissed(of.list, m.From); {
	case found:
		of.list = slices.Clone(of.list) // readers may hold the old one
		of.list[i] = m
	case i == len(of.list):
		of.list = append(of.list, m) // beyond what readers see
	default:
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
