package client_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A batch ends when it is closed and all its runs are final; then a run of another job has the counts.
func TestBatch(t *testing.T) {
	d := newFixture(t)
	d.do(kernel.Register{App: "default", Worker: "w-1", Start: true, Job: kernel.Declaration{Key: "report", Kind: kernel.Triggered}})
	c, ctx := d.open(), t.Context()
	var requests []jobs.Request
	for n := range 3 {
		r, err := job.Request(args{n})
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, r)
	}
	id, runs, err := c.EnqueueBatch(ctx, client.Batch{Name: "monday", Then: "report", Args: map[string]string{"to": "ann"}}, requests...)
	if err != nil || len(runs) != 3 {
		t.Fatal(runs, err)
	}
	again, err := c.OpenBatch(ctx, client.Batch{Name: "monday", Then: "report"})
	if err != nil || again != id {
		t.Errorf("opened again: %s, want %s (%v)", again, id, err)
	}
	for _, r := range runs {
		if b, err := c.Batch(ctx, id); err != nil || b.Total != 3 || b.Closed.IsZero() || !b.Ended.IsZero() {
			t.Errorf("%+v (%v)", b, err)
		}
		d.do(kernel.Cancel{ID: r.ID})
	}
	b, err := c.Batch(ctx, id)
	if err != nil || b.Cancelled != 3 || b.Ended.IsZero() || len(b.Failures) != 3 || b.Failures[0].Run != runs[0].ID {
		t.Errorf("%+v (%v)", b, err)
	}
	end, err := c.Get(ctx, b.Run)
	if err != nil || end.Job != "report" || !strings.Contains(string(end.Args), `"to":"ann"`) || !strings.Contains(string(end.Args), `"cancelled":3`) {
		t.Errorf("%+v (%v)", end, err)
	}
	if _, err := job.Enqueue(ctx, c, args{4}, client.InBatch(id)); !errors.Is(err, jobs.Conflict) {
		t.Errorf("added after the end: %v", err)
	}
	if _, err := c.OpenBatch(ctx, client.Batch{Then: "none"}); !errors.Is(err, jobs.NotFound) {
		t.Errorf("a job that does not exist: %v", err)
	}
	if _, err := c.OpenBatch(ctx, client.Batch{Then: "report", Args: "text"}); !errors.Is(err, jobs.BadInput) {
		t.Errorf("arguments that are no object: %v", err)
	}
}
