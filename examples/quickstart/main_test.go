package main

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// The program works as its comment describes, against a scheduler over NATS.
func TestQuickstart(t *testing.T) {
	nats, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := embed.Start(t.Context(), embed.Config{Bus: func(ctx context.Context, as bus.Principal) (bus.Bus, error) {
		return natsbus.Connect(ctx, nats.URL(), natsbus.Config{As: as})
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, nats.URL(), "", time.Second) }()

	till := await(t, ctx, s, "billing.count-till")
	charge := await(t, ctx, s, "billing.charge")
	if late := till.Started.Sub(till.Due); late < 0 {
		t.Errorf("the till was counted %v early", -late)
	}
	if string(charge.Result) != `{"charged":990}` || charge.Started.Before(charge.Due) {
		t.Errorf("the charge was due at %v, began at %v and left %s", charge.Due, charge.Started, charge.Result)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if err := nats.Stop(); err != nil {
		t.Error(err)
	}
}

// await waits for a run of a job to succeed.
func await(t *testing.T, ctx context.Context, s *embed.Scheduler, key jobs.Key) *kernel.Run {
	t.Helper()
	news := make(chan struct{}, 1)
	watching, done := context.WithCancel(ctx)
	defer done()
	go s.Ops().Watch(watching, ops.Who{}, func(bus.Changes) {
		select {
		case news <- struct{}{}:
		default:
		}
	})
	for {
		page, err := s.Ops().Runs(ctx, ops.Who{}, metastore.RunQuery{Job: key, State: jobs.Succeeded, Limit: 1})
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if len(page.Runs) == 1 {
			return page.Runs[0]
		}
		select {
		case <-news:
		case <-time.After(100 * time.Millisecond): // in case it happened before the watch began
		case <-ctx.Done():
			t.Fatalf("%s did not succeed in time", key)
		}
	}
}
