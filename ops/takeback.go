package ops

import (
	"context"
	"slices"
	"sort"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// How a backfill changes the ledger: a due time that gets a run is no longer a missed one.

// ledgerMost is how many ranges of a job are read, and takeMost how many due times of one are counted to remove some of
// them. A longer range stays as it is, beside the runs.
const (
	ledgerMost = 100_000
	takeMost   = 500_000
)

// ledger lists the missed ranges of a job, oldest first.
func (o *Ops) ledger(ctx context.Context, d *kernel.Definition) ([]*kernel.Missed, error) {
	list, err := o.store.Ledger(ctx, d.Tenant, d.UID, ledgerMost)
	list = slices.Clone(list)
	slices.Reverse(list)
	return list, err
}

// missed returns the range of the ledger that contains a due time, or nil.
func (f *filling) missed(due time.Time) *kernel.Missed {
	i := sort.Search(len(f.ledger), func(i int) bool { return f.ledger[i].From.After(due) })
	if i == 0 || f.ledger[i-1].To.Before(due) {
		return nil
	}
	return f.ledger[i-1]
}

// commands returns the parts of the backfill, each with its changes of the ledger: the next part continues with what
// this one leaves of a range.
func (f *filling) commands() (list []kernel.Backfill) {
	var open *taking
	for part := range slices.Chunk(f.due, f.part()) {
		k := kernel.Backfill{ID: f.id, Key: f.job.Key, Job: f.job.UID, Due: part, Parallel: f.parallel, Priority: &f.priority}
		if open != nil {
			open.took = false
		}
		for _, due := range part {
			if due.Replay {
				continue
			}
			m := f.missed(due.At)
			if m == nil {
				continue
			}
			if open == nil || open.m != m {
				open.end(&k)
				open = f.take(m)
			}
			open.out(&k, due.At)
		}
		open.end(&k)
		list = append(list, k)
	}
	return list
}

// part returns how many due times go together: the result has their runs, and must fit into a message.
func (f *filling) part() int {
	return min(max(partBytes/2/(len(f.job.Policy.Args)+700), 1), kernel.MaxBackfill)
}

// taking is a range of the ledger from which due times are removed.
type taking struct {
	m    *kernel.Missed
	due  []time.Time // what is left of it, oldest first; none = it stays as it is
	took bool        // by the command in progress
}

// take lists the due times of a range by today's schedule. If they differ from the missed ones, the range stays as it
// is.
// be said of it, and it stays.
func (f *filling) take(m *kernel.Missed) *taking {
	t := &taking{m: m}
	if m.Count > takeMost {
		return t
	}
	t.due = make([]time.Time, 0, m.Count)
	for due, ok := f.plan.Schedule.Next(m.From.Add(-1)); ok && !due.After(m.To); due, ok = f.plan.Schedule.Next(due) {
		if uint64(len(t.due)) == m.Count {
			return &taking{m: m}
		}
		t.due = append(t.due, due)
	}
	if uint64(len(t.due)) != m.Count || m.Count > 0 && (!t.due[0].Equal(m.From) || !t.due[m.Count-1].Equal(m.To)) {
		return &taking{m: m}
	}
	return t
}

// out removes a due time from the rest, and puts back those before it.
func (t *taking) out(k *kernel.Backfill, due time.Time) {
	i, ok := slices.BinarySearchFunc(t.due, due, time.Time.Compare)
	if !ok {
		return
	}
	if !t.took {
		t.took = true
		k.Take = append(k.Take, t.rangeOf(t.due))
	}
	if i > 0 {
		k.Give = append(k.Give, t.rangeOf(t.due[:i]))
	}
	t.due = t.due[i+1:]
}

// end puts back what a command leaves of the range.
func (t *taking) end(k *kernel.Backfill) {
	if t != nil && t.took && len(t.due) > 0 {
		k.Give = append(k.Give, t.rangeOf(t.due))
	}
}

func (t *taking) rangeOf(due []time.Time) kernel.Missed {
	return kernel.Missed{From: due[0], To: due[len(due)-1], Count: uint64(len(due)), Reason: t.m.Reason}
}
