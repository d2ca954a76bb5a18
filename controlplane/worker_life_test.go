package controlplane_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// divided are the parts that ran, as worker:index/total, in order.
func (r *whoRan) parted() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for _, x := range r.runs {
		list = append(list, x.worker+":"+x.part)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// One run becomes one for each worker, with index and total. It counts once where runs are counted.
func TestS0_24Broadcast(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		stops := h.fleet("abc", worker.Config{}, r.job(jobs.Options{Key: "charge", Route: jobs.RouteBroadcast, MaxConcurrency: 1}, time.Minute))
		time.Sleep(3 * time.Second) // a new leader asks first who is there
		h.ask("charge", "1", "2")
		if got := r.parted(); got != "a:0/3 b:1/3 c:2/3" {
			t.Errorf("ran %s", got)
		}
		time.Sleep(time.Minute) // the second one has had to wait for all of the first
		if got := len(r.names()); got != 6 {
			t.Errorf("%d parts have run, want 6", got)
		}
		time.Sleep(2 * time.Minute)
		h.over("charge", 6)
		groups := map[jobs.ID]int{}
		for _, run := range h.runs("charge") {
			groups[run.Place.Group]++
			if run.ID != run.Place.Group && run.Parent != run.Place.Group || run.Place.Total != 3 {
				t.Errorf("run %s is part %d of %d of %s, and follows %s", run.ID, run.Place.Index, run.Place.Total, run.Place.Group, run.Parent)
			}
		}
		if len(groups) != 2 {
			t.Errorf("the parts are of %d groups, want 2", len(groups))
		}
		for _, stop := range stops {
			stop()
		}
		h.ask("charge", "3")
		time.Sleep(time.Minute)
		if run := h.runs("charge")[0]; run.State != jobs.Skipped || run.Cause != kernel.ByNoWorker || len(h.runs("charge")) != 7 {
			t.Errorf("with no worker there is a run that is %s by %s", run.State, run.Cause)
		}
	})
}

// Due times are expanded as well, by IDs that follow from them; one part is run again alone, as the same part.
func TestS3_17BroadcastByScheduleAndOnePartAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		h.calm()
		var failing string
		job := jobs.NewRecurring(jobs.RecurringFunc(func(ctx context.Context) error {
			at := jobs.Attempt(ctx)
			r.mu.Lock()
			defer r.mu.Unlock()
			i, n := jobs.Part(ctx)
			r.runs = append(r.runs, ranHere{worker: at.Worker[:1], part: string(rune('0'+i)) + "/" + string(rune('0'+n))})
			if at.Worker[:1] == failing {
				return errors.New("disk full")
			}
			return nil
		}), jobs.Options{Key: "clean", Cron: "0 0 * * * *", Route: jobs.RouteBroadcast})
		stops := h.fleet("ab", worker.Config{}, job)
		r.mu.Lock()
		failing = "b"
		r.mu.Unlock()
		time.Sleep(time.Hour + time.Second)
		if got := r.parted(); got != "a:0/2 b:1/2" {
			t.Errorf("ran %s", got)
		}
		var failed *kernel.Run
		for _, run := range h.runs("clean") {
			if want := kernel.DueID(run.Tenant, run.Job, run.Due, run.Place.Index, 0); run.ID != want {
				t.Errorf("part %d has the ID %s, want %s", run.Place.Index, run.ID, want)
			}
			if run.State == jobs.Terminated {
				failed = run
			}
		}
		if failed == nil || failed.Place.Index != 1 {
			t.Fatalf("part 1 has not failed: %+v", failed)
		}
		stops["b"]()
		r.reset()
		again, err := ops.New(ops.Config{Store: h.store}).Again(h.ctx, ops.Who{Actor: "person:ann", Role: ops.Admin}, failed.ID, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := r.parted(); got != "a:1/2" { // its worker is gone: another takes its part
			t.Errorf("again ran %s", got)
		}
		if run := h.run(again.ID); run.State != jobs.Succeeded || run.Parent != failed.ID {
			t.Errorf("again is %s", run.State)
		}
	})
}

// deafBus is a bus that does not reach one worker, as if it had just died.
type deafBus struct {
	bus.Bus
	deaf string
}

func (d *deafBus) Push(ctx context.Context, to bus.Address, push []byte) ([]byte, error) {
	if strings.HasPrefix(to.Worker, d.deaf+"-") {
		return nil, bus.ErrNoReceiver
	}
	return d.Bus.Push(ctx, to, push)
}

// A run that does not reach the worker that was chosen goes to another at once; nothing is lost, nothing runs twice.
func TestS0_09ARunForAWorkerThatLeavesGoesToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		h.restartOn(&deafBus{h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"}), "a"})
		r := &whoRan{}
		h.fleet("abc", worker.Config{}, r.job(jobs.Options{Key: "charge", Route: jobs.RouteFailover}, 0))
		begin := time.Now()
		h.ask("charge", "1", "2")
		want(t, "a is deaf", r.names(), "bb")
		if d := time.Since(begin); d > time.Second {
			t.Errorf("it took %v", d)
		}
		for _, run := range h.runs("charge") { // the first one spent an attempt's number, and no history
			if run.State != jobs.Succeeded || run.Attempt > 2 || len(run.Moves) != 3 {
				t.Errorf("run %s is %s after %d attempts: %+v", run.ID, run.State, run.Attempt, run.Moves)
			}
		}
	})
	// A worker that is drained in the midst of a flood.
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		stops := h.fleet("abc", worker.Config{Slots: 4}, r.job(jobs.Options{Key: "charge", Route: jobs.RouteRoundRobin}, 50*time.Millisecond))
		h.flood("charge", 300)
		time.Sleep(200 * time.Millisecond)
		stops["b"]()
		time.Sleep(time.Minute)
		if n := len(r.names()); n != 300 {
			t.Errorf("%d runs of 300", n)
		}
		for _, run := range h.runs("charge") { // one that the leaving worker refused, or gave back, is in its second attempt
			if run.State != jobs.Succeeded || run.Attempt > 2 {
				t.Errorf("run %s is %s after %d attempts", run.ID, run.State, run.Attempt)
			}
		}
	})
}

// A worker that is drained takes nothing new, finishes what it runs, stays, and takes runs again when it is resumed;
// another leader knows of it.
func TestS0_07DrainAndResumeFromOutside(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		job := r.job(jobs.Options{Key: "charge"}, time.Minute)
		h.worker(worker.Config{Name: "a", Slots: 4}, job)
		h.ask("charge", "1")
		verbs := ops.New(ops.Config{Store: h.store, Live: planeLive{h}})
		who := ops.Who{Actor: "person:ann", Reason: "new disk", Role: ops.Admin}
		if _, err := verbs.Drain(h.ctx, who, "a", true); err != nil {
			t.Fatal(err)
		}
		h.worker(worker.Config{Name: "b", Slots: 4}, job)
		time.Sleep(time.Second)
		h.ask("charge", "2", "3", "4")
		want(t, "a is drained", r.names(), "abbb")
		h.stop()
		h.start() // another term
		time.Sleep(10 * time.Second)
		h.ask("charge", "5")
		want(t, "a is drained, another leads", r.names(), "abbbb")
		time.Sleep(2 * time.Minute)
		workers := h.cp.Workers("*")
		if len(workers) != 2 || !workers[0].Drained || workers[1].Drained {
			t.Errorf("workers are %+v", workers)
		}
		verbs = ops.New(ops.Config{Store: h.store, Live: planeLive{h}})
		if _, err := verbs.Drain(h.ctx, who, workers[0].Name, false); err != nil {
			t.Fatal(err)
		}
		if _, err := verbs.Drain(h.ctx, who, "unknown", false); !errors.Is(err, jobs.NotFound) {
			t.Errorf("resuming an unknown worker: %v", err)
		}
		time.Sleep(time.Second)
		request, _ := jobs.Trigger[charge]("charge").Request(charge{"6"}, jobs.OnWorker("a"))
		h.must(kernel.CreateOf(request))
		time.Sleep(2 * time.Minute)
		want(t, "a is resumed", r.names(), "abbbba")
		h.over("charge", 6)
		lines := h.audits("worker ")
		if len(lines) != 2 || lines[0].Verb != "drain" || lines[1].Actor != "person:ann" || lines[1].Reason != "new disk" {
			t.Errorf("audits are %+v", lines)
		}
	})
}

// A job that no worker has any more, although others of its app live, is marked stopped, also on its page. Due times
// are decided when a worker has it again.
func TestS0_11AJobThatNoWorkerHasIsStopped(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		old := jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "old", Cron: "0 0 * * * *"})
		h.worker(worker.Config{Name: "a"}, r.job(jobs.Options{Key: "charge"}, 0))
		stop := h.worker(worker.Config{Name: "b"}, old)
		stop()
		stopped := func() bool {
			d, err := h.store.Definition(h.ctx, jobs.DefaultTenant, "old")
			if err != nil {
				t.Fatal(err)
			}
			return !d.Stopped.IsZero()
		}
		time.Sleep(30 * time.Second)
		if stopped() {
			t.Error("it is stopped although a new version may be on its way")
		}
		time.Sleep(time.Minute)
		if !stopped() {
			t.Fatal("it is not stopped")
		}
		e, err := ops.New(ops.Config{Store: h.store, Live: planeLive{h}}).Explain(h.ctx, ops.Who{}, "old")
		if err != nil || !strings.Contains(strings.Join(e.Text, " "), "no online worker of the app default has it any more") {
			t.Errorf("it says %q, %v", e.Text, err)
		}
		time.Sleep(4 * time.Hour)
		if n := len(h.runs("old")); n != 0 {
			t.Errorf("%d runs were made of a stopped job", n)
		}
		h.worker(worker.Config{Name: "b"}, old)
		time.Sleep(time.Minute)
		if stopped() {
			t.Error("it is stopped although a worker has it")
		}
		// fire_once: the newest due time fires, the others are a range.
		if all, missed := h.runs("old"), h.ledger("old"); len(all) != 1 || all[0].State != jobs.Succeeded || len(missed) != 1 || missed[0].Count != 3 {
			t.Errorf("%d runs, missed %+v", len(all), missed)
		}
	})
}

func TestS0_12NewJobsWaitToBeStarted(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		h.must(kernel.Configure{NewJobs: new(kernel.NewDisabled)})
		tick := jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "tick", Every: time.Minute})
		h.worker(worker.Config{}, tick)
		time.Sleep(10*time.Minute + time.Second)
		if all, missed := h.runs("tick"), h.ledger("tick"); len(all) != 0 || len(missed) != 1 || missed[0].Reason != kernel.MissedDisabled {
			t.Errorf("before it was started there are %d runs and %+v", len(all), missed)
		}
		h.must(kernel.Edit{Key: "tick", Set: kernel.Settings{Disabled: new(false)}})
		time.Sleep(5 * time.Minute)
		if n := len(h.runs("tick")); n != 5 {
			t.Errorf("%d runs in five minutes", n)
		}
		h.worker(worker.Config{Name: "w2"}, tick) // registering again stops nothing
		time.Sleep(5 * time.Minute)
		if n := len(h.runs("tick")); n != 10 {
			t.Errorf("%d runs in ten minutes", n)
		}
	})
}

// While a new version is rolled out, its runs go to workers that have it.
func TestS0_12RunsOfANewVersionGoToItsWorkers(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		h.worker(worker.Config{Name: "a"}, r.job(jobs.Options{Key: "charge", Version: 1, CodeVersion: jobs.CodeCurrent}, 0))
		h.ask("charge", "1")
		h.worker(worker.Config{Name: "b"}, r.job(jobs.Options{Key: "charge", Version: 2, CodeVersion: jobs.CodeCurrent}, 0))
		h.ask("charge", "2", "3", "4")
		want(t, "versions", r.names(), "abbb")
		h.over("charge", 4)
	})
}

// A slow job takes its share of a worker's slots, and the others continue.
func TestS3_11ASlowJobHoldsUpNoOther(t *testing.T) { TestS3_21SlotsOfAJob(t) }

func TestS3_21SlotsOfAJob(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		h.worker(worker.Config{Name: "a", Slots: 4}, r.job(jobs.Options{Key: "slow", Slots: 2}, time.Hour), r.job(jobs.Options{Key: "quick"}, time.Millisecond))
		h.flood("slow", 200) // more than the window holds
		time.Sleep(time.Second)
		begin := time.Now()
		h.flood("quick", 500)
		time.Sleep(30 * time.Second)
		n := map[jobs.Key]int{}
		for _, x := range r.all() {
			n[x.key]++
		}
		if n["slow"] != 2 || n["quick"] != 500 {
			t.Errorf("%v after %v: the slow job may take 2 slots of 4, and 500 quick ones were asked for", n, time.Since(begin))
		}
	})
}

type opening struct {
	calls *[]string
	name  string
	fail  bool
}

func (o *opening) Init(context.Context) error {
	*o.calls = append(*o.calls, "init "+o.name)
	if o.fail {
		return errors.New("no database")
	}
	return nil
}
func (o *opening) Close() error              { *o.calls = append(*o.calls, "close "+o.name); return nil }
func (o *opening) Run(context.Context) error { *o.calls = append(*o.calls, "run "+o.name); return nil }

// A job is initialised before it is sent anything, and closed when its worker ends. One that fails is not served,
// and its worker reports that; others continue.
func TestS3_02InitAndClose(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		h.calm()
		var calls []string
		good := jobs.NewRecurring(&opening{&calls, "good", false}, jobs.Options{Key: "good", Cron: "0 0 * * * *"})
		bad := jobs.NewRecurring(&opening{&calls, "bad", true}, jobs.Options{Key: "bad", Cron: "0 0 * * * *"})
		stop := h.worker(worker.Config{Name: "a"}, good, bad)
		if _, err := h.store.Definition(h.ctx, jobs.DefaultTenant, "bad"); !errors.Is(err, jobs.NotFound) {
			t.Errorf("a job that cannot be initialised is registered: %v", err)
		}
		if w := h.cp.Workers("*"); len(w) != 1 || w[0].Faults["bad"] != "no database" || len(w[0].Keys) != 1 {
			t.Errorf("the worker reports %+v", w)
		}
		time.Sleep(time.Hour + time.Second)
		stop()
		if got := strings.Join(calls, ", "); got != "init good, init bad, run good, close good" {
			t.Errorf("called: %s", got)
		}
	})
	w, err := worker.New(worker.Config{}, nil, nil, jobs.NewRecurring(&opening{new([]string), "bad", true}, jobs.Options{Key: "bad"}))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "no database") {
		t.Errorf("a worker without a job that works ends with %v", err)
	}
}

// A waiting run states what it waits for.
func TestS3_12AWaitingRunShowsWhy(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		h.worker(worker.Config{Name: "a", Slots: 1}, r.job(jobs.Options{Key: "gpu", Needs: []string{"gpu"}}, 0), r.job(jobs.Options{Key: "pinned", Pin: "b"}, 0),
			r.job(jobs.Options{Key: "free", Route: jobs.RouteFirst}, time.Hour))
		h.ask("gpu", "1")
		h.ask("pinned", "1")
		h.ask("free", "1", "2")
		time.Sleep(10 * time.Second)
		verbs := ops.New(ops.Config{Store: h.store, Live: planeLive{h}})
		for key, want := range map[jobs.Key]string{"gpu": "1 run waits: no worker with the tag gpu is online.",
			"pinned": "1 run waits: the worker b, to which it is pinned, is offline.", "free": "1 run waits: each worker that may take it has no free slot."} {
			e, err := verbs.Explain(h.ctx, ops.Who{}, key)
			if err != nil || !slices.Contains(e.Text, want) {
				t.Errorf("%s is explained by %q, %v; want %q", key, e.Text, err, want)
			}
		}
	})
}
