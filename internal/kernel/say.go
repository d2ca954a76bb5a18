package kernel

import (
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Rows hold codes and values, so that a sentence can be reworded without a difference between two programs. The texts
// in them are what handlers, workers and people wrote. Sentences about the rest are made here.

// Says is what a line of the run's history says to people: its text, or a sentence about its cause.
func (run *Run) Says(m *Move) string {
	switch m.Cause {
	case ByOverlap:
		if run.Terms.Overlap == jobs.OverlapQueueOne {
			return "another run of the job waits for a slot at " + m.Text + ", and only one may"
		}
		return "no free slot at " + m.Text
	case ByDeadline:
		text := "not started by " + run.StartBy.Format("2006-01-02T15:04:05.000Z07:00")
		if m.Text != "" {
			text += ": no free slot at " + m.Text
		}
		return text
	}
	if m.Cause == ByLoss || m.Cause == ByPoison {
		text := "worker " + m.By + " stopped answering"
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
		return "run " + strings.TrimPrefix(m.By, "run:") + " of the same job took its place"
	case ByNobody:
		return "no worker that may take it was there"
	case ByDepth:
		return strconv.Itoa(MaxDepth) + " runs have brought each other about, one after the other: do these jobs follow each other in a circle?"
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

// Why says to people why a job is paused.
func (h *Held) Why() string {
	if h.By != ByItself || h.Failed == 0 {
		return h.Reason
	}
	text := strconv.Itoa(h.Failed) + " runs in a row failed; the last was " + h.Run.String()
	if h.Reason != "" {
		text += ": " + h.Reason
	}
	return text
}

// Problem is how the last attempt failed, for people: its error, or a sentence about its cause; "" if it did not.
func (run *Run) Problem() string {
	if run.Error != "" {
		return run.Error
	}
	for i := len(run.Moves) - 1; i >= 0 && run.Moves[i].Attempt == run.Attempt; i-- {
		if m := &run.Moves[i]; m.State == jobs.Failed {
			return run.Says(m)
		}
	}
	return ""
}
