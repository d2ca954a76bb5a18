package memstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// BenchmarkCycle is the whole life of a run without disk and bus: create, start and finish, 1,000 to a commit.
func BenchmarkCycle(b *testing.B) {
	st := memstore.Open(memstore.Config{})
	apply := func(batch []kernel.Envelope) {
		for _, r := range st.Apply(context.Background(), batch) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
	say := func(k kernel.Command) kernel.Envelope {
		return kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "client:bench", Command: k}
	}
	apply([]kernel.Envelope{say(kernel.Register{App: "bench", Worker: "w1", Start: true, Job: kernel.Declaration{Key: "noop", Kind: kernel.Triggered}})})
	args := []byte(`{"customer":"c7","cents":990,"note":"a hundred bytes of arguments, more or less, as usual"}`)
	const size = 1000
	creates, starts, finishes := make([]kernel.Envelope, size), make([]kernel.Envelope, size), make([]kernel.Envelope, size)
	b.ReportAllocs()
	for n := 0; n < b.N; n += size {
		for i := range size {
			id := jobs.NewID(time.Now())
			creates[i] = say(kernel.Create{ID: id, Key: "noop", Args: args})
			starts[i] = say(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
			finishes[i] = say(kernel.Finish{ID: id, Worker: "w1", Attempt: 1, Outcome: kernel.OutcomeSuccess})
		}
		apply(creates)
		apply(starts)
		apply(finishes)
	}
}
