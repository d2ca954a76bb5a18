//go:build !race

// The race detector allocates, too.

package worker

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/pool"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// allStore accepts everything.
type allStore struct{}

func (allStore) Apply(_ context.Context, batch []kernel.Envelope) []metastore.Result {
	return make([]metastore.Result, len(batch))
}

// The allocations of an attempt of a handler that does nothing, from the push to the report, without store and bus. It
// was 13.1 when this was written: two of them are the run and its arguments.
func TestAllocationsOfAnAttempt(t *testing.T) {
	const n, rounds, most = 500, 20, 15
	nothing := jobs.TriggeredFunc[json.RawMessage](func(context.Context, json.RawMessage) error { return nil })
	end := membus.New().As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "w"})
	w, err := New(Config{Slots: Unlimited, Name: "w"}, allStore{}, end, jobs.NewTriggered(nothing, jobs.Options{Key: "j"}))
	if err != nil {
		t.Fatal(err)
	}
	w.pool = pool.New(func(a *attempt) { w.attend(t.Context(), a) })
	defer w.pool.Dismiss()
	began := time.Now()
	push := bus.Push{Term: 1, Process: w.started.UnixNano(), Heard: w.held.stamp(began), Lease: time.Hour}
	for range n {
		push.Runs = append(push.Runs, &kernel.Run{Tenant: jobs.DefaultTenant, ID: jobs.NewID(began), Key: "j", State: jobs.Processing, Args: []byte(`{}`),
			Due: began, Created: began, Queued: began, Started: began, Deadline: began.Add(time.Hour)})
	}
	var pushes [][]byte
	for attempt := range uint32(rounds + 1) { // one more, to warm up
		for _, run := range push.Runs {
			run.Attempt = attempt + 1
		}
		parcels, _ := push.Pack(end.Limit())
		if len(parcels) != 1 {
			t.Fatalf("%d runs take %d parcels", n, len(parcels))
		}
		pushes = append(pushes, parcels[0].Bytes)
	}
	each := testing.AllocsPerRun(rounds, func() {
		answer, then := w.accept(pushes[0])
		if pushes = pushes[1:]; then == nil {
			t.Fatalf("nothing begins: %s", answer)
		}
		then()
		if !w.held.drained(time.Minute) {
			t.Fatal("some are still under way")
		}
	}) / n
	if s := w.Stats(); s.Begun != (rounds+1)*n || s.Finished["success"] != (rounds+1)*n {
		t.Errorf("stats are %+v", s)
	}
	t.Logf("%.1f allocations", each)
	if each > most {
		t.Errorf("%.1f allocations, want at most %v", each, most)
	}
}
