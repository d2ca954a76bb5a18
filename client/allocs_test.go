//go:build !race

// The race detector allocates, too.

package client

import (
	"context"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// receipts is a store that takes everything.
type receipts struct {
	metastore.Store
	stands kernel.Summary
}

func (s *receipts) Apply(_ context.Context, batch []kernel.Envelope) []metastore.Result {
	results := make([]metastore.Result, len(batch))
	for i := range results {
		results[i].Summary = &s.stands
	}
	return results
}

func (s *receipts) Definition(context.Context, jobs.Tenant, jobs.Key) (*kernel.Definition, error) {
	return &kernel.Definition{}, nil
}

// What one run of a bulk allocates, without what the store does: its arguments as JSON, and the command.
func TestAllocationsOfABulk(t *testing.T) {
	const n, most = 1000, 5
	c := New(&receipts{stands: kernel.Summary{ID: jobs.ID{1}, State: jobs.Enqueued}}, nil, Config{})
	type args struct {
		Customer string `json:"customer"`
		N        int    `json:"n"`
	}
	list := make([]args, n)
	for i := range list {
		list[i] = args{"c7", i}
	}
	each := testing.AllocsPerRun(20, func() {
		runs, err := jobs.Trigger[args]("j").EnqueueAll(t.Context(), c, list)
		if err != nil || len(runs) != n || runs[n-1].State != jobs.Enqueued {
			t.Fatal(runs, err)
		}
	}) / n
	t.Logf("%.1f allocations", each)
	if each > most {
		t.Errorf("%.1f allocations, want at most %v", each, most)
	}
}
