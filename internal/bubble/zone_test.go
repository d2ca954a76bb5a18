package bubble_test

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/bubble"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// A job without a zone is due on the clocks of the default zone. A new default is a new schedule: it fires nothing by
// itself, and jobs with a zone of their own keep their due times.
func TestTheDefaultZoneMovesDueTimes(t *testing.T) {
	bubble.Run(t, func(t *testing.T, c *bubble.System) {
		c.Start(worker.Config{App: "app"},
			jobs.NewRecurring(&busy{}, jobs.Options{Key: "free", Cron: "0 0 * * * *"}),
			jobs.NewRecurring(&busy{}, jobs.Options{Key: "own", Cron: "0 0 * * * *", TimeZone: "UTC"}))
		set := func(k kernel.Configure) {
			t.Helper()
			if _, err := opsOf(c).Configure(t.Context(), person, k, ""); err != nil {
				t.Fatal(err)
			}
		}
		zone := func(name, app string) kernel.Configure {
			return kernel.Configure{App: app, Defaults: &kernel.Settings{Zone: &name}}
		}
		// Full hours are at half past in Kolkata, and at a quarter past in Kathmandu, by UTC.
		for _, step := range []struct {
			at     time.Duration
			change kernel.Configure
		}{
			{70 * time.Minute, zone("Asia/Kolkata", "")},
			{140 * time.Minute, zone("Asia/Kathmandu", "")}, // 2:15 has passed: the next one is 3:15
			{200 * time.Minute, zone("Asia/Kolkata", "app")},
			{280 * time.Minute, kernel.Configure{App: "app", Reset: []string{"defaults.zone"}}},
			{320 * time.Minute, kernel.Configure{Reset: []string{"defaults.zone"}}},
		} {
			c.PassUntil(day(1).Add(step.at))
			set(step.change)
		}
		c.PassUntil(day(1).Add(370 * time.Minute))
		dues := func(key jobs.Key) (list []string) {
			for _, run := range c.Runs(key) {
				list = append(list, run.Due.Format("15:04"))
			}
			return list
		}
		if got, want := dues("free"), []string{"01:00", "01:30", "03:15", "03:30", "04:30", "05:15", "06:00"}; !slices.Equal(got, want) {
			t.Errorf("without a zone: %q, want %q", got, want)
		}
		if got, want := dues("own"), []string{"01:00", "02:00", "03:00", "04:00", "05:00", "06:00"}; !slices.Equal(got, want) {
			t.Errorf("with a zone of its own: %q, want %q", got, want)
		}
		if missed := c.Missed("free"); len(missed) != 0 {
			t.Errorf("the ledger has %v", missed)
		}
	})
}
