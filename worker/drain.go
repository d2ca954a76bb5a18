package worker

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Kubernetes kills a process 30 s after it asked it to stop. So the whole end of a worker takes 28 s with the default
// grace: after it, handlers have a moment to return, their reports the rest of lastReports, and all that then is still
// sent, goodbyes and log lines, twice lastWords. A shorter grace leaves more time to reports.
const (
	lastReports   = 2 * time.Second
	mostReporting = 5 * time.Second
	lastWords     = 500 * time.Millisecond
)

// lastWait returns how long a draining worker waits, after the grace, for the store to answer its last reports.
func lastWait(grace time.Duration) time.Duration {
	return min(moment+mostReporting, max(lastReports, DefaultGrace+lastReports-grace))
}

// drain ends all work: it accepts nothing more, gives running handlers their grace, then ends their contexts and gives
// their runs back. Heartbeats continue meanwhile, so that the leases are renewed.
func (w *Worker) drain() {
	w.held.close()
	w.heartbeatNow() // the leader sends nothing more
	grace := max(w.config.Grace, 0)
	w.log.Info("worker drains", "attempts", w.Stats().Running, "grace", grace)
	if !w.held.drained(grace) {
		close(w.quit)
		for _, a := range w.held.all() {
			a.end(jobs.ErrShutdown)
		}
		if !w.held.drained(lastWait(grace)) {
			w.log.Warn("worker leaves before the store has answered its last reports", "attempts", len(w.held.all()))
		}
	}
	w.log.Info("worker has drained", "attempts", w.Stats().Running)
}

// UnreportedError names the runs that a worker has ended while it drained, without a confirmation of the control plane.
// It may have their outcomes; otherwise their leases expire, and they start again as their jobs permit.
type UnreportedError struct {
	Runs []jobs.ID
}

// mostNamed bounds the runs in the text of an error.
const mostNamed = 10

func (e *UnreportedError) Error() string {
	named := make([]string, 0, mostNamed)
	for _, id := range e.Runs[:min(len(e.Runs), mostNamed)] {
		named = append(named, id.String())
	}
	more := ""
	if n := len(e.Runs) - mostNamed; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("worker: unknown outcome of %d runs: the control plane did not confirm it before the worker ended: %s%s",
		len(e.Runs), strings.Join(named, ", "), more)
}

// Unwrap returns jobs.Unknown: the code of errors about requests that may or may not have been applied.
func (*UnreportedError) Unwrap() error { return jobs.Unknown }

// unreported returns an UnreportedError, or nil. Call it when the drain has ended.
func (w *Worker) unreported() error {
	var e UnreportedError
	for _, a := range w.held.unreported() {
		e.Runs = append(e.Runs, a.ID)
	}
	if len(e.Runs) == 0 {
		return nil
	}
	slices.SortFunc(e.Runs, func(a, b jobs.ID) int { return bytes.Compare(a[:], b[:]) })
	return &e
}
