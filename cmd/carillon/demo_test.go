package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// startDemo is a scheduler that leads, with the jobs of carillon dev.
func startDemo(t *testing.T) *embed.Scheduler {
	t.Helper()
	s, err := embed.Open(t.Context(), embed.Config{Worker: worker.Config{App: "demo", Grace: -1}}, demo{}.jobs()...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		known, _, err := s.Ops().Jobs(t.Context(), ops.Who{}, ops.JobQuery{})
		if err == nil {
			err = s.Ready(t.Context())
		}
		if err == nil && len(known) == len((demo{}).jobs()) {
			return s
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%d jobs are known (%v)", len(known), err)
		}
	}
}

// The first start of dev has a failed run whose error has the fix; the next start adds none.
func TestTheDemoHasAFailureAtOnce(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	s := startDemo(t)
	for range 2 {
		if err := (demo{}).start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.Ops().Runs(t.Context(), ops.Who{}, metastore.RunQuery{Job: jobs.Key(importJob)})
	if err != nil {
		t.Fatal(err)
	}
	var first []jobs.ID
	for _, run := range page.Runs { // the inbox may have brought others
		if strings.Contains(string(run.Args), "0000") {
			first = append(first, run.ID)
		}
	}
	if len(first) != 1 {
		t.Fatalf("%d files wait for who comes first, want 1", len(first))
	}
	run, err := s.Client().Wait(t.Context(), first[0])
	if _, ok := errors.AsType[*jobs.RunError](err); !ok || run.State != jobs.Terminated || !strings.Contains(run.Error, `"decimal": ","`) {
		t.Errorf("it is %v: %q, %v", run.State, run.Error, err)
	}
}

// Handlers of the demo enqueue runs with the client of their worker: a lap of the relay enqueues the next one.
func TestTheDemoRelaysTheBaton(t *testing.T) {
	t.Parallel()
	s := startDemo(t)
	first, err := relayJob.Enqueue(t.Context(), s.Client(), step{Lap: 1})
	if err != nil {
		t.Fatal(err)
	}
	run, err := s.Client().Wait(t.Context(), first.ID)
	if err != nil {
		t.Fatal(err)
	}
	var out struct{ Next jobs.ID }
	if err := json.Unmarshal(run.Result, &out); err != nil {
		t.Fatal(err)
	}
	next, err := s.Ops().Run(t.Context(), ops.Who{}, out.Next)
	if err != nil || string(next.Args) != `{"lap":2}` {
		t.Errorf("the next lap: %+v, %v", next, err)
	}
}
