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
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// allStore accepts everything. A claim is answered with a run that was made before.
type allStore struct{ runs map[jobs.ID]*kernel.Run }

func (s allStore) Apply(_ context.Context, batch []kernel.Envelope) []metastore.Result {
	results := make([]metastore.Result, len(batch))
	for i := range batch {
		if k, is := batch[i].Command.(kernel.Claim); is {
			s.runs[k.ID].Worker = k.Worker
			results[i].Runs = []*kernel.Run{s.runs[k.ID]}
		}
	}
	return results
}

// The allocations of an attempt of a handler that does nothing, from the offer to the report, without store and bus. It
// was 11 when this was written.
func TestAllocationsOfAnAttempt(t *testing.T) {
	const n, most = 500, 14
	store := allStore{map[jobs.ID]*kernel.Run{}}
	list := make([]bus.Offer, n)
	began := time.Now()
	for i := range list {
		id := jobs.NewID(began)
		list[i] = bus.Offer{ID: id, Attempt: 1, Key: "j"}
		store.runs[id] = &kernel.Run{Tenant: jobs.DefaultTenant, ID: id, Key: "j", State: jobs.Processing, Attempt: 1, Args: []byte(`{}`),
			Started: began, Deadline: began.Add(time.Hour)}
	}
	nothing := jobs.TriggeredFunc[json.RawMessage](func(context.Context, json.RawMessage) error { return nil })
	end := membus.New().As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "w"})
	w, err := New(Config{Name: "w"}, store, end, jobs.NewTriggered(nothing, jobs.Options{Key: "j"}))
	if err != nil {
		t.Fatal(err)
	}
	w.pool = newPool(func(a *attempt) { w.attend(t.Context(), a) })
	defer w.pool.dismiss()
	each := testing.AllocsPerRun(20, func() {
		w.accept(t.Context(), list, func() {})
		if !w.held.drained(time.Minute) {
			t.Fatal("some are still under way")
		}
	}) / n
	if s := w.Stats(); s.Claimed != 21*n || s.Finished["success"] != 21*n {
		t.Errorf("stats are %+v", s)
	}
	t.Logf("%.1f allocations", each)
	if each > most {
		t.Errorf("%.1f allocations, want at most %v", each, most)
	}
}
