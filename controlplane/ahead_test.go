package controlplane_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

// recorder is a store that remembers what was applied together, and may lose answers.
type recorder struct {
	metastore.Full
	mu   sync.Mutex
	seen []string                                         // the verbs of each batch that creates, starts or ends runs
	lost func(batch []kernel.Envelope) (before, all bool) // answers are lost, of what was not applied, or was
}

func (r *recorder) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	var verbs []string
	for _, e := range batch {
		switch v := e.Command.Verb(); v {
		case kernel.VerbCreate, kernel.VerbFire, kernel.VerbStart, kernel.VerbFinish:
			verbs = append(verbs, v.String())
		}
	}
	r.mu.Lock()
	lost := r.lost
	if len(verbs) > 0 {
		r.seen = append(r.seen, strings.Join(verbs, " "))
	}
	r.mu.Unlock()
	before, after := false, false
	if lost != nil {
		before, after = lost(batch)
	}
	if before {
		return metastore.Refused(batch, kernel.OutcomeUnknown("lost"))
	}
	results := r.Full.Apply(ctx, batch)
	if after {
		return metastore.Refused(batch, kernel.OutcomeUnknown("lost"))
	}
	return results
}

// take returns what was applied since it was called last.
func (r *recorder) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := strings.Join(r.seen, ", ")
	r.seen = nil
	return s
}

// recorded is a fixture with a recorder. Its job "job" has run once.
func recorded(t *testing.T, slots int, run time.Duration, o jobs.Options) (*fixture, *recorder, *journal) {
	h := newFixture(t)
	h.stop()
	r := &recorder{Full: h.full}
	h.full = r
	h.start()
	j := new(journal)
	h.worker(worker.Config{Slots: slots}, j.work("job", run, true, o))
	h.enqueue("job")
	time.Sleep(run + time.Second)
	synctest.Wait()
	r.take()
	return h, r, j
}

// A run that nothing holds starts in the entry that creates it.
func TestStartInTheEntryThatCreates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, r, j := recorded(t, 2, time.Second, jobs.Options{})
		defer h.close()
		id := h.enqueue("job")
		synctest.Wait()
		if got := r.take(); got != "create start" || j.starts() != 2 {
			t.Errorf("applied %s; %d have begun", got, j.starts())
		}
		if run := h.run(id); run.State != jobs.Processing || run.Attempt != 1 || run.Worker == "" {
			t.Errorf("the run is %s in attempt %d of %q", run.State, run.Attempt, run.Worker)
		}
		h.enqueue("job") // the last slot
		waits := h.enqueue("job")
		synctest.Wait()
		if got := r.take(); got != "create start, create" || h.run(waits).State != jobs.Enqueued {
			t.Errorf("without a slot: applied %s, the run is %s", got, h.run(waits).State)
		}
		time.Sleep(1500 * time.Millisecond) // it has started, and others may again
		r.take()
		h.enqueue("job")
		synctest.Wait()
		if got := r.take(); got != "create start" {
			t.Errorf("with a slot again: applied %s", got)
		}
		time.Sleep(5 * time.Second)
		for _, run := range h.runs("job") {
			if run.State != jobs.Succeeded || run.Attempt != 1 {
				t.Errorf("run %s ended as %s in attempt %d", run.ID, run.State, run.Attempt)
			}
		}
		if j.starts() != 5 || j.peak() > 2 {
			t.Errorf("%d have begun, %d at once", j.starts(), j.peak())
		}
	})
}

// What was true of the last run may not be of the next. The store decides, and the run goes its way.
func TestStartAheadIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change kernel.Command
		then   jobs.State // of the run
		undo   kernel.Command
	}{
		"it needs a tag now": {kernel.Edit{Key: "job", Set: kernel.Settings{Needs: new([]string{"gpu"})}}, jobs.Enqueued, kernel.Edit{Key: "job", Clear: []string{"needs"}}},
		"it is paused":       {kernel.Pause{Key: "job"}, jobs.Scheduled, kernel.Resume{Key: "job"}},
		"its runs are held":  {kernel.Configure{TriggeredDebug: new(true)}, jobs.Scheduled, kernel.Configure{TriggeredDebug: new(false)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, r, j := recorded(t, 2, time.Second, jobs.Options{})
				defer h.close()
				h.must(c.change)
				id := h.enqueue("job")
				time.Sleep(time.Second)
				synctest.Wait()
				if got := r.take(); !strings.HasPrefix(got, "create start") || h.run(id).State != c.then || j.starts() != 1 {
					t.Errorf("applied %s; the run is %s, %d have begun", got, h.run(id).State, j.starts())
				}
				h.enqueue("job")
				synctest.Wait()
				if got := r.take(); !strings.HasPrefix(got, "create") || strings.Contains(got, "create start") {
					t.Errorf("the next time: applied %s", got)
				}
				h.must(c.undo)
				next := h.enqueue("job")
				time.Sleep(3 * time.Second)
				synctest.Wait()
				if run := h.run(next); run.State != jobs.Succeeded || run.Attempt != 1 {
					t.Errorf("afterwards: the next run is %s in attempt %d", run.State, run.Attempt)
				}
				r.take()
				h.enqueue("job")
				synctest.Wait()
				if got := r.take(); got != "create start" {
					t.Errorf("afterwards: applied %s", got)
				}
			})
		})
	}
}

// A limit holds for runs that start in the entry that creates them, too.
func TestStartAheadAtALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, r, j := recorded(t, 5, time.Second, jobs.Options{})
		defer h.close()
		h.must(kernel.Edit{Key: "job", Set: kernel.Settings{MaxConcurrency: new(1), Overlap: new(jobs.OverlapQueue)}})
		for range 3 {
			h.enqueue("job")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if j.starts() != 4 || j.peak() != 1 {
			t.Errorf("%d have begun, %d at once; applied %s", j.starts(), j.peak(), r.take())
		}
	})
}

// A copy of a request starts nothing, whatever became of the run.
func TestStartAheadOfACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, j := recorded(t, 2, time.Second, jobs.Options{})
		defer h.close()
		request, err := jobs.Trigger[charge]("job").Request(charge{"c7"})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			h.must(kernel.CreateOf(request))
			synctest.Wait()
		}
		time.Sleep(2 * time.Second)
		for range 2 {
			h.must(kernel.CreateOf(request))
			synctest.Wait()
		}
		if run := h.run(request.ID); j.starts() != 2 || run.Attempt != 1 || run.State != jobs.Succeeded {
			t.Errorf("%d have begun; the run is %s in attempt %d", j.starts(), run.State, run.Attempt)
		}
		for range 4 { // all slots are free
			h.enqueue("job")
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if j.starts() != 6 || j.peak() != 2 {
			t.Errorf("%d have begun, %d at once", j.starts(), j.peak())
		}
	})
}

// While the outcome of a start is unknown it keeps its slot, and is sent again: what it has started is pushed.
func TestStartAheadOfUnknownOutcome(t *testing.T) {
	for _, applied := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, r, j := recorded(t, 1, time.Second, jobs.Options{})
			defer h.close()
			var once sync.Once
			r.lost = func(batch []kernel.Envelope) (before, after bool) {
				if slices.ContainsFunc(batch, func(e kernel.Envelope) bool { return e.Command.Verb() == kernel.VerbCreate }) {
					once.Do(func() { before, after = !applied, applied })
				}
				return before, after
			}
			request, err := jobs.Trigger[charge]("job").Request(charge{"c7"})
			if err != nil {
				t.Fatal(err)
			}
			if result := h.apply(kernel.CreateOf(request)); jobs.CodeOf(result.Err) != jobs.Unknown {
				t.Fatalf("the answer is %v", result.Err)
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if want := 1; applied && j.starts() != want+1 || !applied && j.starts() != want {
				t.Errorf("applied %v: %d have begun", applied, j.starts())
			}
			time.Sleep(2 * time.Second)
			for range 2 {
				h.enqueue("job")
				time.Sleep(1500 * time.Millisecond)
				synctest.Wait()
			}
			want := 3
			if applied {
				want = 4
			}
			if j.starts() != want || j.peak() != 1 {
				t.Errorf("applied %v: %d have begun, want %d; %d at once", applied, j.starts(), want, j.peak())
			}
		})
	}
}

// A due time's run starts in the entry that fires it, if nothing holds it.
func TestStartInTheEntryThatFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, r, _ := recorded(t, 2, time.Second, jobs.Options{})
		defer h.close()
		var begun []time.Time
		tick := jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { begun = append(begun, time.Now()); return nil }),
			jobs.Options{Key: "tick", Cron: "*/10 * * * * *"})
		h.worker(worker.Config{Name: "w2"}, tick)
		time.Sleep(10 * time.Second) // it has run once
		r.take()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := r.take(); got != "fire start, finish, fire start, finish" || len(begun) != 3 {
			t.Errorf("applied %s; %d have begun", got, len(begun))
		}
		h.must(kernel.Edit{Key: "tick", Set: kernel.Settings{Jitter: new(5 * time.Second)}})
		time.Sleep(40 * time.Second)
		synctest.Wait()
		for _, run := range h.runs("tick") {
			if run.State == jobs.Scheduled && time.Since(run.Due) < 5*time.Second {
				continue // within its jitter
			}
			if run.State != jobs.Succeeded || run.Attempt != 1 || run.Started.Before(run.Due) {
				t.Errorf("the run of %s: %s in attempt %d, started %v after it was due", run.Due, run.State, run.Attempt, run.Started.Sub(run.Due))
			}
		}
		if len(begun) < 6 {
			t.Errorf("%d have begun", len(begun))
		}
	})
}

// A start that is committed with its run, and finds that the run does not begin, gives the worker's slot back.
func TestAStartAheadOfARunThatDoesNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		ran := 0
		h.worker(worker.Config{Slots: 1}, jobs.NewTriggered(jobs.TriggeredFunc[charge](func(context.Context, charge) error {
			ran++
			return nil
		}), jobs.Options{Key: "charge"}))
		create := func() *kernel.Run {
			run := h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "charge", Args: []byte(`{"Customer":"c"}`)}).Run()
			time.Sleep(time.Second)
			return h.run(run.ID)
		}
		disable := func(on bool) { h.must(kernel.Edit{Key: "charge", Set: kernel.Settings{Disabled: &on}}) }
		create()
		disable(true)
		for range 3 {
			if run := create(); run.State != jobs.Skipped {
				t.Fatalf("a run of a disabled job is %s", run.State)
			}
		}
		disable(false)
		if run := create(); run.State != jobs.Succeeded || ran != 2 {
			t.Errorf("a run is %s, %d ran", run.State, ran)
		}
	})
}
