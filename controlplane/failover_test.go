package controlplane_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// cutOff is the bus of a worker whose connection is down until a moment.
type cutOff struct {
	bus.Bus
	until atomic.Int64
}

func (c *cutOff) Call(ctx context.Context, service string, request []byte) ([]byte, error) {
	if time.Now().UnixNano() < c.until.Load() {
		return nil, bus.ErrNoReceiver
	}
	return c.Bus.Call(ctx, service, request)
}

// Workers that lost their leader reach the next one within a lease, and live all the while: a broadcast runs on each,
// and no job is stopped for want of a worker. Without any worker a broadcast ends once that is certain.
func TestABroadcastAfterAFailover(t *testing.T) {
	const s = time.Second
	for name, away := range map[string][3]time.Duration{
		"all workers are away":           {6 * s, 6 * s, 6 * s},
		"two of three are away":          {0, 6 * s, 6 * s},
		"one is away for nearly a lease": {0, 0, 13 * s},
		"none is away":                   {},
		"all workers are gone":           {time.Hour, time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFixture(t)
				defer h.close()
				var mu sync.Mutex
				ran := map[string]int{}
				job := jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, a charge) error {
					mu.Lock()
					defer mu.Unlock()
					ran[jobs.Attempt(ctx).Worker[:1]]++
					return nil
				}), jobs.Options{Key: "flush", Route: jobs.RouteBroadcast})
				var ends []*cutOff
				for _, name := range []string{"a", "b", "c"} {
					as := bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: name}
					end := &cutOff{Bus: h.hub.As(as)}
					ends = append(ends, end)
					b := busstore.Heed(end, as)
					w, err := worker.New(worker.Config{Name: name}, h.store, b, job)
					if err != nil {
						t.Fatal(err)
					}
					h.spawn(func(ctx context.Context) error { return errors.Join(w.Run(ctx), b.Close()) })
				}
				time.Sleep(10 * time.Second)
				h.stop()
				for i, end := range ends {
					end.until.Store(time.Now().Add(away[i]).UnixNano())
				}
				h.start()
				time.Sleep(200 * time.Millisecond)
				id := jobs.NewID(time.Now())
				h.must(kernel.Create{ID: id, Key: "flush"})
				time.Sleep(20 * time.Second)
				synctest.Wait()
				run := h.run(id)
				want, state := 3, jobs.Succeeded
				if away[0] > time.Minute {
					want, state = 0, jobs.Skipped
				}
				if len(ran) != want || run.State != state {
					t.Errorf("the broadcast is %s, cause %q, and ran on %d workers, want %s on %d", run.State, run.Cause, len(ran), state, want)
				}
				if n := h.logged.count("a job is stopped"); n > 0 {
					t.Errorf("%d jobs are stopped", n)
				}
			})
		})
	}
}

// grouped is a store whose commits take their time, and whose callers may give up meanwhile.
type grouped struct {
	metastore.Full
	group *metastore.Group
}

func (g *grouped) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	return g.group.Apply(ctx, batch)
}

// A caller that gives up does not take the news of its commit along: the run starts at once, and the sweep finds nothing
// to mend.
func TestARunWhoseCallerGaveUpStartsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		full := h.full
		h.full = &grouped{full, metastore.NewGroup(100, 1, func(batch []kernel.Envelope) []metastore.Result {
			time.Sleep(100 * time.Millisecond)
			return full.Apply(context.Background(), batch)
		})}
		h.start()
		var began time.Time
		h.worker(worker.Config{}, jobs.NewTriggered(jobs.TriggeredFunc[charge](func(context.Context, charge) error {
			began = time.Now()
			return nil
		}), jobs.Options{Key: "charge"}))
		time.Sleep(20 * time.Second)
		ctx, cancel := context.WithTimeout(h.ctx, 50*time.Millisecond)
		defer cancel()
		created := time.Now()
		r := h.store.Apply(ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "client:x", Command: kernel.Create{ID: jobs.NewID(time.Now()), Key: "charge"}}})
		if jobs.CodeOf(r[0].Err) != jobs.Unknown {
			t.Fatalf("the caller gets %v, want an unknown outcome", r[0].Err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if took := began.Sub(created); began.IsZero() || took > 300*time.Millisecond {
			t.Errorf("it began %v after it was created", took)
		}
	})
}
