package controlplane_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

// cable is a bus that can be cut: nothing passes in either direction, as if the server were gone.
type cable struct {
	bus.Bus
	cut atomic.Bool
}

var errCut = errors.New("the cable is cut")

func (c *cable) Call(ctx context.Context, service string, req []byte) ([]byte, error) {
	if c.cut.Load() {
		return nil, bus.ErrNoReceiver
	}
	return c.Bus.Call(ctx, service, req)
}

func (c *cable) Push(ctx context.Context, to bus.Address, push []byte) ([]byte, error) {
	if c.cut.Load() {
		return nil, errCut
	}
	return c.Bus.Push(ctx, to, push)
}

func (c *cable) Accept(ctx context.Context, at bus.Address, fn func([]byte) ([]byte, func())) error {
	return c.Bus.Accept(ctx, at, func(push []byte) ([]byte, func()) {
		if c.cut.Load() {
			return []byte("lost"), nil
		}
		return fn(push)
	})
}

func (c *cable) Signal(ctx context.Context, s bus.Signal) error {
	if c.cut.Load() {
		return errCut
	}
	return c.Bus.Signal(ctx, s)
}

func (c *cable) Listen(ctx context.Context, tenant jobs.Tenant, topic bus.Topic, to string, fn func(bus.Signal)) error {
	return c.Bus.Listen(ctx, tenant, topic, to, func(s bus.Signal) {
		if !c.cut.Load() {
			fn(s)
		}
	})
}

// cut store: what a worker sends does not arrive.
type cutStore struct {
	metastore.Store
	c *cable
}

func (s cutStore) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	if s.c.cut.Load() {
		return metastore.Refused(batch, kernel.Refuse(jobs.Unavailable, "the cable is cut"))
	}
	return s.Store.Apply(ctx, batch)
}

// cabled starts a worker whose connection can be cut.
func (h *fixture) cabled(cfg worker.Config, js ...jobs.Job) *cable {
	h.t.Helper()
	c := &cable{Bus: h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: cfg.Name})}
	w, err := worker.New(cfg, cutStore{h.store, c}, c, js...)
	if err != nil {
		h.t.Fatal(err)
	}
	h.spawn(w.Run)
	synctest.Wait()
	return c
}

// journal is what handlers did, outside of the system.
type journal struct {
	mu      sync.Mutex
	started []jobs.AttemptInfo
	ended   []error
	running int
	most    int
}

func (j *journal) start(ctx context.Context) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.started = append(j.started, jobs.Attempt(ctx))
	j.running++
	j.most = max(j.most, j.running)
}

func (j *journal) end(ctx context.Context) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended = append(j.ended, context.Cause(ctx))
	j.running--
}

// peak is how many ran at the same time at most.
func (j *journal) peak() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.most
}

// ends are the causes with which handlers ended.
func (j *journal) ends() []error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.ended)
}

func (j *journal) starts() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.started)
}

// work is a job that takes d, and gives up early if it is polite.
func (j *journal) work(key jobs.Key, d time.Duration, polite bool, o jobs.Options) jobs.Job {
	o.Key = key
	return jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, _ charge) error {
		j.start(ctx)
		defer j.end(ctx)
		if !polite {
			time.Sleep(d)
			return nil
		}
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}), o)
}

func (h *fixture) enqueue(key jobs.Key, how ...jobs.EnqueueOption) jobs.ID {
	h.t.Helper()
	w, err := jobs.Trigger[charge](key).Request(charge{"c7"}, how...)
	if err != nil {
		h.t.Fatal(err)
	}
	h.must(kernel.CreateOf(w))
	return w.ID
}

func TestARunOfALostWorkerIsTakenUpAndItsLateResultRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var j journal
		c1 := h.cabled(worker.Config{Name: "w1", Slots: 1}, j.work("slow", time.Minute, true, jobs.Options{}))
		id := h.enqueue("slow")
		time.Sleep(time.Second)
		c1.cut.Store(true) // it continues, unreachable
		cut := time.Now()
		h.worker(worker.Config{Name: "w2", Slots: 1}, j.work("slow", time.Minute, true, jobs.Options{}))
		for j.starts() < 2 && time.Since(cut) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(cut); took > 20*time.Second {
			t.Errorf("it was taken up after %v", took)
		}
		if run := h.run(id); run.Attempt != 2 || run.State != jobs.Processing || run.Losses != 1 {
			t.Fatalf("attempt %d, %s, %d losses", run.Attempt, run.State, run.Losses)
		}
		time.Sleep(45 * time.Second) // the first attempt has come to its end
		c1.cut.Store(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if run := h.run(id); run.State == jobs.Succeeded && run.Attempt != 2 {
			t.Errorf("the late result of attempt %d was taken", run.Attempt)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if run := h.run(id); run.State != jobs.Succeeded || run.Attempt != 2 {
			t.Errorf("in the end it is %s by attempt %d", run.State, run.Attempt)
		}
	})
}

func TestAnOutageOfTheBusEndsNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var j journal
		// The leader's own end is cut as well: the bus is gone, not a worker.
		cc := &cable{Bus: h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"})}
		h.stop()
		h.restartOn(cc)
		c := h.cabled(worker.Config{Name: "w1", Slots: 200}, j.work("slow", 3*time.Minute, true, jobs.Options{}))
		ids := make([]jobs.ID, 100)
		for i := range ids {
			ids[i] = h.enqueue("slow")
		}
		time.Sleep(5 * time.Second)
		cc.cut.Store(true)
		c.cut.Store(true)
		time.Sleep(time.Minute)
		cc.cut.Store(false)
		c.cut.Store(false)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		for _, id := range ids {
			if run := h.run(id); run.State != jobs.Succeeded || run.Attempt != 1 {
				t.Fatalf("a run is %s after %d attempts", run.State, run.Attempt)
			}
		}
	})
}

func TestAHandlerThatIgnoresItsContextKeepsItsSlot(t *testing.T) {
	for _, how := range []string{"cancel", "timeout"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFixture(t)
				defer func() { h.close(); time.Sleep(10 * time.Minute) }() // until the deaf have returned
				var j journal
				o := jobs.Options{MaxConcurrency: 1, Retries: 1}
				if how == "timeout" {
					o.Timeout = 5 * time.Second
				}
				h.worker(worker.Config{}, j.work("deaf", 2*time.Minute, false, o))
				id := h.enqueue("deaf")
				next := h.enqueue("deaf")
				time.Sleep(2 * time.Second)
				if how == "cancel" {
					h.must(kernel.Cancel{ID: id})
					if run := h.run(id); run.State != jobs.Cancelled {
						t.Errorf("right after the cancel it is %s", run.State)
					}
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if run := h.run(next); run.State != jobs.Enqueued || run.Waits == "" {
					t.Errorf("the next run is %s while the deaf handler still runs", run.State)
				}
				if a, ok := h.cp.Attempt(jobs.DefaultTenant, id); !ok || !a.Stuck || !a.Over {
					t.Errorf("the deaf handler is not shown as stuck: %+v %v", a, ok)
				}
				if j.starts() != 1 {
					t.Errorf("%d handlers have begun", j.starts())
				}
				time.Sleep(4 * time.Minute)
				synctest.Wait()
				if j.peak() != 1 {
					t.Errorf("%d handlers ran at the same time, the limit is 1", j.peak())
				}
				if run := h.run(next); how == "cancel" && run.State != jobs.Succeeded && run.State != jobs.Processing {
					t.Errorf("the next run is %s after the deaf handler returned", run.State)
				}
				if run := h.run(id); how == "timeout" && run.Attempt != 2 {
					t.Errorf("the retry of the timed-out run has not begun: attempt %d, %s", run.Attempt, run.State)
				}
			})
		})
	}
}

func TestACancelReachesTheHandlerWithItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var j journal
		h.worker(worker.Config{}, j.work("slow", time.Hour, true, jobs.Options{}))
		id := h.enqueue("slow")
		time.Sleep(time.Second)
		e := kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann", Reason: "wrong customer", Command: kernel.Cancel{ID: id}}
		if r := h.store.Apply(h.ctx, []kernel.Envelope{e}); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		var c *jobs.CancelledError
		if len(j.ends()) != 1 || !errors.As(j.ends()[0], &c) || c.By != "person:ann" || c.Reason != "wrong customer" {
			t.Fatalf("the handler ended with %v", j.ends())
		}
		if run := h.run(id); run.State != jobs.Cancelled || run.Lingering {
			t.Errorf("it is %s, lingering %v", run.State, run.Lingering)
		}
		if r := h.apply(kernel.Cancel{ID: id}); r.Err != nil || !r.Existing {
			t.Errorf("cancelling twice: %v", r.Err)
		}
	})
}

func TestANewLeaderLosesNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var j journal
		h.worker(worker.Config{Slots: 5}, j.work("slow", time.Minute, true, jobs.Options{}))
		var ids []jobs.ID
		for range 20 {
			ids = append(ids, h.enqueue("slow"))
		}
		time.Sleep(10 * time.Second)
		h.stop()
		time.Sleep(10 * time.Second)
		h.start()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		for _, id := range ids {
			if run := h.run(id); run.State != jobs.Succeeded || run.Attempt != 1 {
				t.Errorf("a run is %s after %d attempts", run.State, run.Attempt)
			}
		}
		if j.peak() != 5 {
			t.Errorf("%d ran at a time in 5 slots", j.peak())
		}
	})
}

func TestADrainedWorkerHandsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var j journal
		stop := h.worker(worker.Config{Name: "w1", Grace: 10 * time.Second}, j.work("slow", time.Minute, true, jobs.Options{}))
		id := h.enqueue("slow")
		time.Sleep(time.Second)
		h.worker(worker.Config{Name: "w2"}, j.work("slow", time.Minute, true, jobs.Options{}))
		begin := time.Now()
		stop()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		run := h.run(id)
		if run.State != jobs.Processing || run.Attempt != 2 || run.Failures != 0 || run.Losses != 0 {
			t.Errorf("%v after the drain began it is %s, attempt %d, %d failures", time.Since(begin), run.State, run.Attempt, run.Failures)
		}
		if !errors.Is(j.ends()[0], jobs.ErrShutdown) {
			t.Errorf("the handler's cause is %v", j.ends()[0])
		}
	})
}

func TestAPoisonJobIsTerminated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var j journal
		id := jobs.ID{}
		for i := range 5 {
			c := h.cabled(worker.Config{Name: "w" + string(rune('1'+i)), Slots: 1}, j.work("killer", time.Hour, true, jobs.Options{}))
			if i == 0 {
				id = h.enqueue("killer")
			}
			time.Sleep(25 * time.Second)
			c.cut.Store(true)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if run := h.run(id); run.State != jobs.Terminated || run.Cause != kernel.ByPoison || run.Attempt != kernel.MaxLosses+1 {
			t.Errorf("it is %s (%s) after %d attempts", run.State, run.Cause, run.Attempt)
		}
	})
}
