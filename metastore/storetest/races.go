package storetest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Races: concurrent racers send commands that depend on the state they read, and only one of them may win.

const racers = 32

type contest struct {
	name string
	// begin prepares the store for the race, and returns each racer's command.
	begin func(t *testing.T, h Harness) func(i int) kernel.Command
	// wins reports whether an answer without an error is that of the winner; nil: each is.
	wins func(e kernel.Effect) bool
	// refused are the answers to losers; none: without an error.
	refused []jobs.Code
}

func isNew(e kernel.Effect) bool { return !e.Existing }

var races = []contest{
	{name: "a run starts once", refused: []jobs.Code{jobs.Stale, jobs.Conflict},
		wins: func(e kernel.Effect) bool { return e.Run().State == jobs.Processing },
		begin: func(t *testing.T, h Harness) func(int) kernel.Command {
			must(t, h, triggered("k", kernel.Settings{}))
			must(t, h, kernel.Create{ID: runID("1"), Key: "k"})
			return func(i int) kernel.Command {
				return kernel.Start{ID: runID("1"), Worker: fmt.Sprint("w", i), Attempt: 1}
			}
		}},
	{name: "a retry starts once", refused: []jobs.Code{jobs.Stale, jobs.Conflict},
		begin: func(t *testing.T, h Harness) func(int) kernel.Command {
			must(t, h, triggered("k", kernel.Settings{Retries: new(3), RetryDelay: new(time.Duration(0))}))
			must(t, h, kernel.Create{ID: runID("1"), Key: "k"})
			must(t, h, kernel.Start{ID: runID("1"), Worker: "w", Attempt: 1})
			must(t, h, kernel.Finish{ID: runID("1"), Worker: "w", Attempt: 1, Outcome: kernel.OutcomeError, Error: "no"})
			return func(i int) kernel.Command {
				return kernel.Start{ID: runID("1"), Worker: fmt.Sprint("w", i), Attempt: 2}
			}
		}},
	{name: "a unique key has one run", wins: isNew,
		begin: func(t *testing.T, h Harness) func(int) kernel.Command {
			must(t, h, triggered("k", kernel.Settings{}))
			return func(i int) kernel.Command { return kernel.Create{ID: runID(fmt.Sprint(i)), Key: "k", Unique: "only"} }
		}},
	{name: "an idempotency key has one run", wins: isNew,
		begin: func(t *testing.T, h Harness) func(int) kernel.Command {
			must(t, h, triggered("k", kernel.Settings{}))
			return func(i int) kernel.Command {
				return kernel.Create{ID: runID(fmt.Sprint(i)), Key: "k", Idempotency: "only"}
			}
		}},
	{name: "a slot goes to one", wins: func(e kernel.Effect) bool { return e.Run().State == jobs.Enqueued },
		begin: func(t *testing.T, h Harness) func(int) kernel.Command {
			must(t, h, triggered("k", kernel.Settings{MaxConcurrency: new(1), Overlap: new(jobs.OverlapSkip)}))
			return func(i int) kernel.Command { return kernel.Create{ID: runID(fmt.Sprint(i)), Key: "k"} }
		}},
	{name: "a job is edited as it was seen by one", refused: []jobs.Code{jobs.Stale},
		begin: func(t *testing.T, h Harness) func(int) kernel.Command {
			seen := must(t, h, triggered("k", kernel.Settings{})).Definition().Revision
			return func(i int) kernel.Command {
				return kernel.Edit{Key: "k", Set: kernel.Settings{Priority: new(i + 1)}, IfRevision: seen}
			}
		}},
	{name: "a job is deleted by one", refused: []jobs.Code{jobs.Stale, jobs.NotFound}, wins: isNew,
		begin: func(t *testing.T, h Harness) func(int) kernel.Command {
			seen := must(t, h, triggered("k", kernel.Settings{})).Definition().Revision
			return func(i int) kernel.Command {
				if i%2 == 0 {
					return kernel.Edit{Key: "k", Set: kernel.Settings{Priority: new(i + 1)}, IfRevision: seen}
				}
				return kernel.Delete{Key: "k", IfRevision: seen}
			}
		}},
	{name: "a due time is fired by one", wins: isNew, refused: []jobs.Code{jobs.Stale},
		begin: func(t *testing.T, h Harness) func(int) kernel.Command {
			r := triggered("k", kernel.Settings{Schedule: new("* * * * * *")})
			r.Job.Kind = kernel.Recurring
			d := must(t, h, r).Definition()
			must(t, h, kernel.Lead{Term: 1, Node: "n"})
			h.Clock.Advance(kernel.DefaultMisfireAfter)
			return func(i int) kernel.Command {
				to := d.Cursor.Add(kernel.DefaultMisfireAfter)
				f := kernel.Fire{Key: "k", Job: d.UID, Revision: d.Revision, Term: 1, From: d.Cursor, To: to}
				f.Due = append(f.Due, to)
				return f
			}
		}},
	{name: "a term has one leader", refused: []jobs.Code{jobs.Stale},
		begin: func(t *testing.T, h Harness) func(int) kernel.Command {
			return func(i int) kernel.Command { return kernel.Lead{Term: 5, Node: fmt.Sprint("n", i)} }
		}},
	{name: "a token's name is taken by one", refused: []jobs.Code{jobs.Conflict},
		begin: func(t *testing.T, h Harness) func(int) kernel.Command {
			return func(i int) kernel.Command {
				id := fmt.Sprintf("token%03d", i)
				return kernel.Grant{Token: kernel.Token{ID: id, Name: "ann", Role: "viewer", Hash: secretOf(id)}}
			}
		}},
}

func race(t *testing.T, h Harness, c contest) {
	if h.Clock == nil {
		t.Skip("the store's clock cannot be set")
	}
	command := c.begin(t, h)
	var won atomic.Int32
	var members sync.WaitGroup
	ready := make(chan struct{})
	for i := range racers {
		k := command(i)
		members.Go(func() {
			<-ready
			e, err := do(t, h, k)
			switch {
			case err != nil && !slices.Contains(c.refused, jobs.CodeOf(err)):
				t.Errorf("one that lost: %v", err)
			case err == nil && (c.wins == nil || c.wins(e)):
				won.Add(1)
			}
		})
	}
	close(ready)
	members.Wait()
	if n := won.Load(); n != 1 {
		t.Errorf("%d won", n)
	}
	invariants(t, nil, rowsOf(h))
}
