package sqlstore

import (
	"cmp"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// view is the rows that one commit works on: those that were loaded, with what was put since. It is the metastore.Tx
// of a database, and returns at the end what has to be written.
type view struct {
	at       int64 // time of the commit before, by which settled runs are still known
	sequence int64 // the last one used
	now      int64 // time of this commit

	rows    map[kernel.Ref]kernel.Row // all but runs
	runs    map[kernel.Ref]*seen
	waiters map[kernel.Ref]map[kernel.Ref]*kernel.Run // by gate
	more    map[kernel.Ref]bool                       // gates at which runs may wait after the loaded ones

	state   kernel.StoreRow
	written map[kernel.Ref]bool        // rows that were put or deleted
	tallies map[kernel.Ref]kernel.Sums // to be added to stored ones
	ended   []*seen                    // runs that this commit has settled, in order

	untallied map[kernel.Ref]*kernel.Tally // stored tallies that were deleted
}

// seen is a run that a commit has loaded or made.
type seen struct {
	run
	was     *kernel.Run // as it was loaded, unless it was settled already
	wasSet  bool        // it was settled when it was loaded
	changed bool
}

func newView(state kernel.StoreRow, sequence int64) *view {
	return &view{
		at: nanos(state.At), sequence: sequence, state: state,
		rows: map[kernel.Ref]kernel.Row{}, runs: map[kernel.Ref]*seen{}, waiters: map[kernel.Ref]map[kernel.Ref]*kernel.Run{}, more: map[kernel.Ref]bool{},
		written: map[kernel.Ref]bool{}, tallies: map[kernel.Ref]kernel.Sums{}, untallied: map[kernel.Ref]*kernel.Tally{},
	}
}

// loaded takes a run that was read. One that was loaded before stays as it is.
func (v *view) loaded(r run) kernel.Row {
	ref := r.Ref()
	if known := v.runs[ref]; known != nil {
		return v.Get(ref)
	}
	s := &seen{run: r, wasSet: r.settled != nil}
	if !s.wasSet {
		s.was = r.Run
	}
	v.runs[ref] = s
	v.wait(nil, s.live())
	return v.Get(ref)
}

// live is the run while it is not settled, or nil.
func (s *seen) live() *kernel.Run {
	if s == nil || s.settled != nil {
		return nil
	}
	return s.Run
}

// Get is the row as the last Put left it, or nil.
func (v *view) Get(ref kernel.Ref) kernel.Row {
	switch ref.Kind {
	case kernel.RowStore:
		return &v.state
	case kernel.RowRun:
		s := v.runs[ref]
		switch {
		case s == nil || s.Run == nil:
			return nil
		case s.settled == nil:
			return s.Run
		case !s.wasSet || v.named(s):
			return stub(s.Run)
		}
		return nil
	}
	row := v.rows[ref]
	if sums, added := v.tallies[ref]; added {
		t := kernel.Tally{Tenant: ref.Tenant, Job: ref.ID, Span: ref.Span, At: ref.At, Sums: sums}
		if stored, ok := row.(*kernel.Tally); ok {
			t.Add(stored.Sums)
		}
		return &t
	}
	if row != nil {
		return row
	}
	return nil
}

// named reports whether a run that was settled when it was loaded is still known by its name.
func (v *view) named(s *seen) bool { return periodOf(*s.settledAt) >= periodOf(v.at)-kept }

// finished is a run that was settled before this commit, if the rules may no longer know its name, or nil.
func (v *view) finished(tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	s := v.runs[kernel.RunRef(tenant, id)]
	if s != nil && s.wasSet && metastore.MayBeFinished(&v.state, instant(v.now), id) {
		return s.Run, nil
	}
	return nil, nil
}

// First returns the first loaded run that waits at the gate.
func (v *view) First(gate kernel.Ref) *kernel.Run {
	var first *kernel.Run
	for _, run := range v.waiters[gate] {
		if first == nil || before(run, first) {
			first = run
		}
	}
	return first
}

func before(a, b *kernel.Run) bool {
	if a.First != b.First {
		return a.First
	}
	return cmp.Or(-cmp.Compare(a.Priority, b.Priority), a.Due.Compare(b.Due), cmp.Compare(string(a.ID[:]), string(b.ID[:]))) < 0
}

// wait moves a run among the waiting ones.
func (v *view) wait(old, now *kernel.Run) {
	if old != nil && old.Waits != "" {
		delete(v.waiters[kernel.GateRef(old.Tenant, old.Waits)], old.Ref())
	}
	if now != nil && now.Waits != "" {
		gate := kernel.GateRef(now.Tenant, now.Waits)
		if v.waiters[gate] == nil {
			v.waiters[gate] = map[kernel.Ref]*kernel.Run{}
		}
		v.waiters[gate][now.Ref()] = now
	}
}

func (v *view) next() *int64 {
	v.sequence++
	return new(v.sequence)
}

// Put stores a row. A Tally is added to the stored one.
func (v *view) Put(row kernel.Row) {
	ref := row.Ref()
	switch row := row.(type) {
	case *kernel.StoreRow:
		v.state = *row
	case *kernel.Tally:
		sums := v.tallies[ref]
		sums.Add(row.Sums)
		v.tallies[ref] = sums
	case *kernel.Run:
		v.putRun(ref, row)
	default:
		v.rows[ref], v.written[ref] = row, true
	}
}

func (v *view) putRun(ref kernel.Ref, run *kernel.Run) {
	s := v.runs[ref]
	if s == nil {
		s = &seen{}
		v.runs[ref] = s
	}
	if s.sequence == 0 {
		s.sequence = *v.next()
	}
	v.wait(s.live(), nil)
	s.Run, s.changed = run, true
	if run.Settled() {
		if s.settled == nil || s.wasSet {
			s.settled, s.wasSet = v.next(), false
			v.ended = append(v.ended, s)
		}
		return
	}
	s.settled = nil
	v.wait(nil, run)
}

// Delete removes a row. A gate without waiting runs, as far as was loaded, stays if others may wait there.
func (v *view) Delete(ref kernel.Ref) {
	if v.more[ref] {
		return
	}
	if ref.Kind == kernel.RowRun {
		if s := v.runs[ref]; s != nil {
			v.wait(s.live(), nil)
			s.Run, s.changed = nil, true
		}
		return
	}
	if ref.Kind == kernel.RowTally {
		if t, stored := v.rows[ref].(*kernel.Tally); stored {
			v.untallied[ref] = t
		}
		delete(v.tallies, ref)
	} else {
		v.written[ref] = true
	}
	delete(v.rows, ref)
}

// change is what a commit writes.
type change struct {
	runs, gone      [][]any // of runs: whole rows, and keys of those to delete
	others, dropped [][]any
	tallies, counts [][]any
	untallied       [][]any // keys of tallies to delete, before others are added
}

// counted is a stored number: how many runs of a kind there are now.
type counted struct {
	tenant, what, name string
	state              jobs.State
}

// values of a count, in the order of the columns.
func (of counted) values(n int64) []any {
	return []any{of.tenant, of.what, of.name, int64(of.state), n}
}

// The counts.
const (
	countState = "state" // runs by state; name: the job, or "" for all
	countReady = "ready" // ready runs; name: the app
	countWaits = "waits" // runs that wait; name: the gate
	countPayer = "payer" // runs that have not started; name: their payer
)

// count adds the counts of a live run.
func count(n map[counted]int64, run *kernel.Run, by int64) {
	if run == nil {
		return
	}
	t := string(run.Tenant)
	n[counted{t, countState, "", run.State}] += by
	n[counted{t, countState, string(run.Key), run.State}] += by
	if run.Ready() {
		n[counted{t, countReady, run.App, 0}] += by
	}
	if payer := run.Payer(); payer != "" && run.Waiting() {
		n[counted{t, countPayer, payer, 0}] += by
	}
	if run.Waits != "" {
		n[counted{t, countWaits, run.Waits, 0}] += by
	}
}

// change is all that has to be written.
func (v *view) change() change {
	var c change
	n := map[counted]int64{}
	for _, s := range v.ended {
		s.settledAt = new(v.now)
	}
	for ref, s := range v.runs {
		if !s.changed {
			continue
		}
		count(n, s.was, -1)
		if s.Run == nil {
			c.gone = append(c.gone, []any{string(ref.Tenant), bytesOf(ref.ID)})
			continue
		}
		count(n, s.live(), 1)
		c.runs = append(c.runs, s.values())
	}
	for ref := range v.written {
		if row := v.rows[ref]; row != nil {
			c.others = append(c.others, other(row))
		} else {
			c.dropped = append(c.dropped, key(ref))
		}
	}
	total := totals{}
	for ref, sums := range v.tallies {
		c.tallies = append(c.tallies, tally(ref, sums))
		total.add(ref, sums)
	}
	for ref, t := range v.untallied {
		c.untallied = append(c.untallied, tallyKey(ref))
		total.sub(ref, t.Sums)
	}
	for ref, sums := range total {
		c.tallies = append(c.tallies, tally(ref, *sums))
	}
	for of, k := range n {
		if k != 0 {
			c.counts = append(c.counts, of.values(k))
		}
	}
	return c
}

// totals are tallies of all jobs together, by the reference of a tally without a job.
type totals map[kernel.Ref]*kernel.Sums

func (t totals) of(ref kernel.Ref) *kernel.Sums {
	ref.ID = jobs.ID{}
	if t[ref] == nil {
		t[ref] = new(kernel.Sums)
	}
	return t[ref]
}

func (t totals) add(ref kernel.Ref, s kernel.Sums) { t.of(ref).Add(s) }
func (t totals) sub(ref kernel.Ref, s kernel.Sums) { t.of(ref).Sub(s) }
