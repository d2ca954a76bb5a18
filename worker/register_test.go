package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

func nothing(context.Context) error { return nil }

func recurring(o jobs.Options) jobs.Job {
	if o.Key == "" {
		o.Key = "tick"
	}
	return jobs.NewRecurring(jobs.RecurringFunc(nothing), o)
}

// Mistakes in a worker or its jobs are refused before anything is sent, with the place and the value.
func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  worker.Config
		jobs []jobs.Job
		want string
	}{
		{"no jobs", worker.Config{}, nil, "worker: no jobs"},
		{"too many jobs", worker.Config{}, slices.Repeat([]jobs.Job{recurring(jobs.Options{})}, 10_001), "10001 jobs, at most 10000 are allowed: divide them"},
		{"the same twice", worker.Config{}, []jobs.Job{recurring(jobs.Options{}), recurring(jobs.Options{})}, "job tick is given twice"},
		{"a bad name", worker.Config{Name: "a b"}, []jobs.Job{recurring(jobs.Options{})}, `worker name "a b"`},
		{"a long name", worker.Config{Name: strings.Repeat("x", 190)}, []jobs.Job{recurring(jobs.Options{})}, "at most 180"},
		{"a bad app", worker.Config{App: "a/b"}, []jobs.Job{recurring(jobs.Options{})}, `app "a/b"`},
		{"a bad tenant", worker.Config{Tenant: "*"}, []jobs.Job{recurring(jobs.Options{})}, `tenant "*"`},
		{"negative slots", worker.Config{Slots: -2}, []jobs.Job{recurring(jobs.Options{})}, "invalid slots -2"},
		{"a lease shorter than a heartbeat", worker.Config{Lease: time.Second}, []jobs.Job{recurring(jobs.Options{})}, "the lease must be longer"},
		{"a bad key", worker.Config{}, []jobs.Job{recurring(jobs.Options{Key: "a b"})}, `"a b"`},
		{"a bad cron", worker.Config{}, []jobs.Job{recurring(jobs.Options{Cron: "0 0 32 * *"})}, `job tick: schedule "0 0 32 * *": day-of-month at 4: 32`},
		{"a bad zone", worker.Config{}, []jobs.Job{recurring(jobs.Options{Cron: "@daily", TimeZone: "Mars/Base"})}, "Mars/Base"},
		{"a bad zone without a schedule", worker.Config{}, []jobs.Job{recurring(jobs.Options{TimeZone: "Mars/Base"})}, "Mars/Base"},
		{"a schedule that never fires", worker.Config{}, []jobs.Job{recurring(jobs.Options{Cron: "0 0 30 2 *"})}, `schedule "0 0 30 2 *"`},
		{"bad settings", worker.Config{}, []jobs.Job{recurring(jobs.Options{Retries: -7})}, "job tick: invalid retries -7"},
		{"arguments that are no object", worker.Config{}, []jobs.Job{jobs.NewTriggered(jobs.TriggeredFunc[int](func(context.Context, int) error { return nil }), jobs.Options{Key: "n"})}, "job n: arguments of type int"},
		{"default arguments of another type", worker.Config{}, []jobs.Job{jobs.NewTriggered(jobs.TriggeredFunc[struct{ Cents int }](nil), jobs.Options{Key: "n", Args: map[string]string{"Cents": "many"}})}, "job n: default arguments: Cents: "},
		{"unknown default arguments", worker.Config{}, []jobs.Job{jobs.NewTriggered(jobs.TriggeredFunc[struct{ Cents int }](nil), jobs.Options{Key: "n", Args: map[string]int{"Cents": 1, "Cent": 1}})}, "job n: default arguments: Cent: unexpected property"},
		{"a triggered job with a schedule", worker.Config{}, []jobs.Job{handler(jobs.Options{Cron: "@daily"}, nil)}, "job j: a triggered job has no schedule"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := worker.New(c.cfg, nil, nil, c.jobs...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want it to contain %q", err, c.want)
			}
		})
	}
	_, err := worker.New(worker.Config{}, nil, nil, recurring(jobs.Options{Cron: "0 0 32 * *"}))
	if bad := new(schedule.Error); !errors.As(err, &bad) || bad.Offset != 4 {
		t.Errorf("%v does not name the place", err)
	}
	if _, err := worker.New(worker.Config{}, nil, nil, recurring(jobs.Options{Cron: "2020-01-01T00:00:00Z"})); err != nil {
		t.Errorf("a schedule that has run out keeps an old program from starting: %v", err)
	}
}

// Jobs are registered once at the start, and again, without the rights of a start, when the leader does not know the
// worker or was unavailable.
func TestRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.intercept(unavailable(0))
		w := s.new(worker.Config{App: "billing", Slots: 3, Tags: []string{"gpu"}}, recurring(jobs.Options{Cron: "@hourly", Version: 4}), handler(jobs.Options{}, nil))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(20 * time.Second) // no store: the worker waits for it
		s.intercept(nil)
		time.Sleep(10 * time.Second)
		got := sent[kernel.Register](s)
		if len(got) != 2 || !got[0].Start || got[0].App != "billing" || got[0].Worker != w.Name() || got[0].Job.Version != 4 {
			t.Fatalf("registered %+v", got)
		}
		s.mu.Lock()
		info := s.heartbeats[0].Info
		for _, b := range s.heartbeats[1:] {
			if b.Info != nil {
				t.Error("the worker introduces itself again although it is known")
			}
		}
		s.mu.Unlock()
		if info == nil || info.App != "billing" || info.Slots != 3 || info.Name != w.Name() || info.Label != "w" || info.Keys["tick"] != 4 || len(info.Keys) != 2 || info.Tags[0] != "gpu" {
			t.Errorf("it introduced itself as %+v", info)
		}
		s.set(func(s *stage) { s.forgot = true })
		time.Sleep(4 * time.Second)
		if s.lastHeartbeat().Info == nil && s.forgot {
			t.Error("the worker was not introduced to a new leader")
		}
		if got = sent[kernel.Register](s); len(got) != 4 || got[2].Start || got[3].Start {
			t.Errorf("%d registrations, the last of start %v", len(got), got[len(got)-1].Start)
		}
		s.set(func(s *stage) { s.silent = true })
		time.Sleep(10 * time.Second)
		s.set(func(s *stage) { s.silent = false })
		time.Sleep(4 * time.Second)
		if got = sent[kernel.Register](s); len(got) != 6 {
			t.Errorf("%d registrations after an outage, want 6", len(got))
		}
		cancel()
		s.must(<-ended)
	})
}

func TestARefusedRegistrationEndsTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		first, stop := s.start(worker.Config{}, recurring(jobs.Options{}))
		defer stop()
		w := s.new(worker.Config{}, handler(jobs.Options{Key: "tick"}, nil)) // the same key, another kind
		err := w.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "job tick") {
			t.Errorf("error is %v, want it to name the job", err)
		}
		if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "was called before") {
			t.Error("a worker runs twice")
		}
		if first.Name() == w.Name() {
			t.Errorf("two starts are both called %s", w.Name())
		}
	})
}

// A worker that is stopped before it could begin ends.
func TestNoStoreEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.intercept(func(batch []kernel.Envelope, _ func() []metastore.Result) []metastore.Result {
			return metastore.Refused(batch, kernel.Refuse(jobs.Unknown, "no answer"))
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := s.new(worker.Config{}, recurring(jobs.Options{})).Run(ctx); err == nil || !strings.Contains(err.Error(), "no answer") {
			t.Errorf("error is %v", err)
		}
	})
}

// The bus is closed under the worker: Run returns an error, after it has let its handlers end.
func TestAClosedBusEndsTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		end := s.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "w"})
		finished := false
		w, err := worker.New(worker.Config{Name: "w"}, s, end, handler(jobs.Options{}, func(context.Context, json.RawMessage) error {
			time.Sleep(time.Second)
			finished = true
			return nil
		}))
		s.must(err)
		ended := make(chan error)
		go func() { ended <- w.Run(t.Context()) }()
		synctest.Wait()
		id := s.create("j", struct{}{})
		synctest.Wait()
		s.must(end.Close())
		wantErr(t, <-ended, bus.ErrClosed)
		if s.wantState(id, jobs.Succeeded, ""); !finished {
			t.Error("the handler was broken off")
		}
	})
}
