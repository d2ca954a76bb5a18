package memstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// alarms are those of a tenant.
type alarms struct {
	all       map[kernel.Ref]*kernel.Alarm
	unsettled map[kernel.Ref]*kernel.Alarm // what the leader looks at: those that are raised, and not settled
}

func newAlarms() alarms {
	return alarms{map[kernel.Ref]*kernel.Alarm{}, map[kernel.Ref]*kernel.Alarm{}}
}

func (s *alarms) put(a *kernel.Alarm) {
	ref := a.Ref()
	s.all[ref] = a
	if a.Pending || a.Settled() {
		delete(s.unsettled, ref)
	} else {
		s.unsettled[ref] = a
	}
}

func (s *alarms) drop(ref kernel.Ref) {
	delete(s.all, ref)
	delete(s.unsettled, ref)
}

// Alarms lists alarms, newest first.
func (e *Engine) Alarms(_ context.Context, q metastore.AlarmQuery) (list []*kernel.Alarm, _ error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, s := range e.rows.inOrder(q.Tenant) {
		from := s.alarms.all
		if q.Which != metastore.AnyAlarm {
			from = s.alarms.unsettled
		}
		for _, a := range from {
			if !a.Pending && (q.Which != metastore.OpenAlarm || a.Ended.IsZero()) && (q.Before == 0 || a.N < q.Before) {
				list = append(list, a)
			}
		}
	}
	slices.SortFunc(list, func(a, b *kernel.Alarm) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), -cmp.Compare(a.N, b.N))
	})
	if q.Limit > 0 {
		list = list[:min(len(list), q.Limit)]
	}
	return list, nil
}

// AlarmSettings lists the targets and rules of a tenant, or of all.
func (e *Engine) AlarmSettings(_ context.Context, tenant jobs.Tenant) (list []*kernel.AlarmSettings, _ error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, s := range e.rows.inOrder(tenant) {
		if set, ok := s.plain[kernel.AlarmSettingsRef(s.tenant)].(*kernel.AlarmSettings); ok {
			list = append(list, set)
		}
	}
	return list, nil
}
