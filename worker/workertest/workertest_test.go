package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
	"github.com/carillon-scheduler/carillon/worker/workertest"
)

type charge struct{ Customer string }

var errDeclined = errors.New("declined")

// charging is a job as users write them: its dependencies are in its fields.
type charging struct{ declines map[string]bool }

func (j *charging) Run(ctx context.Context, c charge) error {
	var tries int
	if _, err := jobs.Load(ctx, &tries); err != nil {
		return err
	}
	if err := jobs.Save(ctx, tries+1); err != nil {
		return err
	}
	jobs.Progress(ctx, 1, 2, "asking the bank")
	if j.declines[c.Customer] {
		jobs.Log(ctx).Warn("card declined", "customer", c.Customer, "try", tries+1)
		return fmt.Errorf("charge %s: %w", c.Customer, errDeclined)
	}
	jobs.Progress(ctx, 2, 2, "done")
	return jobs.Result(ctx, "paid in try "+fmt.Sprint(tries+1))
}

func TestOneHandler(t *testing.T) {
	job := jobs.NewTriggered(&charging{declines: map[string]bool{"c8": true}}, jobs.Options{Key: "charge"})
	a := workertest.Run(t, job, charge{"c7"}, workertest.Options{Number: 3, Checkpoint: 2})
	if a.Err != nil || string(a.Result) != `"paid in try 3"` || string(a.Checkpoint) != "3" || a.Log != "" {
		t.Errorf("left behind %+v", a)
	}
	if want := []workertest.Progress{{Done: 1, Total: 2, Text: "asking the bank"}, {Done: 2, Total: 2, Text: "done"}}; !slices.Equal(a.Progress, want) {
		t.Errorf("progress was %v", a.Progress)
	}
	a = workertest.Run(t, job, charge{"c8"}, workertest.Options{})
	if !errors.Is(a.Err, errDeclined) || a.Result != nil || string(a.Checkpoint) != "1" {
		t.Errorf("left behind %+v", a)
	}
	if want := "level=WARN msg=\"card declined\" customer=c8 try=1\n"; a.Log != want {
		t.Errorf("logged %q, want %q", a.Log, want)
	}
}

// A job that closes each day at half past two in Berlin, over the night in which the clocks there are set forward and
// half past two does not exist.
func TestAScheduleOverDays(t *testing.T) {
	tests.WithoutRace(t)
	workertest.Bubble(t, func(t *testing.T, c *workertest.Carillon) {
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		c.PassUntil(time.Date(2000, 3, tests.Size(25, 24, 24), 12, 0, 0, 0, berlin))
		var rang []string
		c.Start(worker.Config{}, jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error {
			rang = append(rang, time.Now().In(berlin).Format("Mon 15:04"))
			return nil
		}), jobs.Options{Key: "close-day", Cron: "0 30 2 * * *", TimeZone: "Europe/Berlin"}))
		c.Pass(tests.Size(20*time.Hour, 96*time.Hour, 96*time.Hour))
		want := tests.Size("Sun 03:00", "Sat 02:30, Sun 03:00, Mon 02:30, Tue 02:30", "Sat 02:30, Sun 03:00, Mon 02:30, Tue 02:30")
		if got := strings.Join(rang, ", "); got != want {
			t.Errorf("rang at %s", got)
		}
		for _, run := range c.Runs("close-day") {
			if run.State != jobs.Succeeded || run.Started.Sub(run.Due) > 10*time.Millisecond || run.Started.Before(run.Due) {
				t.Errorf("run due at %v was started at %v and is %s", run.Due, run.Started, run.State)
			}
		}
	})
}

// Time in which nothing happens costs next to nothing: fewer allocations than seconds pass, so that nothing can have been
// done each second.
func TestIdleTimeIsCheap(t *testing.T) {
	workertest.Bubble(t, func(t *testing.T, c *workertest.Carillon) {
		c.Start(worker.Config{}, jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "daily", Cron: "@daily"}))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const week = 7 * 24 * time.Hour
		c.Pass(week)
		runtime.ReadMemStats(&after)
		if n := len(c.Runs("daily")); n != 7 {
			t.Errorf("%d runs in a week", n)
		}
		if n, most := after.Mallocs-before.Mallocs, uint64(week/time.Second); n > most {
			t.Errorf("%d allocations in a week, want at most %d", n, most)
		}
	})
}

func TestRetriesAndPausesInVirtualTime(t *testing.T) {
	workertest.Bubble(t, func(t *testing.T, c *workertest.Carillon) {
		job := &charging{declines: map[string]bool{"c8": true}}
		stop := c.Start(worker.Config{Slots: 1}, jobs.NewTriggered(job, jobs.Options{Key: "charge", Retries: 5, RetryDelay: time.Hour, RetryDelayMax: time.Hour}),
			jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "tick", Every: time.Hour}))
		run, err := jobs.Trigger[charge]("charge").Enqueue(t.Context(), c, charge{"c8"}, jobs.After(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		c.Pass(90 * time.Minute)
		job.declines["c8"] = false
		r, err := c.Wait(t.Context(), run.ID)
		if err != nil || r.State != jobs.Succeeded || string(r.Result) != `"paid in try 2"` {
			t.Errorf("run is %s with %s: %v", r.State, r.Result, err)
		}
		if log := c.Log(run.ID); len(log) != 1 || log[0] != "WARN card declined customer=c8 try=1" {
			t.Errorf("logged %q", log)
		}
		c.Pause("tick", "holidays")
		before := len(c.Runs("tick"))
		c.Pass(10 * time.Hour)
		if after := len(c.Runs("tick")); after != before {
			t.Errorf("%d runs during the pause", after-before)
		}
		missed := c.Missed("tick")
		if len(missed) != 1 || missed[0].Count != 10 || missed[0].Reason != "paused" {
			t.Errorf("missed %+v", missed)
		}
		c.Pause("charge", "the bank is closed")
		if run, err = jobs.Trigger[charge]("charge").Enqueue(t.Context(), c, charge{"c9"}); err != nil {
			t.Fatal(err)
		}
		c.Pass(time.Hour)
		if runs := c.Runs("charge"); runs[len(runs)-1].State != jobs.Scheduled {
			t.Errorf("in a pause a requested run is %s", runs[len(runs)-1].State)
		}
		c.Resume("charge")
		hour, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if r, err = c.Wait(hour, run.ID); err != nil || r.State != jobs.Succeeded {
			t.Errorf("after a pause a requested run is %s: %v", r.State, err)
		}
		stop()
		stop()
	})
}
