package controlplane_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// Whatever is made up for, what is due on time runs: with the default overlap, where the slot of a job is taken by a
// run that is on time, or else by one that catches up.
func TestCatchingUpTakesNoSlotFromWhatIsOnTime(t *testing.T) {
	for _, tt := range []struct {
		name       string
		o          jobs.Options
		takes      time.Duration
		away, from time.Duration // no node leads, from then on
		until      time.Duration // the test ends
		runs       int           // of them all succeed
		missed     int
		late       int // runs of the origin misfire
	}{
		{name: "one late, one on time", o: jobs.Options{Cron: "0 */10 * * * *"}, takes: 200 * time.Second,
			from: 44 * time.Minute, away: 16*time.Minute + 10*time.Second, until: 65 * time.Minute, runs: 5, missed: 1},
		{name: "late and early", o: jobs.Options{Cron: "0 */10 * * * *", Early: 10 * time.Minute}, takes: 200 * time.Second,
			from: 44 * time.Minute, away: 28 * time.Minute, until: 79 * time.Minute, runs: 6, missed: 2},
		{name: "late, just before the next", o: jobs.Options{Cron: "0 */10 * * * *"}, takes: 200 * time.Second,
			from: 44 * time.Minute, away: 15*time.Minute + 50*time.Second, until: 69 * time.Minute, runs: 6, late: 1},
		{name: "frozen for 75 s", o: jobs.Options{Cron: "*/10 * * * * *"}, takes: time.Second,
			from: 62 * time.Second, away: 74 * time.Second, until: 169 * time.Second, runs: 6 + 3 + 3, missed: 4},
		{name: "fire_all", o: jobs.Options{Cron: "0 */10 * * * *", Misfire: jobs.MisfireAll}, takes: 70 * time.Second,
			from: time.Minute, away: 54 * time.Minute, until: 69 * time.Minute, runs: 6, late: 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFixture(t)
				defer h.close()
				h.calm()
				tt.o.Key = "report"
				work := jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error {
					time.Sleep(tt.takes)
					return nil
				}), tt.o)
				leave := h.worker(worker.Config{Slots: 9}, work)
				time.Sleep(tt.from)
				leave()
				h.stop()
				time.Sleep(tt.away)
				h.start()
				h.worker(worker.Config{Slots: 9}, work)
				time.Sleep(tt.until - tt.from - tt.away)
				runs, late, missed := h.runs("report"), 0, 0
				for _, run := range runs {
					if run.State != jobs.Succeeded {
						t.Errorf("the run of %s is %s by %q", run.Due.Format(time.TimeOnly), run.State, run.Cause)
					}
					if run.Origin == kernel.FromMisfire {
						late++
					}
				}
				for _, m := range h.ledger("report") {
					missed += int(m.Count)
				}
				if len(runs) != tt.runs || late != tt.late || missed != tt.missed {
					t.Errorf("%d runs, %d of them late, and %d missed; want %d, %d and %d", len(runs), late, missed, tt.runs, tt.late, tt.missed)
				}
			})
		})
	}
}
