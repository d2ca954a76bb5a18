//go:build !race

// The race detector allocates, too.

package busstore

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// canned is a bus whose other end always returns the same answer.
type canned struct {
	bus.Calls
	answer []byte
}

func (c canned) Call(context.Context, string, []byte) ([]byte, error) { return c.answer, nil }
func (canned) Limit() int                                             { return 1 << 20 }
func (canned) RequestLimit() int                                      { return bus.MaxRequest }

// Allocations of a command of a large batch on the caller's side: with a receipt as answer no more than the receipt.
func TestAllocationsOfACommand(t *testing.T) {
	const n = 500
	run := &kernel.Run{Tenant: "default", ID: jobs.ID{1}, Key: "charge", App: "billing", State: jobs.Enqueued, Args: []byte(`{}`), Due: time.Unix(1, 0), Attempt: 1}
	stands := run.Summary()
	for name, c := range map[string]struct {
		command kernel.Command
		effect  kernel.Effect
		most    float64
	}{
		"create": {kernel.Create{ID: run.ID, Key: run.Key, Args: run.Args}, kernel.Effect{Summary: &stands}, 2.6},
		"start":  {kernel.Start{ID: run.ID, Worker: "w", Attempt: 1}, kernel.Effect{Runs: []*kernel.Run{run}}, 5},
		"finish": {kernel.Finish{ID: run.ID, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess}, kernel.Effect{Summary: &stands}, 2.6},
	} {
		t.Run(name, func(t *testing.T) {
			answer := encodeAnswers(n, 1<<20, 256, func(int) (*kernel.Effect, error) { return &c.effect, nil })
			s := New(canned{answer: answer}, worker)
			batch := make([]kernel.Envelope, n)
			for i := range batch {
				batch[i] = kernel.Envelope{ID: jobs.ID{byte(i)}, Tenant: "default", Actor: "worker:w", Command: c.command}
			}
			each := testing.AllocsPerRun(20, func() {
				for _, r := range s.Apply(t.Context(), batch) {
					if stands, ok := r.Stands(); !ok || stands.ID != run.ID {
						t.Fatalf("%+v", r)
					}
				}
			}) / n
			t.Logf("%.1f allocations", each)
			if each > c.most {
				t.Errorf("%.1f allocations, want at most %v", each, c.most)
			}
		})
	}
}
