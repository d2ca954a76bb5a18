package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Audits lists audits, newest first, or oldest first with AuditQuery.Since.
func (e *Engine) Audits(_ context.Context, q metastore.AuditQuery) ([]*kernel.Audit, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	s := e.rows.spaces[q.Tenant]
	if s == nil {
		return nil, nil
	}
	end := len(s.audits)
	if q.Before > 0 {
		end, _ = findAudit(s.audits, q.Before)
	}
	var found []*kernel.Audit
	take := func(a *kernel.Audit) bool {
		if q.Matches(a) {
			found = append(found, a)
		}
		return len(found) < q.Size()
	}
	if q.Since > 0 {
		begin, _ := findAudit(s.audits, q.Since)
		for _, a := range s.audits[min(begin, end):end] {
			if !take(a) {
				break
			}
		}
		return found, nil
	}
	for _, a := range slices.Backward(s.audits[:end]) {
		if !take(a) {
			break
		}
	}
	return found, nil
}

// putAudit keeps audits in the order of their numbers: a new one is mostly the last.
func (r *rows) putAudit(a *kernel.Audit) {
	s := r.space(a.Tenant)
	if r.restoring {
		s.audits = append(s.audits, a)
		return
	}
	i, found := findAudit(s.audits, a.N)
	if found {
		s.audits[i] = a
		return
	}
	r.steps += len(s.audits) - i
	s.audits = slices.Insert(s.audits, i, a)
}

func (s *space) dropAudit(n uint64) {
	i, found := findAudit(s.audits, n)
	switch {
	case !found:
	case i == 0: // the oldest, as mostly
		s.audits[0] = nil
		s.audits = s.audits[1:]
	default:
		s.audits = slices.Delete(s.audits, i, i+1)
	}
}

func findAudit(list []*kernel.Audit, n uint64) (int, bool) {
	return slices.BinarySearchFunc(list, n, func(a *kernel.Audit, n uint64) int { return cmp.Compare(a.N, n) })
}

// elder is something that becomes history: a row, or all tallies or missed ranges of a job, of which the oldest
// counts.
type elder struct {
	at    int64      // when it did, or will
	row   kernel.Ref // the row; of tallies and missed ranges, the kind, the tenant and the job
	place int32
}

// age updates the order of elders after row was put, or dropped (nil).
func (r *rows) age(e *elder, row kernel.Row) {
	at, ok := time.Time{}, false
	if row != nil {
		at, ok = metastore.DoneAt(row)
	}
	if ok {
		place(&r.elders, e, at.UnixNano())
	} else {
		place(&r.elders, e, 0)
	}
}

// place puts an elder in its place among others; at 0, it is taken out.
func place(h *heap[*elder], e *elder, at int64) {
	if e.place != 0 {
		if e.at == at {
			return
		}
		h.remove(e.place)
	}
	if e.at = at; at != 0 {
		h.add(e)
	}
}

// Aged lists rows that became history before a time.
func (e *Engine) Aged(_ context.Context, before time.Time, limit int) ([]kernel.Ref, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var found []kernel.Ref
	take := func(row kernel.Row) bool {
		at, _ := metastore.DoneAt(row)
		if len(found) >= limit || !at.Before(before) {
			return false
		}
		found = append(found, row.Ref())
		return true
	}
	e.rows.elders.inOrder(func(old *elder) bool {
		if len(found) >= limit || old.at >= before.UnixNano() {
			return false
		}
		s := e.rows.spaces[old.row.Tenant]
		switch old.row.Kind {
		case kernel.RowTally:
			for t := range s.tallies[old.row.ID].all() {
				if t.span == kernel.Day && !take(t.row(s.tenant, old.row.ID)) {
					break
				}
			}
		case kernel.RowMissed:
			for _, m := range s.missed[old.row.ID].list {
				if !take(m) {
					break
				}
			}
		default:
			found = append(found, old.row)
		}
		return true
	})
	return found, nil
}
