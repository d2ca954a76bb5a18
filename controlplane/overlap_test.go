package controlplane_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// fates are how the runs of a job have ended, the oldest first, as state or state(cause).
func (h *fixture) fates(key jobs.Key) string {
	h.t.Helper()
	all := h.runs(key)
	slices.SortFunc(all, func(a, b *kernel.Run) int { return cmp.Or(a.Created.Compare(b.Created), a.Due.Compare(b.Due)) })
	texts := make([]string, len(all))
	for i, run := range all {
		if texts[i] = run.State.String(); run.Cause != "" {
			texts[i] += "(" + string(run.Cause) + ")"
		}
	}
	return strings.Join(texts, " ")
}

func (h *fixture) fate(key jobs.Key, want string) {
	h.t.Helper()
	if got := h.fates(key); got != want {
		h.t.Errorf("%s: runs are %s\nwant %s", key, got, want)
	}
}

// aWhile is longer than it takes for a cancel to reach a handler.
const aWhile = time.Minute

// A run that overlaps with another one is treated alike for every trigger: a due time, code, a person, a person who
// runs one again, or a missed due time.
func TestS3_20(t *testing.T) {
	tests.Long(t)
	fates := map[jobs.Overlap]string{
		jobs.OverlapSkip:     "Succeeded Skipped(overlap) Skipped(overlap)",
		jobs.OverlapQueue:    "Succeeded Succeeded Succeeded",
		jobs.OverlapQueueOne: "Succeeded Succeeded Skipped(overlap)",
		jobs.OverlapReplace:  "Cancelled(replaced) Cancelled(replaced) Succeeded",
	}
	// Two more requests while the first run is processing.
	origins := map[kernel.Origin]func(h *fixture, verbs *ops.Ops){
		kernel.FromCron: func(h *fixture, _ *ops.Ops) { time.Sleep(10 * time.Minute) },
		kernel.FromCode: func(h *fixture, _ *ops.Ops) {
			c := client.New(h.store, h.hub.As(clientOf), client.Config{Actor: "client:test"})
			defer c.Close()
			for range 2 {
				if _, err := jobs.Trigger[struct{}]("sync").Enqueue(h.ctx, c, struct{}{}); err != nil {
					h.t.Fatal(err)
				}
				time.Sleep(aWhile)
			}
		},
		kernel.FromPerson: func(h *fixture, verbs *ops.Ops) {
			for range 2 {
				if _, err := verbs.Trigger(h.ctx, ops.Who{Actor: "person:ann", Role: ops.Admin}, kernel.Create{Key: "sync", Origin: kernel.FromPerson}); err != nil {
					h.t.Fatal(err)
				}
				time.Sleep(aWhile)
			}
		},
		kernel.FromRetry: func(h *fixture, verbs *ops.Ops) {
			before := h.must(kernel.Create{ID: jobs.NewID(time.Now()), Key: "sync", Due: time.Now().Add(time.Hour)}).Run()
			h.must(kernel.Cancel{ID: before.ID})
			for range 2 {
				if _, err := verbs.Again(h.ctx, ops.Who{Actor: "person:ann", Role: ops.Admin}, before.ID, nil, ""); err != nil {
					h.t.Fatal(err)
				}
				time.Sleep(aWhile)
			}
		},
		kernel.FromMisfire: func(h *fixture, _ *ops.Ops) {
			h.stop()
			time.Sleep(10*time.Minute + aWhile)
			h.start()
			time.Sleep(aWhile)
		},
	}
	for overlap, want := range fates {
		for origin, ask := range origins {
			t.Run(string(overlap)+"/"+string(origin), func(t *testing.T) {
				inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
					last := 5 * time.Minute
					if origin == kernel.FromCron || origin == kernel.FromMisfire {
						last = 15 * time.Minute
					}
					var j journal
					h.worker(worker.Config{Slots: 8}, jobs.NewRecurring(jobs.RecurringFunc(func(ctx context.Context) error {
						j.start(ctx)
						defer j.end(ctx)
						select {
						case <-time.After(14 * time.Minute):
							return nil
						case <-ctx.Done():
							return ctx.Err()
						}
					}), jobs.Options{Key: "sync", Cron: "0 */5 * * * *", End: time.Now().Add(last + time.Minute), MaxConcurrency: 1, Overlap: overlap, Misfire: jobs.MisfireAll, Timeout: jobs.None}))
					time.Sleep(5*time.Minute + aWhile)
					ask(h, ops.New(ops.Config{Store: h.store}))
					time.Sleep(45 * time.Minute)
					want := want
					if origin == kernel.FromMisfire && overlap == jobs.OverlapReplace {
						want = "Cancelled(replaced) Skipped(replaced) Succeeded" // both in one commit: the first of them never began
					}
					got := strings.Join(strings.Fields(strings.Replace(h.fates("sync"), "Cancelled(request)", "", 1)), " ")
					if got != want {
						t.Errorf("runs are %s\nwant %s", got, want)
					}
					n := 0
					for _, run := range h.runs("sync") {
						if run.Origin == origin {
							n++
						}
					}
					if n < 2 || j.peak() != 1 {
						t.Errorf("%d runs came by %s; %d ran at the same time, one may", n, origin, j.peak())
					}
				})
			})
		}
	}
}

// A skipped run states where there was no slot, and a replaced run which one took its place.
func TestS3_20RecordsWhy(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var j journal
		h.worker(worker.Config{Slots: 8}, j.work("replace", 50*time.Minute, true, jobs.Options{MaxConcurrency: 1, Overlap: jobs.OverlapReplace}),
			j.work("skip", 50*time.Minute, true, jobs.Options{MaxConcurrency: 1, Overlap: jobs.OverlapSkip}))
		old := h.enqueue("replace")
		time.Sleep(aWhile)
		newer := h.enqueue("replace")
		h.enqueue("skip")
		skipped := h.enqueue("skip")
		time.Sleep(aWhile)
		if m := last(h.run(old)); h.run(old).Text(&m) != "run "+newer.String()+" of the same job replaced it" || m.By != "run:"+newer.String() {
			t.Errorf("the replaced run says %+v", m)
		}
		if m := last(h.run(skipped)); m.Text != kernel.JobGate(h.run(skipped).Job) {
			t.Errorf("the skipped run has %+v", m)
		}
		// The handler was cancelled, and its results are ignored: the newer run has the slot.
		if ends := j.ends(); len(ends) != 1 || h.run(newer).State != jobs.Processing {
			t.Errorf("handlers ended with %v, the newer run is %s", ends, h.run(newer).State)
		}
	})
}

func last(run *kernel.Run) kernel.Move { return run.Moves[len(run.Moves)-1] }

// A handler that ignores its context keeps its slot until it has returned: the run that replaces it waits for that.
func TestS3_20AReplacedHandlerThatGoesOn(t *testing.T) {
	tests.Long(t)
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var j journal
		h.worker(worker.Config{Slots: 8}, j.work("deaf", 50*time.Minute, false, jobs.Options{MaxConcurrency: 1, Overlap: jobs.OverlapReplace}))
		first := h.enqueue("deaf")
		time.Sleep(aWhile)
		second := h.enqueue("deaf")
		time.Sleep(aWhile)
		third := h.enqueue("deaf")
		time.Sleep(aWhile)
		if run := h.run(first); run.State != jobs.Cancelled || !run.Lingering {
			t.Errorf("the first is %s, lingering %v", run.State, run.Lingering)
		}
		if run := h.run(second); run.State != jobs.Skipped || run.Cause != kernel.ByReplaced || run.Attempt != 0 {
			t.Errorf("the second is %s by %s after %d attempts: it never began", run.State, run.Cause, run.Attempt)
		}
		if run := h.run(third); run.State != jobs.Enqueued || run.Waits == "" {
			t.Errorf("the third is %s", run.State)
		}
		time.Sleep(3 * time.Hour)
		if h.fate("deaf", "Cancelled(replaced) Skipped(replaced) Succeeded"); j.peak() != 1 {
			t.Errorf("%d ran at the same time", j.peak())
		}
	})
}

// A recurring job runs once at a time by default, over all workers; the surplus is skipped, and so it is for a
// triggered one with that setting.
func TestS4_05(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		h.calm()
		var j, k journal
		tick := jobs.NewRecurring(jobs.RecurringFunc(func(ctx context.Context) error {
			j.start(ctx)
			defer j.end(ctx)
			select {
			case <-time.After(25 * time.Minute):
			case <-ctx.Done():
			}
			return ctx.Err()
		}), jobs.Options{Key: "tick", Cron: "0 */10 * * * *", Timeout: jobs.None})
		three := k.work("three", 8*time.Minute, true, jobs.Options{MaxConcurrency: 3, Overlap: jobs.OverlapSkip})
		h.worker(worker.Config{Name: "a", Slots: 8}, tick, three)
		h.worker(worker.Config{Name: "b", Slots: 8}, tick, three)
		for range 5 {
			h.enqueue("three")
			time.Sleep(time.Second)
		}
		time.Sleep(70*time.Minute + aWhile)
		h.fate("three", "Succeeded Succeeded Succeeded Skipped(overlap) Skipped(overlap)")
		h.fate("tick", "Succeeded Skipped(overlap) Skipped(overlap) Succeeded Skipped(overlap) Skipped(overlap) Processing")
		if j.peak() != 1 || k.peak() != 3 || len(h.ledger("tick")) != 0 {
			t.Errorf("%d and %d at a time, want 1 and 3; every due time has a run, missed are %d ranges", j.peak(), k.peak(), len(h.ledger("tick")))
		}
	})
}

// A job that was never to run beside itself, and whose worker died in the midst of it, runs again.
func TestDkron349(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var j journal
		o := jobs.Options{MaxConcurrency: 1, Overlap: jobs.OverlapSkip, OnLost: jobs.LostFail}
		dead := h.cabled(worker.Config{Name: "dead"}, j.work("once", 30*time.Minute, false, o))
		first := h.enqueue("once")
		time.Sleep(time.Second)
		dead.cut.Store(true)
		time.Sleep(time.Minute)
		h.worker(worker.Config{Name: "alive"}, j.work("once", time.Second, false, o))
		second := h.enqueue("once")
		time.Sleep(time.Minute)
		if a, b := h.run(first), h.run(second); a.State != jobs.Terminated || a.Cause != kernel.ByLoss || b.State != jobs.Succeeded {
			t.Errorf("the lost run is %s by %s, the next one is %s", a.State, a.Cause, b.State)
		}
		time.Sleep(time.Hour)
	})
}

// Forbidding a second copy is decided in the store: of a hundred requests at once, on several workers, one runs.
func TestDkron1569(t *testing.T) {
	tests.Long(t)
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var j journal
		for _, name := range []string{"a", "b", "c"} {
			h.worker(worker.Config{Name: name, Slots: 50}, j.work("once", 50*time.Minute, true, jobs.Options{MaxConcurrency: 1, Overlap: jobs.OverlapSkip}))
		}
		done := make(chan error)
		for range 10 {
			go func() {
				c := client.New(h.store, h.hub.As(clientOf), client.Config{Actor: "client:test"})
				defer c.Close()
				var err error
				for range 10 {
					if _, e := jobs.Trigger[charge]("once").Enqueue(h.ctx, c, charge{}); e != nil {
						err = e
					}
				}
				done <- err
			}()
		}
		for range 10 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		time.Sleep(2 * time.Hour)
		n := map[jobs.State]int{}
		for _, run := range h.runs("once") {
			n[run.State]++
		}
		if n[jobs.Succeeded] != 1 || n[jobs.Skipped] != 99 || j.starts() != 1 {
			t.Errorf("%v, and %d handlers were called", n, j.starts())
		}
	})
}

// Under load, ten thousand requests make ten thousand runs: each is called once.
func TestXXL1886(t *testing.T) {
	tests.Long(t)
	inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
		h.fleet("ab", worker.Config{Slots: 50}, r.job(jobs.Options{Key: "charge", MaxConcurrency: 40}, 10*time.Millisecond))
		h.flood("charge", 10_000)
		time.Sleep(time.Hour)
		if n := len(r.names()); n != 10_000 {
			t.Errorf("handlers were called %d times", n)
		}
		h.over("charge", 10_000)
	})
}

// One customer with a thousand runs does not keep others from having theirs, and each is held to a limit of its own.
func TestS3_20FairByArgument(t *testing.T) {
	for _, all := range []int{4, 2} { // under way at once, and no fewer than of one value: else the oldest would always be first
		inBubble(t, func(t *testing.T, h *fixture, r *whoRan) {
			h.fleet("ab", worker.Config{Slots: 10}, r.job(jobs.Options{Key: "charge", MaxConcurrency: all, Limits: []jobs.Limit{{Name: "customer", Max: 2, By: "args.Customer"}}}, time.Minute))
			to := client.New(h.store, h.hub.As(clientOf), client.Config{Actor: "client:test"})
			defer to.Close()
			for i := range 1002 {
				who := "big"
				if i >= 1000 {
					who = "small"
				}
				if _, err := jobs.Trigger[charge]("charge").Enqueue(h.ctx, to, charge{who}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(5 * time.Minute) // of each value no more wait for the job's slots than may be under way: two
			n := map[string]int{}
			for _, x := range r.all() {
				n[x.customer]++
			}
			if n["big"] < all || n["small"] != 2 {
				t.Errorf("of %d at once %v began", all, n)
			}
		})
	}
}

// Runs of one app are limited by the app, across its jobs, and start no more often than a rate allows.
func TestS3_20AppLimitAndRate(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		h.calm()
		h.must(kernel.Configure{AppLimits: &[]jobs.Limit{{Name: "default", Max: 3}}})
		var both journal
		h.worker(worker.Config{Slots: 20}, both.work("a", time.Minute, true, jobs.Options{}), both.work("b", time.Minute, true, jobs.Options{}))
		for range 5 {
			h.enqueue("a")
			h.enqueue("b")
		}
		time.Sleep(time.Hour)
		if both.peak() != 3 || both.starts() != 10 {
			t.Errorf("%d of 10 ran, %d at a time, want 3", both.starts(), both.peak())
		}
	})
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var j journal
		begin := time.Now()
		h.worker(worker.Config{Slots: 20}, j.work("slow", time.Millisecond, true, jobs.Options{Rate: jobs.Rate{Max: 2, Per: time.Minute}}))
		for range 6 {
			h.enqueue("slow")
		}
		time.Sleep(time.Hour)
		var at []time.Duration
		for _, run := range h.runs("slow") {
			at = append(at, run.Started.Sub(begin).Round(time.Second))
		}
		slices.Sort(at)
		// Two at once, then one each half minute.
		if len(at) != 6 || at[1] > 5*time.Second || at[2] < 30*time.Second || at[5] < 2*time.Minute || at[5] > 2*time.Minute+10*time.Second {
			t.Errorf("they started at %v", at)
		}
	})
}

// A rate counts starts, wherever runs waited: those that came while no worker was there do not start together when one
// comes, and neither do the retries of attempts that fail at once or whose worker is lost.
func TestRateCountsStarts(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var mu sync.Mutex
		var at []time.Time
		job := jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error {
			mu.Lock()
			defer mu.Unlock()
			if at = append(at, time.Now()); len(at)%3 == 0 {
				return errors.New("again, at once")
			}
			return nil
		}), jobs.Options{Key: "mail", Rate: jobs.Rate{Max: 5, Per: time.Second}, Retries: 20, RetryDelay: jobs.None,
			Limits: []jobs.Limit{{Name: "sender", Max: 40}}})
		stop := h.worker(worker.Config{Name: "first", Slots: 20}, job)
		time.Sleep(5 * time.Second)
		stop()
		for range 60 {
			h.enqueue("mail")
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		h.worker(worker.Config{Name: "second", Slots: 100}, job)
		time.Sleep(5 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(at) < 60+60/3 {
			t.Errorf("%d attempts have begun, want 60 and the retries of each third", len(at))
		}
		for i := range at {
			for k := i + 5; k < len(at); k++ {
				if span := at[k].Sub(at[i]); span < time.Duration(k-i-4)*200*time.Millisecond-50*time.Millisecond {
					t.Fatalf("%d attempts began within %v: five may at once, and five a second", k-i+1, span)
				}
			}
		}
	})
}
