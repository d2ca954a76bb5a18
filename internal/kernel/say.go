package kernel

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Rows store codes and values, so that a sentence can be reworded without a difference between two programs. Only the
// texts of handlers, workers and users are in rows. Sentences about the rest are composed here.

// Text returns the text of a line of the run's history for users: its text, or a sentence about its cause.
func (run *Run) Text(m *Move) string {
	switch m.Cause {
	case ByOverlap:
		if run.Terms.Overlap == jobs.OverlapQueueOne {
			return "another run of the job waits for a slot of " + GateText(m.Text) + ", and only one may wait"
		}
		return "no free slot of " + GateText(m.Text)
	case ByDeadline:
		text := "not started by " + run.StartBy.Format("2006-01-02T15:04:05.000Z07:00")
		if m.Text != "" {
			text += ": no free slot of " + GateText(m.Text)
		}
		return text
	}
	if m.Cause == ByLoss || m.Cause == ByPoison {
		text := "worker " + m.By + " was lost: its lease expired"
		if m.Text != "" {
			text += "; " + m.Text
		}
		return text
	}
	if m.Text != "" {
		return m.Text
	}
	switch m.Cause {
	case ByTimeout:
		return "timeout after " + run.Terms.Timeout.String()
	case ByReplaced:
		return "run " + strings.TrimPrefix(m.By, "run:") + " of the same job replaced it"
	case ByNoWorker:
		return "no eligible worker was online"
	case ByDepth:
		return strconv.Itoa(MaxDepth) + " runs started each other in a chain: check onSuccess and onFailure of these jobs for a cycle"
	case ByBacklog:
		return "too many runs of the tenant waited: check whether onSuccess, onFailure or after start more runs than workers can run"
	}
	if m.State != jobs.Skipped {
		return ""
	}
	switch m.Cause {
	case ByDisabled:
		return "the job is disabled"
	case ByDebug:
		return "debug mode of recurring jobs is on"
	case ByPause:
		return "the job is paused"
	}
	return ""
}

// GateText describes the limit of a gate.
func GateText(name string) string {
	if limit, ok := strings.CutPrefix(name, LimitGate("")); ok {
		return "limit " + limit
	}
	if app, ok := strings.CutPrefix(name, AppGate("")); ok {
		return "app " + app
	}
	if _, ok := BackfillOf(name); ok {
		return "its backfill"
	}
	if limit, value, ok := KeyOf(name); ok {
		return "limit " + limit + " for " + cmp.Or(value, "runs without a value")
	}
	return "its job"
}

// Why returns why a job is paused, for users.
func (h *Held) Why() string {
	if h.By != ByItself || h.Failed == 0 {
		return h.Reason
	}
	text := strconv.Itoa(h.Failed) + " consecutive runs failed; the last was " + h.Run.String()
	if h.Reason != "" {
		text += ": " + h.Reason
	}
	return text
}

// Problem returns how the last attempt failed, for users: its error, or a sentence about its cause; "" if it did not.
func (run *Run) Problem() string {
	if run.Error != "" {
		return run.Error
	}
	for i := len(run.Moves) - 1; i >= 0 && run.Moves[i].Attempt == run.Attempt; i-- {
		if m := &run.Moves[i]; m.State == jobs.Failed {
			return run.Text(m)
		}
	}
	return ""
}
