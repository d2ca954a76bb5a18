package controlplane_test

import (
	"context"
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

// iced is the bus of a control plane that stands still each time that it is about to look after its workers.
type iced struct {
	*cable
	ice atomic.Pointer[chan struct{}]
}

func (i *iced) Call(ctx context.Context, service string, req []byte) ([]byte, error) {
	if ice := i.ice.Load(); ice != nil {
		<-*ice
		ctx = context.WithoutCancel(ctx) // no timer has run meanwhile
	}
	return i.cable.Call(ctx, service, req)
}

// The only node is frozen for longer than a lease, and continues: the heartbeats of that time are still unread, so that
// its workers do not count as dead. They have a lease from then on.
func TestALoneLeaderThatWasFrozenTakesNoRunAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		b := &iced{cable: &cable{Bus: h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"})}}
		h.restartOn(b)
		var j journal
		c := h.cabled(worker.Config{Name: "w1", Slots: 1}, j.work("slow", 2*time.Minute, true, jobs.Options{}))
		id := h.enqueue("slow")
		time.Sleep(20 * time.Second)
		ice := make(chan struct{})
		b.ice.Store(&ice)
		c.cut.Store(true) // nothing of what is sent is read
		time.Sleep(40 * time.Second)
		b.ice.Store(nil)
		close(ice)
		synctest.Wait() // it looks before it has read anything
		c.cut.Store(false)
		time.Sleep(20 * time.Second)
		if run := h.run(id); run.Attempt != 1 || run.State != jobs.Processing || j.starts() != 1 {
			t.Errorf("attempt %d, %s, begun %d times", run.Attempt, run.State, j.starts())
		}
		c.cut.Store(true) // and who falls silent then is noticed as ever
		time.Sleep(20 * time.Second)
		if run := h.run(id); run.Losses != 1 {
			t.Errorf("a worker fell silent, and its run is %s after %d losses", run.State, run.Losses)
		}
	})
}

// lookedAt counts the commits of releases.
type lookedAt struct {
	metastore.Full
	releases atomic.Int64
}

func (l *lookedAt) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	if _, is := batch[0].Command.(kernel.Release); is && l.releases.Add(1) > 5_000 {
		<-ctx.Done()
	}
	return l.Full.Apply(ctx, batch)
}

// A leader whose clock is ahead of the store's finds paused runs due before the store does. It asks again now and then,
// and not at full speed.
func TestAPauseEndsByTheStoresClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		const ahead = 5 * time.Second
		counting := &lookedAt{Full: h.full}
		h.full, h.clock = counting, &metastore.Clock{Wall: func() time.Time { return time.Now().Add(ahead) }}
		h.start()
		var n atomic.Int64
		h.worker(worker.Config{Slots: 1}, jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { n.Add(1); return nil }), jobs.Options{Key: "work"}))
		h.must(kernel.Pause{Key: "work", Until: time.Now().Add(time.Minute)})
		h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "work"})
		time.Sleep(time.Minute - time.Second)
		if n.Load() != 0 {
			t.Fatal("it ran during the pause")
		}
		time.Sleep(2 * time.Second)
		if n.Load() != 1 {
			t.Errorf("a second after the pause it has run %d times", n.Load())
		}
		if got := counting.releases.Load(); got == 0 || got > int64(2*ahead/(50*time.Millisecond)) {
			t.Errorf("the store was asked %d times", got)
		}
	})
}

// A process that fires a share of the jobs and does not lead continues after an outage of the database that would end a
// leader's term.
func TestAShareIsFiredAgainAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBelfry(t)
		defer b.close()
		for _, name := range []string{"n1", "n2"} {
			b.begin(name)
		}
		keys := b.cast(20, "* * * * * *")
		time.Sleep(5 * time.Second)
		away := &b.ringers["n2"].rope.dead
		away.Store(true)
		time.Sleep(30 * time.Second)
		away.Store(false)
		time.Sleep(10 * time.Second)
		from := time.Now()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		by := map[string]int{}
		for _, key := range keys {
			for _, run := range b.strokes(key) {
				if run.Due.After(from) {
					by[run.Moves[0].By]++
				}
			}
		}
		if by["member:n2"] == 0 || by["member:n1"] == 0 {
			t.Errorf("due times by who fires them: %v", by)
		}
	})
}
