package memstore

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Occasions lists open occasions of a job, the latest first.
func (e *Engine) Occasions(_ context.Context, tenant jobs.Tenant, job jobs.ID, limit int) (found []*kernel.Occasion, _ error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	s := e.rows.spaces[tenant]
	if s == nil {
		return nil, nil
	}
	for _, o := range s.occasions[job] {
		if o.Open() {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b *kernel.Occasion) int {
		return cmp.Or(b.Opened.Compare(a.Opened), cmp.Compare(b.Slot, a.Slot))
	})
	return found[:min(len(found), limit)], nil
}

// Batches lists batches, the latest first.
func (e *Engine) Batches(_ context.Context, q metastore.BatchQuery) (found []*kernel.Batch, _ error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	s := e.rows.spaces[q.Tenant]
	if s == nil {
		return nil, nil
	}
	if !q.ID.IsZero() {
		if b := s.batches[q.ID]; b != nil {
			found = append(found, b)
		}
		return found, nil
	}
	found = slices.SortedFunc(maps.Values(s.batches), func(a, b *kernel.Batch) int {
		return cmp.Or(b.Opened.Compare(a.Opened), bytes.Compare(b.ID[:], a.ID[:]))
	})
	return found[:min(len(found), q.Limit)], nil
}

func (s *space) putOccasion(row *kernel.Occasion) {
	list := s.occasions[row.Job]
	if list == nil {
		list = make(map[string]*kernel.Occasion)
		s.occasions[row.Job] = list
	}
	list[row.Slot] = row
}

func (s *space) dropOccasion(ref kernel.Ref) {
	list := s.occasions[ref.ID]
	if delete(list, ref.Name); len(list) == 0 {
		delete(s.occasions, ref.ID)
	}
}
