package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Fault is what happens to a commit on its way.
type Fault string

// The faults.
const (
	Fine       Fault = ""
	Before     Fault = "before"      // it is refused, and not done
	After      Fault = "after"       // it is done, and the answer is lost
	Instead    Fault = "instead"     // it is not done, and the outcome is unknown
	HangBefore Fault = "hang before" // it is not done, and there is no answer until the caller leaves
	HangAfter  Fault = "hang after"  // it is done, and there is no answer until the caller leaves
	Part       Fault = "part"        // the first half of it is done, and the outcome of all is unknown
)

// faultsInTurn are all of them.
var faultsInTurn = []Fault{Before, After, Instead, HangBefore, HangAfter, Part}

// Failing is a store of which commits fail. Its answers then are those that a store may give.
type Failing struct {
	metastore.Store
	// Hung gets a value each time that a commit hangs.
	Hung chan struct{}
	plan func(n int) Fault

	mu   sync.Mutex
	n    int
	last []metastore.Result // of the commands of the last batch that were done
}

// Faulty makes commits of a store fail. The plan returns the fault of the nth, beginning with 0.
func Faulty(s metastore.Store, plan func(n int) Fault) *Failing {
	return &Failing{Store: s, plan: plan, Hung: make(chan struct{}, 1)}
}

// Last is the answers to the commands of the last batch that were done, whether the caller got them or not.
func (f *Failing) Last() []metastore.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// Apply applies a batch, or does not.
func (f *Failing) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	f.mu.Lock()
	fault := f.plan(f.n)
	f.n++
	f.last = nil
	f.mu.Unlock()
	do := func(batch []kernel.Envelope) []metastore.Result {
		results := f.Store.Apply(context.WithoutCancel(ctx), batch)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.last = results
		return results
	}
	switch fault {
	case Before:
		return metastore.Refused(batch, kernel.Refuse(jobs.Unavailable, "not done: a fault of the test"))
	case After, HangAfter:
		do(batch)
	case Part:
		do(batch[:(len(batch)+1)/2])
	case Fine:
		return do(batch)
	}
	if fault == HangBefore || fault == HangAfter {
		f.Hung <- struct{}{}
		<-ctx.Done()
	}
	return metastore.Refused(batch, kernel.Refuse(jobs.Unknown, "outcome unknown: a fault of the test"))
}

// insist sends a batch that fails, and repeats it until it is answered, as couriers do. It returns the answer of the
// time when it was done.
func (tl *telling) insist(batch []kernel.Envelope, before rows) []metastore.Result {
	tl.t.Helper()
	fault := faultsInTurn[tl.count%len(faultsInTurn)]
	s := Faulty(tl.h.Store, func(n int) Fault {
		if n == 0 {
			return fault
		}
		return Fine
	})
	ctx, cancel := context.WithCancel(tl.t.Context())
	defer cancel()
	go func() {
		select {
		case <-s.Hung:
			cancel()
		case <-ctx.Done():
		}
	}()
	want := jobs.Unknown
	if fault == Before {
		want = jobs.Unavailable
	}
	for i, r := range s.Apply(ctx, batch) {
		if !errors.Is(r.Err, want) {
			tl.t.Errorf("command %d, with a fault %s it: %v, want %s", i, fault, r.Err, want)
		}
	}
	done := s.Last()
	if done == nil {
		same(tl.t, fmt.Sprintf("a commit with a fault %s it left a trace", fault), before, rowsOf(tl.h))
	}
	results := s.Apply(tl.t.Context(), batch)
	for i := range done {
		sameAnswer(tl.t, batch[i].Command, done[i], results[i])
		results[i] = done[i]
	}
	return results
}

// impatient has callers that leave while their commits are under way, and return with the same commands until they
// are answered. Each command is done once, whatever answer its callers got when they left.
func impatient(t *testing.T, h Harness) {
	const callers, each = 8, 10
	must(t, h, triggered("wanted", kernel.Settings{MaxConcurrency: new(0)}))
	var left atomic.Int32
	insist := func(rnd *rand.Rand, k kernel.Command) error {
		e := envelope(kernel.DerivedID(fmt.Sprintf("%s %+v", k.Verb(), k)), k)
		for range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			switch stay := rnd.IntN(4); stay {
			case 0: // it waits for the answer
			case 1:
				cancel()
			default:
				time.AfterFunc(time.Duration(rnd.IntN(500*stay*stay))*time.Microsecond, cancel)
			}
			r := h.Store.Apply(ctx, e)[0]
			cancel()
			if !errors.Is(r.Err, jobs.Unknown) && !errors.Is(r.Err, jobs.Unavailable) {
				return r.Err
			}
			left.Add(1)
		}
		return errors.New("no answer came")
	}
	var members sync.WaitGroup
	for c := range callers {
		members.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(c), 20261121))
			for i := range each {
				id := runID(fmt.Sprint(c, "-", i))
				for _, k := range []kernel.Command{
					kernel.Create{ID: id, Key: "wanted", Idempotency: fmt.Sprint(c, "-", i)},
					kernel.Start{ID: id, Worker: "w", Attempt: 1},
					kernel.Finish{ID: id, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess},
				} {
					if err := insist(rnd, k); err != nil {
						t.Errorf("%s: %v", k.Verb(), err)
					}
				}
			}
		})
	}
	members.Wait()
	if left.Load() == 0 {
		t.Error("no caller left")
	}
	var succeeded int64
	counts, err := h.Store.Counts(t.Context(), metastore.CountQuery{Tenant: jobs.DefaultTenant, From: Start.AddDate(-50, 0, 0), To: Start.AddDate(50, 0, 0)})
	for _, t := range counts.Tallies {
		succeeded += t.Runs[jobs.Succeeded]
	}
	if err != nil || succeeded != callers*each || len(counts.Live) > 0 {
		t.Errorf("%d runs succeeded and %v live, of %d that were wanted (%v)", succeeded, counts.Live, callers*each, err)
	}
	invariants(t, nil, rowsOf(h))
}
