package controlplane_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// counter is a store that counts the commands that it gets.
type counter struct {
	metastore.Full
	mu sync.Mutex
	by map[kernel.Verb]int
}

func (c *counter) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	c.mu.Lock()
	for _, e := range batch {
		c.by[e.Command.Verb()]++
	}
	c.mu.Unlock()
	return c.Full.Apply(ctx, batch)
}

func (c *counter) take() map[kernel.Verb]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := maps.Clone(c.by)
	clear(c.by)
	return was
}

// A suspended tenant costs next to nothing: neither ready runs nor retries, delayed runs or runs under way are tried
// again and again.
func TestASuspendedTenantIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		commands := &counter{Full: h.full, by: map[kernel.Verb]int{}}
		h.full = commands
		h.start()
		acme := in{h, "acme"}
		h.must(kernel.SetTenant{Name: "acme", Create: true, Limits: &kernel.TenantLimits{Starts: jobs.Rate{Max: 1, Per: time.Second}}})
		var done atomic.Bool
		slow := jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { time.Sleep(20 * time.Second); done.Store(true); return nil }), jobs.Options{Key: "slow", OnSuccess: []string{"job"}})
		bad := jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return errors.New("no") }), jobs.Options{Key: "bad", Retries: 9, RetryDelay: 5 * time.Second})
		each := jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "each", Cron: "*/10 * * * * *"})
		acme.worker("w", quick("job"), slow, bad, each)
		acme.create(1, "slow")
		acme.create(3, "bad")
		time.Sleep(5 * time.Second)
		acme.create(200, "job")
		for n := range 50 {
			if r := acme.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "job", Delay: time.Duration(n) * time.Second}); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		time.Sleep(1500 * time.Millisecond)
		h.must(kernel.SuspendTenant{Name: "acme", On: true})
		time.Sleep(time.Second)
		commands.take()
		time.Sleep(time.Minute)
		synctest.Wait()
		got := commands.take()
		if got[kernel.VerbStart] > 5 || got[kernel.VerbFire] > 10 || got[kernel.VerbRelease] > 60 || got[kernel.VerbFinish] > 2 {
			t.Errorf("within a minute: %v", got)
		}
		if !done.Load() {
			t.Error("the run under way did not end")
		}
	})
}
