package ui

import (
	"cmp"
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// runRow is a line of a table of runs.
type runRow struct {
	*kernel.Run
	Error    string // of the last attempt, for users
	Why      string
	When     time.Time     // of its latest transition
	Most     int           // attempts it may need
	Begun    bool          // an attempt has started
	Late     time.Duration // from due to the first attempt
	Took     time.Duration // of the current or last attempt
	Progress *bus.Progress
	Stuck    bool
	Sent     bool   // to its worker, and not confirmed
	Text     string // its error, or its progress

	// For a line that stands for all parts of a broadcast:
	Group jobs.ID
	Of    int           // parts
	Done  int           // of them have succeeded
	Parts []*kernel.Run // in their order; nil = too many to list
}

// latest returns when a run last changed its state.
func latest(run *kernel.Run) time.Time {
	if n := len(run.Moves); n > 0 {
		return run.Moves[n-1].At
	}
	return run.Created
}

func (u *UI) runRows(list []*kernel.Run) []runRow {
	rows := make([]runRow, len(list))
	for i, run := range list {
		rows[i] = u.runRow(run)
	}
	return rows
}

// unplaced adds the reason why no worker gets a ready run.
func (u *UI) unplaced(ctx context.Context, who ops.Who, rows []runRow) {
	var workers []ops.Worker
	reasons := map[jobs.Key]string{} // of runs that any worker with the job may take
	for i := range rows {
		run := rows[i].Run
		if run.State != jobs.Enqueued || run.Waits != "" || run.Lingering {
			continue
		}
		if workers == nil {
			workers = u.ops.Workers(ctx, who)
		}
		why, known := reasons[run.Key]
		if run.Place != nil || !known {
			why = ops.Nowhere(run, workers)
		}
		if run.Place == nil {
			reasons[run.Key] = why
		}
		rows[i].Why = cmp.Or(why, rows[i].Why)
	}
}

func (u *UI) runRow(run *kernel.Run) runRow {
	row := runRow{Run: run, Error: run.Problem(), Why: causes[run.Cause], When: latest(run), Text: run.Problem(), Most: max(run.Terms.Retries+1, int(run.Attempt))}
	if run.Waits != "" {
		row.Why = "waits for " + gate(run.Waits)
	}
	for _, m := range run.Moves {
		if m.State == jobs.Processing {
			row.Begun, row.Late = true, m.At.Sub(run.Wanted())
			break
		}
	}
	switch {
	case run.State == jobs.Processing:
		row.Took = u.ops.Now().Sub(run.Started)
	case !run.Started.IsZero():
		row.Took = latest(run).Sub(run.Started)
	}
	if run.State != jobs.Processing && !run.Lingering {
		return row
	}
	now, _ := u.ops.Live().Attempt(run.Tenant, run.ID)
	row.Progress, row.Stuck, row.Sent = now.Progress, now.Stuck, now.Unconfirmed && run.State == jobs.Processing
	if row.Progress != nil {
		row.Text = row.Progress.Text
	}
	return row
}
