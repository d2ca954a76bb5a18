package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// The state follows what happens to the worker, from before its start until after its end.
func TestStateOfAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w := s.new(worker.Config{}, handler(jobs.Options{}, g.run))
		want := func(state worker.State) {
			t.Helper()
			synctest.Wait()
			if got := w.Status().State; got != state {
				t.Errorf("the worker is %s, want %s", got, state)
			}
		}
		want(worker.Starting)
		s.intercept(unavailable(kernel.VerbRegister))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(time.Minute)
		want(worker.Starting)
		s.intercept(nil)
		time.Sleep(time.Minute)
		want(worker.Ready)
		if got := time.Since(w.Status().Heartbeat); got < 0 || got > 3*time.Second {
			t.Errorf("the last heartbeat was answered %v ago", got)
		}

		s.set(func(s *stage) { s.silent = true })
		time.Sleep(4 * time.Second)
		want(worker.Disconnected)
		s.set(func(s *stage) { s.silent = false })
		time.Sleep(4 * time.Second)
		want(worker.Ready)

		s.stop(w, bus.Stop{Rest: bus.RestDrain})
		want(worker.Drained)
		s.stop(w, bus.Stop{Rest: bus.RestResume})
		want(worker.Ready)

		s.create("j", struct{}{})
		g.inside()
		stop()
		want(worker.Leaving)
		g.open <- nil
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want(worker.Stopped)
	})
}

// The status has the attempts that run, with what a page shows of them, and those that ended, the newest first.
func TestStatusOfAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{Slots: 4},
			handler(jobs.Options{Key: "slow", Timeout: time.Hour}, func(ctx context.Context, a json.RawMessage) error {
				jobs.Progress(ctx, 3, 10, "third page")
				return g.run(ctx, a)
			}),
			handler(jobs.Options{Key: "fails"}, func(context.Context, json.RawMessage) error {
				return jobs.Fail("card_declined", errors.New("number 4111"))
			}),
			handler(jobs.Options{Key: "obeys"}, func(ctx context.Context, _ json.RawMessage) error {
				<-ctx.Done()
				return ctx.Err()
			}),
			handler(jobs.Options{Key: "late", Timeout: 2 * time.Second}, func(ctx context.Context, _ json.RawMessage) error {
				<-ctx.Done()
				return ctx.Err()
			}),
			handler(jobs.Options{Key: "quick"}, func(context.Context, json.RawMessage) error { return nil }))

		began := time.Now()
		slow := s.create("slow", struct{}{})
		g.inside()
		time.Sleep(5 * time.Second)
		status := w.Status()
		if len(status.Running) != 1 || len(status.Recent) != 0 || status.Stats.Free != 3 || status.Slots != 4 {
			t.Fatalf("status is %+v", status)
		}
		want := worker.Attempt{Run: slow, Key: "slow", Number: 1, Started: began, Deadline: began.Add(time.Hour), Progress: worker.Progress{Done: 3, Total: 10, Text: "third page"}}
		if got := status.Running[0]; got != want {
			t.Errorf("the attempt is\n%+v, want\n%+v", got, want)
		}

		s.create("fails", struct{}{})
		synctest.Wait()
		obeys := s.create("obeys", struct{}{})
		synctest.Wait()
		run := s.do(kernel.Cancel{ID: obeys})
		s.stop(w, bus.Stop{ID: run.ID, Attempt: 1, By: "person:ann"})
		synctest.Wait()
		s.create("late", struct{}{})
		time.Sleep(3 * time.Second)
		s.create("quick", struct{}{})
		time.Sleep(time.Second)
		g.open <- nil
		synctest.Wait()
		status = w.Status()
		var got []string
		for _, a := range status.Recent {
			got = append(got, string(a.Key)+" "+a.Outcome+" "+a.Code)
			if a.Returned.Before(a.Started) {
				t.Errorf("%s began at %v and ended at %v", a.Key, a.Started, a.Returned)
			}
		}
		if want := []string{"slow success ", "quick success ", "late timeout ", "obeys cancelled ", "fails error card_declined"}; !slices.Equal(got, want) {
			t.Errorf("ended are\n%q, want\n%q", got, want)
		}
		if len(status.Running) != 0 || status.Recent[0].Returned.Sub(began) != 9*time.Second {
			t.Errorf("running are %+v; the last ended at %v", status.Running, status.Recent[0].Returned.Sub(began))
		}

		for range 60 {
			s.create("quick", struct{}{})
			synctest.Wait()
		}
		if got := w.Status().Recent; len(got) != 50 || slices.ContainsFunc(got, func(a worker.Attempt) bool { return a.Key != "quick" }) {
			t.Errorf("%d ended attempts are remembered, want the last 50", len(got))
		}
	})
}

// A handler that ignores the end of its context stays among the running attempts, and shows that it is stuck. A result
// that the store does not accept yet is still running, and says when its handler returned.
func TestStatusOfStuckAndUnreported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{}, handler(jobs.Options{Timeout: time.Second}, g.run),
			handler(jobs.Options{Key: "quick"}, func(context.Context, json.RawMessage) error { return nil }))
		s.create("j", struct{}{})
		time.Sleep(15 * time.Second)
		if got := w.Status().Running; len(got) != 1 || !got[0].Stuck || !got[0].Returned.IsZero() {
			t.Errorf("running are %+v", got)
		}
		g.open <- nil
		synctest.Wait()
		if got := w.Status(); len(got.Running) != 0 || len(got.Recent) != 1 || got.Recent[0].Outcome != "timeout" {
			t.Errorf("status is %+v", got)
		}

		s.intercept(unavailable(kernel.VerbFinish))
		s.create("quick", struct{}{})
		synctest.Wait()
		if got := w.Status(); len(got.Running) != 1 || got.Running[0].Returned.IsZero() || len(got.Recent) != 1 {
			t.Errorf("status is %+v", got)
		}
		s.intercept(nil)
		time.Sleep(time.Minute)
		if got := w.Status(); len(got.Running) != 0 || got.Recent[0].Key != "quick" || got.Recent[0].Outcome != "success" {
			t.Errorf("status is %+v", got)
		}
	})
}

// The status has each job as the program declares it, and the next due time where the declaration determines it.
func TestStatusOfJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is midnight UTC of 2000-01-01
		nothing := jobs.RecurringFunc(func(context.Context) error { return nil })
		at := func(o jobs.Options) jobs.Job { return jobs.NewRecurring(nothing, o) }
		s := newStage(t)
		w, _ := s.start(worker.Config{},
			at(jobs.Options{Key: "cron", Name: "Close the day", Cron: "30 9 * * *", TimeZone: "Europe/Berlin", Retries: 2, Version: 3}),
			at(jobs.Options{Key: "hashed", Cron: "H 0 * * *"}),
			at(jobs.Options{Key: "once", Cron: "2000-02-01T00:00:00Z"}),
			at(jobs.Options{Key: "interval", Every: time.Hour}),
			at(jobs.Options{Key: "first", Every: time.Hour, First: time.Date(2000, 1, 1, 0, 20, 0, 0, time.UTC)}),
			at(jobs.Options{Key: "calendar", Cron: "@daily", Calendars: []string{"holidays"}}),
			at(jobs.Options{Key: "disabled", Cron: "@daily", Disabled: true}),
			at(jobs.Options{Key: "manual"}),
			jobs.NewTriggered(broken{}, jobs.Options{Key: "broken", Timeout: time.Minute}))
		list := w.Status().Jobs
		next := map[jobs.Key]string{}
		for _, j := range list {
			next[j.Key] = j.Next.UTC().Format("01-02 15:04")
			if j.Next.IsZero() {
				next[j.Key] = ""
			}
			if j.Served != (j.Key != "broken") {
				t.Errorf("%s is served: %t", j.Key, j.Served)
			}
		}
		for key, want := range map[jobs.Key]string{"cron": "01-01 08:30", "once": "02-01 00:00", "first": "01-01 00:20",
			"interval": "", "calendar": "", "disabled": "", "manual": "", "broken": ""} {
			if next[key] != want {
				t.Errorf("%s is due at %q, want %q", key, next[key], want)
			}
		}
		if next["hashed"] < "01-01 00:00" || next["hashed"] > "01-02 00:59" {
			t.Errorf("hashed is due at %q", next["hashed"])
		}
		if got, want := list[0], (worker.JobStatus{Key: "cron", Name: "Close the day", Kind: "recurring", Version: 3, Schedule: "30 9 * * *", TimeZone: "Europe/Berlin",
			Next: list[0].Next, Timeout: time.Hour, MaxConcurrency: 1, Retries: 2, Served: true}); got != want {
			t.Errorf("the first job is\n%+v, want\n%+v", got, want)
		}
		if got := list[8]; got.Kind != "triggered" || got.Timeout != time.Minute || got.MaxConcurrency != 0 {
			t.Errorf("the last job is %+v", got)
		}
	})
}
