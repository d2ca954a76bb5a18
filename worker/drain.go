package worker

import (
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// mostReporting is how long a draining worker waits for the store to answer its last reports.
const mostReporting = 5 * time.Second

// drain ends all work: it takes nothing more, gives running handlers their grace, then ends their contexts and gives
// their runs back. Heartbeats continue meanwhile, so that the leases are renewed.
func (w *Worker) drain() {
	w.held.close()
	w.heartbeatNow() // the leader stops making offers
	grace := max(w.config.Grace, 0)
	w.log.Info("worker drains", "attempts", w.Stats().Running, "grace", grace)
	if !w.held.drained(grace) {
		close(w.quit)
		for _, a := range w.held.all() {
			a.end(jobs.ErrShutdown)
		}
		if !w.held.drained(moment + mostReporting) {
			w.log.Warn("worker leaves before the store has answered its last reports", "attempts", len(w.held.all()))
		}
	}
	w.log.Info("worker has drained", "attempts", w.Stats().Running)
}
