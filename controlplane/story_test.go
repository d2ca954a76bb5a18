package controlplane_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// fixture is a whole Carillon in one process, for stories in virtual time: call newFixture inside a synctest bubble.
type fixture struct {
	t      *testing.T
	ctx    context.Context
	full   metastore.Full
	clock  *metastore.Clock
	ahead  atomic.Int64  // nanoseconds by which the test has set the wall clock of the control plane
	logged logged        // its log
	lease  time.Duration // of the control plane and of workers; 0 = the default
	served sync.Once     // the store, for workers that reach it over the bus
	hub    *membus.Hub
	cp     *controlplane.ControlPlane
	store  metastore.Store
	leader atomic.Pointer[metastore.Store] // store, for workers
	stop   func()                          // ends the control plane

	alarm     func(context.Context, alarms.Target, alarms.Message) alarms.Answer // the control plane's Alarm, or nil
	heartbeat func(context.Context) error                                        // the control plane's Heartbeat, or nil
	sinks     []controlplane.AuditSink                                           // of the audit
	retain    metastore.Retainer                                                 // purges finished runs, or nil
	logs      metastore.Logs
	archive   *memstore.Archive
	done      []func()
}

func newFixture(t *testing.T) *fixture {
	ctx, cancel := context.WithCancel(context.Background())
	h := &fixture{t: t, ctx: ctx, hub: membus.New()}
	h.clock = &metastore.Clock{Wall: func() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) }}
	h.archive = memstore.NewArchive(0)
	h.full = &metastore.Local{Engine: memstore.New(memstore.Config{Archive: h.archive}), Now: h.clock.Now}
	h.done = append(h.done, cancel)
	h.start()
	return h
}

// start begins a control plane over what the store holds.
func (h *fixture) start() {
	h.t.Helper()
	h.restartOn(h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"}))
}

// restartOn is start with a bus of the test's choice.
func (h *fixture) restartOn(b bus.Bus) {
	h.t.Helper()
	logger := slog.New(slog.NewTextHandler(io.MultiWriter(&h.logged, h.t.Output()), nil))
	cp, err := controlplane.New(controlplane.Config{Node: "n1", Store: h.full, Clock: h.clock, Bus: b, Logger: logger, Alarm: h.alarm, Heartbeat: h.heartbeat, AuditSinks: h.sinks, Retain: h.retain, Logs: h.logs,
		Lease: h.lease, HeartbeatEvery: h.lease / 5, Sweep: h.lease / 8, Watch: h.lease / 15})
	if err != nil {
		h.t.Fatal(err)
	}
	h.use(cp)
	h.stop = h.spawn(cp.Run)
	synctest.Wait()
}

// calm has the control plane and workers that start later look at each other a twentieth as often: for a test in which
// hours pass and no worker is lost. An hour of the default takes a tenth of a CPU second.
func (h *fixture) calm() {
	h.t.Helper()
	h.stop()
	h.lease = 5 * time.Minute
	h.start()
}

// use makes a control plane the one that the test and its workers use.
func (h *fixture) use(cp *controlplane.ControlPlane) {
	h.cp, h.store = cp, cp.Store()
	h.leader.Store(new(h.store))
}

// logged is a log that can be searched.
type logged struct {
	mu   sync.Mutex
	text []byte
}

func (s *logged) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, p...)
	return len(p), nil
}

func (s *logged) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Count(s.text, []byte(what))
}

// spawn runs fn until the answer is called or the cluster is torn down.
func (h *fixture) spawn(fn func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(h.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := fn(ctx)
		if _, unreported := errors.AsType[*worker.UnreportedError](err); unreported {
			h.t.Logf("ended with %v", err) // what becomes of those runs is what tests look at
		} else if err != nil && !errors.Is(err, context.Canceled) {
			h.t.Errorf("ended with %v", err)
		}
	}()
	stop = func() { cancel(); <-done }
	h.done = append(h.done, stop)
	return stop
}

func (h *fixture) worker(cfg worker.Config, js ...jobs.Job) (stop func()) {
	h.t.Helper()
	if cfg.Name == "" {
		cfg.Name = "w1"
	}
	if h.lease > 0 {
		cfg.Lease, cfg.HeartbeatEvery = h.lease, h.lease/5
	}
	if testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(h.t.Output(), nil))
	}
	as := bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: cfg.Name}
	b := busstore.Heed(h.hub.As(as), as)
	w, err := worker.New(cfg, atLeader{h.full, h}, b, js...)
	if err != nil {
		h.t.Fatal(err)
	}
	stop = h.spawn(func(ctx context.Context) error { return errors.Join(w.Run(ctx), b.Close()) })
	synctest.Wait()
	return stop
}

// atLeader is the store of workers: their commands go to the control plane that began last.
type atLeader struct {
	metastore.Reader
	h *fixture
}

func (a atLeader) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	return (*a.h.leader.Load()).Apply(ctx, batch)
}

func (h *fixture) close() {
	if n := h.cp.Totals().Mended; n > 0 {
		h.t.Errorf("the leader had lost %d ready runs, until the sweep found them", n)
	}
	for i := len(h.done) - 1; i >= 0; i-- {
		h.done[i]()
	}
}

// apply applies one command as a person.
func (h *fixture) apply(k kernel.Command) metastore.Result {
	h.t.Helper()
	r := h.store.Apply(h.ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: k}})[0]
	return r
}

func (h *fixture) must(k kernel.Command) metastore.Result {
	h.t.Helper()
	r := h.apply(k)
	if r.Err != nil {
		h.t.Fatalf("%s: %v", k.Verb(), r.Err)
	}
	return r
}

func (h *fixture) run(id jobs.ID) *kernel.Run {
	h.t.Helper()
	run, err := h.store.Run(h.ctx, jobs.DefaultTenant, id)
	if err != nil {
		h.t.Fatal(err)
	}
	return run
}

// runs are all runs of a job, newest first.
func (h *fixture) runs(key jobs.Key) []*kernel.Run {
	h.t.Helper()
	var all []*kernel.Run
	q := metastore.RunQuery{Tenant: jobs.DefaultTenant, Job: key, Limit: metastore.MaxPage}
	for {
		p, err := h.store.Runs(h.ctx, q)
		if err != nil {
			h.t.Fatal(err)
		}
		all = append(all, p.Runs...)
		if p.Next == "" {
			return all
		}
		q.Cursor = p.Next
	}
}

func states(run *kernel.Run) (s []jobs.State) {
	for _, m := range run.Moves {
		s = append(s, m.State)
	}
	return s
}

func (h *fixture) ledger(key jobs.Key) []*kernel.Missed {
	h.t.Helper()
	d, err := h.store.Definition(h.ctx, jobs.DefaultTenant, key)
	if err != nil {
		h.t.Fatal(err)
	}
	ranges, err := h.store.Ledger(h.ctx, jobs.DefaultTenant, d.UID, 100)
	if err != nil {
		h.t.Fatal(err)
	}
	return ranges
}

type charge struct{ Customer string }

// A delayed job that fails twice, and a recurring job: the whole way, in virtual time.
func TestAJobGoesAllTheWay(t *testing.T) {
	tests.WithoutRace(t)
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.calm()

		var starts []time.Time
		var got []string
		chargeJob := jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, a charge) error {
			starts = append(starts, time.Now())
			got = append(got, a.Customer)
			if jobs.Attempt(ctx).Number < 3 {
				return errors.New("card declined")
			}
			return jobs.Result(ctx, map[string]int{"paid": 7})
		}), jobs.Options{Key: "billing.charge", Retries: 3})
		nights := 0
		nightly := jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { nights++; return nil }),
			jobs.Options{Key: "billing.close-day", Cron: "0 30 2 * * *", TimeZone: "Europe/Berlin"})
		h.worker(worker.Config{Slots: 4}, chargeJob, nightly)

		begin := time.Now()
		request, err := jobs.Trigger[charge]("billing.charge").Request(charge{"c7"}, jobs.After(90*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if run := h.must(kernel.CreateOf(request)).Run(); run.State != jobs.Scheduled {
			t.Fatalf("a delayed run is %s", run.State)
		}
		time.Sleep(27 * time.Hour)
		synctest.Wait()

		run := h.run(request.ID)
		want := []jobs.State{jobs.Scheduled, jobs.Enqueued, jobs.Processing, jobs.Failed, jobs.Processing, jobs.Failed, jobs.Processing, jobs.Succeeded}
		if s := states(run); !equal(s, want) {
			t.Errorf("the delayed run went %v, want %v", s, want)
		}
		if len(starts) != 3 || starts[0].Before(begin.Add(90*time.Minute)) || starts[0].After(begin.Add(90*time.Minute+10*time.Millisecond)) {
			t.Errorf("attempts began at %v, the run was due at %v", starts, begin.Add(90*time.Minute))
		}
		if string(run.Result) != `{"paid":7}` || got[0] != "c7" {
			t.Errorf("result %s, arguments %v", run.Result, got)
		}
		if nights != 2 {
			t.Errorf("the nightly job ran %d times in 27 hours, want 2", nights)
		}
		for _, run := range h.runs("billing.close-day") {
			if run.State != jobs.Succeeded || run.Origin != kernel.FromCron || !run.Due.Equal(run.Created) && run.Created.Sub(run.Due) > 10*time.Millisecond {
				t.Errorf("nightly run %s of %s: %s, %v late", run.Origin, run.Due, run.State, run.Created.Sub(run.Due))
			}
		}
	})
}

func equal[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
