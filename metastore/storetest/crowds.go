package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Crowds: many concurrent commands for the same thing. Here only counts are compared, because the order is undefined.

// crowds plays one crowd in so many.
func crowds(t *testing.T, every int, open func(t *testing.T) Harness) {
	type crowd struct {
		name string
		play func(t *testing.T, h Harness)
	}
	all := []crowd{
		{"callers who leave and come back", impatient},
		{"late waiters block no others", crowdTooLate},
		{"one run of each of many jobs waits", crowdOfJobs},
		{"the oldest of many is replaced", crowdReplaced},
		{"a finish counts once", crowdAtEnd},
	}
	for _, limit := range []int{1, 0, 3} {
		all = append(all, crowd{fmt.Sprintf("limit %d is never exceeded", limit), func(t *testing.T, h Harness) { crowdAtLimit(t, h, limit) }})
	}
	for _, r := range races {
		all = append(all, crowd{r.name, func(t *testing.T, h Harness) { race(t, h, r) }})
	}
	for i, c := range all {
		if i%every == 0 {
			t.Run(c.name, func(t *testing.T) { c.play(t, open(t)) })
		}
	}
}

func envelope(id jobs.ID, c kernel.Command) []kernel.Envelope {
	return []kernel.Envelope{{ID: id, Tenant: jobs.DefaultTenant, Actor: "worker:w", Command: c}}
}

// do applies one command and returns its effect.
func do(t *testing.T, h Harness, c kernel.Command) (kernel.Effect, error) {
	r := h.Store.Apply(t.Context(), envelope(kernel.DerivedID(fmt.Sprintf("%s %+v", c.Verb(), c)), c))[0]
	return r.Effect, r.Err
}

// insist repeats a command while it was not done, or its outcome is unknown, as couriers do.
func insist(t *testing.T, h Harness, c kernel.Command) (e kernel.Effect, err error) {
	for range 100 {
		e, err = do(t, h, c)
		if !errors.Is(err, jobs.Unknown) && !errors.Is(err, jobs.Unavailable) {
			break
		}
	}
	return e, err
}

func must(t *testing.T, h Harness, c kernel.Command) kernel.Effect {
	t.Helper()
	e, err := do(t, h, c)
	if err != nil {
		t.Fatalf("%s: %v", c.Verb(), err)
	}
	return e
}

func triggered(key jobs.Key, s kernel.Settings) kernel.Register {
	return kernel.Register{App: "app", Worker: "w1", Start: true, Job: kernel.Declaration{Key: key, Kind: kernel.Triggered, Code: s}}
}

// crowdAtLimit has twelve workers run thirty runs of a job with a limit. A worker that learns of a slot by an effect
// informs two of them.
func crowdAtLimit(t *testing.T, h Harness, limit int) {
	const runs, workers = 30, 12
	must(t, h, triggered("crowded", kernel.Settings{MaxConcurrency: &limit}))
	ready := make(chan jobs.ID, 2*runs)
	var left sync.WaitGroup
	left.Add(runs)
	note := func(e kernel.Effect) {
		for _, run := range e.Runs {
			if run.State == jobs.Enqueued && run.Waits == "" {
				ready <- run.ID
				ready <- run.ID
			}
		}
	}
	for i := range runs {
		note(must(t, h, kernel.Create{ID: runID(fmt.Sprint(i)), Key: "crowded"}))
	}
	var running, most, won atomic.Int32
	var members sync.WaitGroup
	for w := range workers {
		members.Go(func() {
			name := fmt.Sprint("w", w)
			for id := range ready {
				// Two workers know of this run. If both took a start that was not done for a lost one, neither would
				// run it.
				if _, err := insist(t, h, kernel.Start{ID: id, Worker: name, Attempt: 1}); err != nil {
					if c := jobs.CodeOf(err); c != jobs.Stale && c != jobs.Conflict && c != jobs.NotFound {
						t.Errorf("a lost start: %v", err)
					}
					continue
				}
				won.Add(1)
				for n := running.Add(1); ; {
					if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
						break
					}
				}
				running.Add(-1)
				e, err := do(t, h, kernel.Finish{ID: id, Worker: name, Attempt: 1, Outcome: kernel.OutcomeSuccess})
				if err != nil {
					t.Errorf("finish: %v", err)
				}
				if len(e.Runs) > 0 {
					e.Runs = e.Runs[1:] // without the one that ended
				}
				note(e)
				left.Done()
			}
		})
	}
	left.Wait()
	close(ready)
	members.Wait()
	if won.Load() != runs {
		t.Errorf("%d runs started %d times", runs, won.Load())
	}
	if m := int(most.Load()); limit > 0 && m > limit {
		t.Errorf("%d at once, the limit is %d", m, limit)
	}
	invariants(t, nil, rowsOf(h))
}

func crowdAtEnd(t *testing.T, h Harness) {
	must(t, h, triggered("ending", kernel.Settings{Retries: new(5)}))
	id := runID("1")
	must(t, h, kernel.Create{ID: id, Key: "ending"})
	must(t, h, kernel.Start{ID: id, Worker: "w", Attempt: 1})
	var members sync.WaitGroup
	for range 16 {
		members.Go(func() {
			if _, err := do(t, h, kernel.Finish{ID: id, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeError, Error: "no"}); err != nil {
				t.Error(err)
			}
		})
	}
	members.Wait()
	run, err := h.Store.Run(t.Context(), jobs.DefaultTenant, id)
	if err != nil || run.State != jobs.Failed || run.Failures != 1 {
		t.Errorf("one failure, reported 16 times: %+v, %v", run, err)
	}
}

// crowdTooLate has more runs wait at a gate than a commit looks at, all of them too late but the last ones. The sweep
// gives the free slots to those.
func crowdTooLate(t *testing.T, h Harness) {
	const slots, late, timely = 20, 600, 50
	if h.Clock == nil || h.agenda() == nil {
		t.Skip("the store's clock cannot be set, or it has no leader")
	}
	must(t, h, triggered("crowded", kernel.Settings{Limits: &[]jobs.Limit{{Name: "customer", Max: slots, By: "args.c"}}}))
	made := 0
	create := func(n int, within *time.Duration) (ids []jobs.ID) {
		batch := make([]kernel.Envelope, n)
		for i := range batch {
			made++
			// Of two that are due at the same time, the lower goes first.
			ids = append(ids, jobs.ID{1, byte(made >> 8), byte(made)})
			batch[i] = envelope(ids[i], kernel.Create{ID: ids[i], Key: "crowded", Args: []byte(`{"c":"7"}`), StartWithin: within})[0]
		}
		mustAll(t, h, batch)
		return ids
	}
	holders := create(slots, nil)
	create(late, new(time.Second))
	last := create(timely, nil)
	var starts, ends []kernel.Envelope
	for i, id := range holders {
		starts = append(starts, envelope(jobs.ID{2, byte(i)}, kernel.Start{ID: id, Worker: "w", Attempt: 1})...)
		ends = append(ends, envelope(jobs.ID{3, byte(i)}, kernel.Finish{ID: id, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess})...)
	}
	mustAll(t, h, starts)
	h.Clock.Advance(5 * time.Second)
	mustAll(t, h, ends) // in one commit, as a worker reports them
	for range 2 + late/100 {
		sweepGates(t, h)
	}
	can := 0
	for _, id := range last {
		run, err := h.Store.Run(t.Context(), jobs.DefaultTenant, id)
		if err != nil {
			t.Fatal(err)
		}
		if run.Ready() {
			can++
		}
	}
	if can != slots {
		t.Errorf("of %d runs that are not late %d are ready, and there are %d slots", timely, can, slots)
	}
	invariants(t, nil, rowsOf(h))
}

// sweepGates gives free slots to waiting runs, as the leader's sweep does.
func sweepGates(t *testing.T, h Harness) {
	t.Helper()
	gates, err := h.agenda().Unserved(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	var hands []kernel.Envelope
	for _, g := range gates {
		hands = append(hands, kernel.Envelope{ID: jobs.NewID(Start), Tenant: g.Tenant, Actor: "leader", Command: kernel.Hand{Gate: g.Name}})
	}
	mustAll(t, h, hands)
}

func mustAll(t *testing.T, h Harness, batch []kernel.Envelope) {
	t.Helper()
	for i, r := range h.Store.Apply(t.Context(), batch) {
		if r.Err != nil {
			t.Fatalf("%s: %v", batch[i].Command.Verb(), r.Err)
		}
	}
}

// crowdOfJobs has more jobs share a limit than a row could list: of each, one run waits.
func crowdOfJobs(t *testing.T, h Harness) {
	const jobsThere = 130
	var registers, creates []kernel.Envelope
	create := func(name string, i int) {
		id := runID(name)
		creates = append(creates, envelope(id, kernel.Create{ID: id, Key: jobs.Key(fmt.Sprint("k", i))})...)
	}
	create("holder", 0)
	for i := range jobsThere {
		k := triggered(jobs.Key(fmt.Sprint("k", i)), kernel.Settings{Limits: &[]jobs.Limit{{Name: "db", Max: 1}}, Overlap: new(jobs.OverlapQueueOne)})
		registers = append(registers, envelope(jobs.ID{1, byte(i)}, k)...)
		create(fmt.Sprint("of ", i), i)
	}
	create("second", 0)
	mustAll(t, h, registers)
	mustAll(t, h, creates)
	for name, want := range map[string]jobs.State{"holder": jobs.Enqueued, "of 0": jobs.Enqueued, "second": jobs.Skipped} {
		if run, err := h.Store.Run(t.Context(), jobs.DefaultTenant, runID(name)); err != nil || run.State != want {
			t.Errorf("%s of k0 is %+v, want %s: %v", name, run, want, err)
		}
	}
	invariants(t, nil, rowsOf(h))
}

// crowdReplaced has a job with more slots than a row used to list, all of them taken: one more run replaces the oldest.
func crowdReplaced(t *testing.T, h Harness) {
	const slots = 130
	must(t, h, triggered("k", kernel.Settings{MaxConcurrency: new(slots), Overlap: new(jobs.OverlapReplace)}))
	var batch []kernel.Envelope
	for i := range slots + 2 {
		id := jobs.ID{1, byte(i)}
		batch = append(batch, envelope(id, kernel.Create{ID: id, Key: "k"})...)
	}
	mustAll(t, h, batch)
	for i := range slots + 2 {
		run, err := h.Store.Run(t.Context(), jobs.DefaultTenant, jobs.ID{1, byte(i)})
		if err != nil {
			t.Fatal(err)
		}
		if replaced := run.State == jobs.Skipped && run.Cause == kernel.ByReplaced; replaced != (i < 2) {
			t.Errorf("run %d of %d is %s, by %q", i, slots, run.State, run.Cause)
		}
	}
	invariants(t, nil, rowsOf(h))
}
