package worker

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// counting is a store that accepts everything, and counts it.
type counting struct{ n int }

func (c *counting) Apply(_ context.Context, batch []kernel.Envelope) []metastore.Result {
	c.n += len(batch)
	return make([]metastore.Result, len(batch))
}

// An attempt whose request to stop, or whose worker's end, comes in the moment in which it is about to begin: its
// handler is not called, nothing waits for its return, and its end is reported once.
func TestEndedAsItBegins(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(*Worker, *attempt)
	}{
		"stopped": {func(_ *Worker, a *attempt) { a.endedBy(&jobs.CancelledError{}) }, func(_ *Worker, a *attempt) { a.end(&jobs.CancelledError{}) }},
		"drained": {func(w *Worker, _ *attempt) { w.held.close() }, func(_ *Worker, a *attempt) { a.end(jobs.ErrShutdown) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				called := jobs.TriggeredFunc[json.RawMessage](func(context.Context, json.RawMessage) error {
					t.Error("the handler is called")
					return nil
				})
				end := membus.New().As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "w"})
				defer end.Close()
				store := new(counting)
				w, err := New(Config{Name: "w", Slots: 1}, store, end, jobs.NewTriggered(called, jobs.Options{Key: "j"}))
				if err != nil {
					t.Fatal(err)
				}
				now := time.Now()
				run := &kernel.Run{Tenant: jobs.DefaultTenant, ID: jobs.NewID(now), Key: "j", Attempt: 1, Started: now, Deadline: now.Add(time.Hour)}
				push := bus.Push{Process: w.started.UnixNano(), Heard: w.held.stamp(now), Lease: 15 * time.Second, Runs: []*kernel.Run{run}}
				begin, _ := w.held.accept(&push, now, func(jobs.Key) bool { return true })
				c.before(w, begin[0])
				w.attend(t.Context(), begin[0])
				c.after(w, begin[0])
				time.Sleep(time.Minute)
				synctest.Wait()
				if st := w.Stats(); begin[0].isStuck() || st.Running != 0 || st.Free != 1 || store.n != 1 {
					t.Errorf("stuck: %v, stats are %+v, %d reports", begin[0].isStuck(), st, store.n)
				}
			})
		})
	}
}
