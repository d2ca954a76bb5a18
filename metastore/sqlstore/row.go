package sqlstore

import (
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// The form of rows in tables: the whole row in its wire form, and beside it the columns for queries.

// run is a run as the table holds it.
type run struct {
	*kernel.Run        // nil = it is gone
	sequence    int64  // in the order of creation
	settled     *int64 // its place among the finished ones
	settledAt   *int64
}

// nanos is a time as a number; 0 = none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// some is a number, or null if there is none.
func some(n *int64) any {
	if n == nil {
		return nil
	}
	return *n
}

// when is a time that may be missing.
func when(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixNano()
}

func bytesOf(id jobs.ID) []byte { return id[:] }

// values of a run, in the order of the columns.
func (r *run) values() []any {
	in := r.Run
	var parent, waits, ready any
	if !in.Parent.IsZero() {
		parent = bytesOf(in.Parent)
	}
	if in.Waits != "" {
		waits = in.Waits
	}
	wake := when(in.Wake())
	if r.settled != nil {
		wake, waits = nil, nil
	} else if in.Ready() {
		ready = int64(in.Turn)
	}
	return []any{
		string(in.Tenant), bytesOf(in.ID), r.sequence, string(in.Key), in.App, int64(in.State), in.Worker, parent, string(in.Origin), string(in.Cause),
		nanos(in.Created), int64(in.Priority), nanos(in.Due), wake, waits, in.First, ready,
		r.settled == nil && (in.State == jobs.Processing || in.Lingering), some(r.settled), some(r.settledAt), kernel.AppendRow(nil, in),
	}
}

// scanRun reads a run from all columns of its table.
func scanRun(scan func(...any) error) (run, error) {
	var r run
	var skip any
	var body []byte
	into := make([]any, len(runs.columns))
	for i := range into {
		into[i] = &skip
	}
	into[2], into[18], into[19], into[20] = &r.sequence, &r.settled, &r.settledAt, &body
	if err := scan(into...); err != nil {
		return r, err
	}
	in, err := decode[*kernel.Run](body)
	r.Run = in
	return r, err
}

// decode reads a row from its wire form.
func decode[R kernel.Row](body []byte) (R, error) {
	var none R
	row, _, err := kernel.DecodeRow(body)
	if err != nil {
		return none, err
	}
	r, ok := row.(R)
	if !ok {
		return none, kernel.Invalid("unexpected row: it is one of the %s", row.Ref().Kind)
	}
	return r, nil
}

// stub is what is still known of a run that was settled a short time ago.
func stub(run *kernel.Run) *kernel.Run {
	return &kernel.Run{Tenant: run.Tenant, ID: run.ID, Key: run.Key, State: run.State, Attempt: run.Attempt, Worker: run.Worker}
}

// Names of settled runs stay for at least two periods of envelope time, and for less than three: as in memory.
const (
	period = metastore.NamePeriod
	kept   = int64(metastore.KeepFinal / metastore.NamePeriod)
)

func periodOf(nano int64) int64 { return nano / int64(period) }

// key of a row that is not a run.
func key(ref kernel.Ref) []any {
	return []any{int64(ref.Kind), string(ref.Tenant), ref.Name, bytesOf(ref.ID), ref.At}
}

// lapses is when a unique key expires, or nil.
func expiries(row kernel.Row) any {
	if u, ok := row.(*kernel.UniqueKey); ok {
		return when(u.Until)
	}
	return nil
}

// other are the values of a row that is not a run.
func other(row kernel.Row) []any {
	var changed any
	if d, ok := row.(*kernel.Definition); ok {
		changed = int64(d.Change)
	}
	var aged any
	if at, done := metastore.DoneAt(row); done {
		aged = at.UnixNano()
	}
	return append(key(row.Ref()), expiries(row), changed, aged, kernel.AppendRow(nil, row))
}

// scanOther reads a row that is not a run from all columns of its table.
func scanOther(scan func(...any) error) (kernel.Row, error) {
	var skip any
	var body []byte
	if err := scan(&skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &body); err != nil {
		return nil, err
	}
	row, _, err := kernel.DecodeRow(body)
	return row, err
}

func tallyKey(ref kernel.Ref) []any {
	return []any{string(ref.Tenant), bytesOf(ref.ID), int64(ref.Span), ref.At}
}

// tally are the values of a tally. No run is counted as New or Scheduled.
func tally(ref kernel.Ref, s kernel.Sums) []any {
	values := tallyKey(ref)
	for _, n := range s.Runs[jobs.Enqueued:] {
		values = append(values, n)
	}
	return append(values, int64(s.Took))
}

func scanTally(scan func(...any) error) (*kernel.Tally, error) {
	var t kernel.Tally
	var job []byte
	to := []any{&t.Tenant, &job, &t.Span, &t.At}
	for state := range t.Runs[jobs.Enqueued:] {
		to = append(to, &t.Runs[int(jobs.Enqueued)+state])
	}
	err := scan(append(to, &t.Took)...)
	copy(t.Job[:], job)
	return &t, err
}
