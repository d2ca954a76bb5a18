package controlplane_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// stalled is the bus of a leader whose pushes arrive late, as through a connection that hangs, and whose signals are lost.
type stalled struct {
	bus.Bus
	by time.Duration
}

func (s *stalled) Push(ctx context.Context, to bus.Address, push []byte) ([]byte, error) {
	late := make(chan struct{})
	go func() {
		defer close(late)
		time.Sleep(s.by)
		_, _ = s.Bus.Push(context.WithoutCancel(ctx), to, push)
	}()
	select {
	case <-late:
	case <-ctx.Done():
	}
	return nil, context.DeadlineExceeded
}

func (s *stalled) Signal(ctx context.Context, signal bus.Signal) error {
	if signal.Topic == bus.TopicCancel && signal.To != "" {
		return nil
	}
	return s.Bus.Signal(ctx, signal)
}

// Nothing begins after its cancel was acknowledged, however late its push arrives. A caller that does not wait for that
// does not know the outcome, and gets it when it asks again.
func TestNothingBeginsAfterItsCancelWasAcknowledged(t *testing.T) {
	for _, by := range []time.Duration{0, 500 * time.Millisecond, 5500 * time.Millisecond, 9 * time.Second, 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			h := newFixture(t)
			defer h.close()
			h.stop()
			h.restartOn(&stalled{h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"}), by})
			var began time.Time
			h.worker(worker.Config{}, jobs.NewTriggered(jobs.TriggeredFunc[charge](func(ctx context.Context, _ charge) error {
				began = time.Now()
				<-ctx.Done()
				return ctx.Err()
			}), jobs.Options{Key: "charge"}))
			time.Sleep(10 * time.Second)
			id := jobs.NewID(time.Now())
			h.must(kernel.Create{ID: id, Key: "charge"})
			time.Sleep(100 * time.Millisecond)
			if run := h.run(id); run.State != jobs.Processing {
				t.Fatalf("the run is %s", run.State)
			}
			cancel := []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "client:x", Command: kernel.Cancel{ID: id}}}
			ctx, stop := context.WithTimeout(h.ctx, 50*time.Millisecond)
			defer stop()
			if r := h.store.Apply(ctx, cancel); by > time.Second && jobs.CodeOf(r[0].Err) != jobs.Unknown {
				t.Errorf("late by %v: a caller that does not wait gets %v", by, r[0].Err)
			}
			asked := time.Now()
			if r := h.store.Apply(h.ctx, cancel); r[0].Err != nil {
				t.Fatal(r[0].Err)
			}
			acknowledged := time.Now()
			if took := acknowledged.Sub(asked); took > 11*time.Second {
				t.Errorf("late by %v: it took %v", by, took)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if began.After(acknowledged) {
				t.Errorf("late by %v: it began %v after its cancel was acknowledged", by, began.Sub(acknowledged))
			}
		})
	}
}
