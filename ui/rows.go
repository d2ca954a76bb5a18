package ui

import (
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// runRow is a line of a table of runs.
type runRow struct {
	*jobs.Instance
	Error    string // of the last attempt, for people
	Why      string
	When     time.Time     // of its latest move
	Most     int           // attempts it may need
	Begun    bool          // an attempt has begun
	Late     time.Duration // from due to the first attempt
	Took     time.Duration // of the current or last attempt
	Progress *bus.Progress
	Stuck    bool
	Text     string // its error, or how far it is

	// Of a line that stands for all shards of a broadcast:
	Group  jobs.ID
	Of     int              // shards
	Done   int              // of them have succeeded
	Shards []*jobs.Instance // in their order; nil = there are too many to be told
}

// latest is when a run last moved.
func latest(in *jobs.Instance) time.Time {
	if n := len(in.Moves); n > 0 {
		return in.Moves[n-1].At
	}
	return in.Created
}

func (u *UI) runRows(list []*jobs.Instance) []runRow {
	rows := make([]runRow, len(list))
	for i, in := range list {
		rows[i] = u.runRow(in)
	}
	return rows
}

func (u *UI) runRow(in *jobs.Instance) runRow {
	row := runRow{Instance: in, Error: in.Problem(), Why: causes[in.Cause], When: latest(in), Text: in.Problem(), Most: max(in.Terms.Retries+1, int(in.Attempt))}
	if in.Waits != "" {
		row.Why = "waits for " + gate(in.Waits)
	}
	for _, m := range in.Moves {
		if m.State == jobs.Processing {
			row.Begun, row.Late = true, m.At.Sub(in.Wanted())
			break
		}
	}
	switch {
	case in.State == jobs.Processing:
		row.Took = u.ops.Now().Sub(in.Started)
	case !in.Started.IsZero():
		row.Took = latest(in).Sub(in.Started)
	}
	if in.State != jobs.Processing && !in.Lingering {
		return row
	}
	now, _ := u.ops.Live().Attempt(in.Tenant, in.ID)
	row.Progress, row.Stuck = now.Progress, now.Stuck
	if row.Progress != nil {
		row.Text = row.Progress.Text
	}
	return row
}
