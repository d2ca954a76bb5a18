package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

// holding is a cluster in which pauses and debug modes come and go while runs of all kinds wait, and leaders follow
// each other. A run is held if and only if something holds it, one second after each change.
type holding struct {
	*fixture
	rnd      *rand.Rand
	seed     uint64
	declared map[jobs.Key]kernel.Declaration
	mu       sync.Mutex
	luck     *rand.Rand // of handlers
	reached  map[string]int
}

// complain reports a violation.
func (w *holding) complain(format string, args ...any) {
	w.t.Errorf("life %d, %s: %s", w.seed, time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// work is a job that takes some seconds, and fails at times.
func (w *holding) work(o jobs.Options) jobs.Job {
	do := func(ctx context.Context) error {
		w.begins(jobs.Attempt(ctx).Run)
		w.mu.Lock()
		takes, fails := time.Duration(w.luck.IntN(12))*time.Second, w.luck.IntN(5) == 0
		w.mu.Unlock()
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return ctx.Err()
		}
		if fails {
			return errors.New("no")
		}
		return nil
	}
	if o.Cron != "" {
		return jobs.NewRecurring(jobs.RecurringFunc(do), o)
	}
	return jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error { return do(ctx) }), o)
}

// begins judges the start of an attempt: the first of a run begins only if nothing held it.
func (w *holding) begins(id jobs.ID) {
	run, err := w.full.Run(context.Background(), jobs.DefaultTenant, id)
	if err != nil || run.Attempt > 1 || run.Origin.ByHand() || run.Forced {
		return
	}
	g, err := w.full.Global(context.Background(), jobs.DefaultTenant)
	if err != nil {
		return
	}
	if debug := g.DebugOf(run.Kind); debug.On && debug.At.Before(run.Started) {
		w.complain("run %s of %s began, and debug mode is on since %s", id, run.Key, debug.At.Format(time.TimeOnly))
	}
	d, err := w.full.Definition(context.Background(), jobs.DefaultTenant, run.Key)
	if err == nil && !d.Gone() && d.UID == run.Job && d.Holds(run.Started) && d.Paused.At.Before(run.Started) {
		w.complain("run %s of %s began, and its job is paused since %s", id, run.Key, d.Paused.At.Format(time.TimeOnly))
	}
}

// live are the runs that have not ended.
func (w *holding) live() (list []*kernel.Run) {
	for _, state := range kernel.LiveStates() {
		for q := (metastore.RunQuery{Tenant: jobs.DefaultTenant, State: state, Limit: metastore.MaxPage}); ; {
			page, err := w.store.Runs(w.ctx, q)
			if err != nil {
				w.t.Fatal(err)
			}
			list = append(list, page.Runs...)
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
		}
	}
	return list
}

// judge compares what is held with what holds.
func (w *holding) judge() {
	now := time.Now()
	g, err := w.store.Global(w.ctx, jobs.DefaultTenant)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, run := range w.live() {
		if !run.Held() {
			continue
		}
		w.reached["held by "+string(run.Cause)]++
		d, err := w.store.Definition(w.ctx, jobs.DefaultTenant, run.Key)
		paused := err == nil && !d.Gone() && d.UID == run.Job && d.Holds(now.Add(-time.Second))
		switch {
		case run.Holds || run.Reserved || run.Waits != "":
			w.complain("held run %s of %s has slots or waits for one", run.ID, run.Key)
		case run.Cause == kernel.ByDebug && !g.DebugOf(run.Kind).On:
			w.complain("run %s of %s is held by a debug mode, and none is on", run.ID, run.Key)
		case run.Cause == kernel.ByPause && !paused:
			w.complain("run %s of %s is held by a pause, and there is none", run.ID, run.Key)
		case run.Cause == kernel.ByPause && !run.RetryAt.Equal(d.Paused.Until):
			w.complain("run %s of %s is held until %v, and the pause lasts until %v", run.ID, run.Key, run.RetryAt, d.Paused.Until)
		}
	}
}

// decided is a run that a change lets go, and how it ends if it does not begin.
type decided struct {
	run   *kernel.Run
	state jobs.State
	by    kernel.Cause
}

// heldNow are the runs that a pause of a job, or the debug mode of a kind, holds.
func (w *holding) heldNow(key jobs.Key, kind kernel.Kind) []*kernel.Run {
	return slices.DeleteFunc(w.live(), func(run *kernel.Run) bool {
		if key != "" {
			return !run.Held() || run.Cause != kernel.ByPause || run.Key != key
		}
		return !run.Held() || run.Cause != kernel.ByDebug || run.Kind != kind
	})
}

// end ends a pause or a debug mode, with a leader or without, and returns what that decides about held runs.
func (w *holding) end(k kernel.Command, key jobs.Key, kind kernel.Kind) (list []decided) {
	uid, now := jobs.ID{}, time.Now()
	if d, err := w.store.Definition(w.ctx, jobs.DefaultTenant, key); err == nil {
		if uid = d.UID; d.Paused == nil {
			return nil
		}
	}
	for _, run := range w.heldNow(key, kind) {
		e := decided{run: run}
		missed := run.Origin.Automatic() && !run.Due.After(now)
		switch k := k.(type) {
		case kernel.Resume:
			switch {
			case run.Job != uid:
				continue
			case missed && (k.From.IsZero() || run.Due.Before(k.From)):
				e.state, e.by = jobs.Skipped, kernel.ByPause
			case !missed && k.Discard:
				e.state, e.by = jobs.Cancelled, kernel.ByPerson
			}
		case kernel.Configure:
			if k.Discard {
				e.state, e.by = jobs.Cancelled, kernel.ByPerson
			}
		}
		list = append(list, e)
	}
	away := w.rnd.IntN(3) == 0
	if away {
		w.reached["ended without a leader"]++
		w.stop() // the leader dies with the commit
		w.full.Apply(w.ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Command: k}})
		time.Sleep(time.Duration(w.rnd.IntN(8)) * time.Second)
		w.start()
	} else {
		w.must(k)
	}
	time.Sleep(time.Second)
	return list
}

// did compares what became of held runs with what was decided.
func (w *holding) did(list []decided) {
	for _, e := range list {
		run := w.run(e.run.ID)
		ended := run.State == jobs.Skipped || run.State == jobs.Cancelled
		w.reached[fmt.Sprintf("%s %s", e.run.Cause, e.state)]++
		switch {
		case e.state != kernel.New && (run.State != e.state || run.Cause != e.by || run.Attempt > 0):
			w.complain("run %s of %s is %s by %s: decided was %s", run.ID, run.Key, run.State, run.Cause, e.state)
		case e.state == kernel.New && ended && (run.Cause == kernel.ByPause || run.Cause == kernel.ByPerson):
			w.complain("run %s of %s is %s by %s: it was to go on", run.ID, run.Key, run.State, run.Cause)
		}
	}
}

// act does something that people do.
func (w *holding) act() {
	var keys []jobs.Key
	for key := range w.declared {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	key := keys[w.rnd.IntN(len(keys))]
	now := time.Now()
	switch n := w.rnd.IntN(20); {
	case n < 4:
		k := kernel.Pause{Key: key}
		if w.rnd.IntN(2) == 0 {
			k.Until = now.Add(time.Duration(5+w.rnd.IntN(40)) * time.Second)
		}
		w.apply(k)
	case n < 9:
		for range 6 { // mostly one that is paused
			if d, err := w.store.Definition(w.ctx, jobs.DefaultTenant, key); err == nil && d.Paused == nil {
				key = keys[w.rnd.IntN(len(keys))]
			}
		}
		k := kernel.Resume{Key: key, Discard: w.rnd.IntN(3) == 0}
		if w.rnd.IntN(2) == 0 {
			k.From = now.Add(-time.Duration(w.rnd.IntN(60)) * time.Second)
		}
		w.did(w.end(k, key, 0))
	case n < 12:
		g, err := w.store.Global(w.ctx, jobs.DefaultTenant)
		if err != nil {
			w.t.Fatal(err)
		}
		kind := []kernel.Kind{kernel.Recurring, kernel.Triggered}[w.rnd.IntN(2)]
		on := new(!g.DebugOf(kind).On)
		k := kernel.Configure{TriggeredDebug: on, Discard: w.rnd.IntN(3) == 0}
		if kind == kernel.Recurring {
			k = kernel.Configure{RecurringDebug: on, Discard: k.Discard}
		}
		if *on {
			if w.rnd.IntN(3) == 0 {
				w.must(k)
			}
			return
		}
		w.did(w.end(k, "", kind))
	case n < 13:
		w.apply(kernel.Edit{Key: key, Set: kernel.Settings{Disabled: new(w.rnd.IntN(3) == 0)}})
	case n < 14: // deleted, and registered again
		w.apply(kernel.Delete{Key: key})
		w.reached["deleted"]++
		time.Sleep(time.Duration(w.rnd.IntN(3)) * time.Second)
		w.must(kernel.Register{Job: w.declared[key], App: "bells", Worker: "w1", Start: true})
	case n < 15:
		w.stop()
		time.Sleep(time.Duration(w.rnd.IntN(12)) * time.Second)
		w.start()
	case n < 16:
		if live := w.live(); len(live) > 0 {
			run := live[w.rnd.IntN(len(live))]
			k := []kernel.Command{kernel.Cancel{ID: run.ID}, kernel.Release{ID: run.ID, Force: true}}[w.rnd.IntN(2)]
			w.apply(k)
		}
	default:
		for range 1 + w.rnd.IntN(4) {
			key := keys[w.rnd.IntN(len(keys))]
			k := kernel.Create{ID: jobs.NewID(now), Key: key, Origin: []kernel.Origin{kernel.FromCode, kernel.FromCode, kernel.FromAPI, kernel.FromPerson}[w.rnd.IntN(4)]}
			if w.rnd.IntN(4) == 0 {
				k.Delay = time.Duration(w.rnd.IntN(20)) * time.Second
			}
			w.apply(k)
		}
	}
}

// calm ends all that holds runs, and judges what is left.
func (w *holding) calm() {
	w.must(kernel.Configure{RecurringDebug: new(false), TriggeredDebug: new(false)})
	for key := range w.declared {
		w.apply(kernel.Resume{Key: key})
		w.apply(kernel.Edit{Key: key, Set: kernel.Settings{Disabled: new(true)}}) // no more due times
	}
	time.Sleep(10 * time.Minute)
	for _, run := range w.live() {
		w.complain("run %s of %s is still %s by %q", run.ID, run.Key, run.State, run.Cause)
	}
}

// Random pauses, debug modes, deletions, cancels and leaders, and runs that wait for whatever runs can wait for: a run
// is held if and only if something holds it, each end of a pause or a debug mode decides about what it held, also if
// the leader dies with that commit, and in the end no run is left.
func TestHeldRunsAgainstWhatHoldsThem(t *testing.T) {
	reached := map[string]int{}
	lives := uint64(tests.Size(8, 60, 1000))
	for seed := range lives {
		synctest.Test(t, func(t *testing.T) {
			h := newFixture(t)
			defer h.close()
			w := &holding{fixture: h, rnd: rand.New(rand.NewPCG(seed, 12)), luck: rand.New(rand.NewPCG(seed, 13)), seed: seed, declared: map[jobs.Key]kernel.Declaration{}, reached: reached}
			shared := []jobs.Limit{{Name: "shared", Max: 2}}
			list := []jobs.Job{
				w.work(jobs.Options{Key: "limited", MaxConcurrency: 1, OnSuccess: []string{"follower"}}),
				w.work(jobs.Options{Key: "replaced", MaxConcurrency: 1, Overlap: jobs.OverlapReplace}),
				w.work(jobs.Options{Key: "repeated", Retries: 2, RetryDelay: 3 * time.Second, Limits: shared}),
				w.work(jobs.Options{Key: "everywhere", Route: jobs.RouteBroadcast, MaxConcurrency: 1}),
				w.work(jobs.Options{Key: "follower", Limits: shared}),
				w.work(jobs.Options{Key: "jitter", Cron: "*/15 * * * * *", Jitter: 12 * time.Second, MaxConcurrency: jobs.None, Misfire: jobs.MisfireAll}),
				w.work(jobs.Options{Key: "due", Cron: "*/20 * * * * *", Limits: shared, Overlap: jobs.OverlapQueue}),
			}
			for _, job := range list {
				d, err := kernel.Declare(job)
				if err != nil {
					t.Fatal(err)
				}
				w.declared[d.Key] = d
			}
			h.worker(worker.Config{Name: "w1", App: "bells", Slots: 2}, list...)
			h.worker(worker.Config{Name: "w2", App: "bells", Slots: 2}, list...)
			time.Sleep(500 * time.Millisecond)
			for range 60 {
				w.act()
				time.Sleep(time.Duration(1+w.rnd.IntN(8)) * time.Second)
				w.judge()
			}
			w.calm()
		})
		if t.Failed() {
			return
		}
	}
	for _, what := range []string{"held by paused", "held by debug", "ended without a leader", "deleted",
		"paused Skipped", "paused Cancelled", "paused New", "debug Cancelled", "debug New"} {
		if reached[what] == 0 && lives >= 60 { // few lives may miss one
			t.Errorf("%q was not reached: the test tests little (%v)", what, reached)
		}
	}
	t.Log(reached)
}
