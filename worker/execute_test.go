package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

func TestARunGoesTheWholeWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		type order struct{ Customer string }
		var got order
		var info jobs.AttemptInfo
		w, _ := s.start(worker.Config{}, jobs.NewTriggered(jobs.TriggeredFunc[order](func(ctx context.Context, o order) error {
			got, info = o, jobs.Attempt(ctx)
			return jobs.Result(ctx, map[string]int{"charged": 7})
		}), jobs.Options{Key: "charge"}))
		id := s.create("charge", order{"c7"})
		run := s.wantState(id, jobs.Succeeded, "")
		if string(run.Result) != `{"charged":7}` || got.Customer != "c7" {
			t.Errorf("result %s of customer %q", run.Result, got.Customer)
		}
		if want := (jobs.AttemptInfo{Tenant: "default", Run: id, Key: "charge", Due: run.Due, Number: 1, Worker: w.Name(), Job: run.Job, Revision: run.Revision}); info != want || run.Due.IsZero() || run.Job.IsZero() {
			t.Errorf("attempt is %+v, want %+v", info, want)
		}
		if run.Worker != w.Name() || !strings.HasPrefix(run.Worker, "w-") {
			t.Errorf("run by %q, want the configured name and a nonce", run.Worker)
		}
	})
}

// unspeakable is an error whose text cannot be read.
type unspeakable struct{}

var nilMap map[string]int

func (unspeakable) Error() string { panic("no text") }

// However a handler ends, its attempt ends as it should, and the worker continues.
func TestHoweverAHandlerEnds(t *testing.T) {
	for _, c := range []struct {
		name    string
		run     func(ctx context.Context, args json.RawMessage) error
		state   jobs.State
		cause   kernel.Cause
		texts   []string // in the run's error
		outcome kernel.Outcome
	}{
		{"returns nil", func(context.Context, json.RawMessage) error { return nil }, jobs.Succeeded, "", nil, kernel.OutcomeSuccess},
		{"fails", func(context.Context, json.RawMessage) error { return errors.New("no money") }, jobs.Terminated, kernel.ByError, []string{"no money"}, kernel.OutcomeError},
		{"fails for good", func(context.Context, json.RawMessage) error { return jobs.NoRetry(errors.New("no such customer")) }, jobs.Terminated, kernel.ByError, []string{"no such customer"}, kernel.OutcomeFatal},
		{"panics", func(context.Context, json.RawMessage) error { panic("ouch") }, jobs.Terminated, kernel.ByError, []string{"panic: ouch", "execute_test.go"}, kernel.OutcomeError},
		{"panics with nil", func(context.Context, json.RawMessage) error { panic(nil) }, jobs.Terminated, kernel.ByError, []string{"panic: panic called with nil"}, kernel.OutcomeError},
		{"writes to a nil map", func(context.Context, json.RawMessage) error { nilMap["a"] = 1; return nil }, jobs.Terminated, kernel.ByError, []string{"nil map", "execute_test.go"}, kernel.OutcomeError},
		{"ends its goroutine", func(context.Context, json.RawMessage) error { runtime.Goexit(); return nil }, jobs.Terminated, kernel.ByError, []string{"runtime.Goexit", "execute_test.go"}, kernel.OutcomeError},
		{"overflows with text", func(context.Context, json.RawMessage) error {
			return errors.New(strings.Repeat("\xff", 100<<10))
		}, jobs.Terminated, kernel.ByError, []string{"\uFFFD"}, kernel.OutcomeError},
		{"returns an error that panics", func(context.Context, json.RawMessage) error { return unspeakable{} }, jobs.Terminated, kernel.ByError, []string{"panic: no text"}, kernel.OutcomeError},
		{"starts many goroutines", func(context.Context, json.RawMessage) error {
			var wg sync.WaitGroup
			for range tests.Size(2_000, 20_000, 20_000) {
				wg.Go(func() { time.Sleep(time.Second) })
			}
			wg.Wait()
			return nil
		}, jobs.Succeeded, "", nil, kernel.OutcomeSuccess},
		{"writes 10 MB of log lines", func(ctx context.Context, _ json.RawMessage) error {
			for range 1000 {
				jobs.Log(ctx).Info(strings.Repeat("x", 10<<10))
			}
			return nil
		}, jobs.Succeeded, "", nil, kernel.OutcomeSuccess},
		{"ignores its deadline", func(context.Context, json.RawMessage) error { time.Sleep(time.Hour); return nil }, jobs.Terminated, kernel.ByTimeout, []string{"timeout of 1m0s"}, kernel.OutcomeTimeout},
		{"returns at its deadline", func(ctx context.Context, _ json.RawMessage) error { <-ctx.Done(); return ctx.Err() }, jobs.Terminated, kernel.ByTimeout, []string{"timeout of 1m0s"}, kernel.OutcomeTimeout},
		{"returns nil after its deadline", func(ctx context.Context, _ json.RawMessage) error { <-ctx.Done(); return nil }, jobs.Terminated, kernel.ByTimeout, []string{"timeout of 1m0s"}, kernel.OutcomeTimeout},
		{"complains after its deadline", func(ctx context.Context, _ json.RawMessage) error { <-ctx.Done(); return errors.New("half done") }, jobs.Terminated, kernel.ByTimeout, []string{"then the handler returned: half done"}, kernel.OutcomeTimeout},
		{"returns nil just before its deadline", func(context.Context, json.RawMessage) error { time.Sleep(time.Minute - time.Nanosecond); return nil }, jobs.Succeeded, "", nil, kernel.OutcomeSuccess},
		{"has a deadline of its own", func(ctx context.Context, _ json.RawMessage) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			<-ctx.Done()
			return ctx.Err()
		}, jobs.Terminated, kernel.ByError, []string{"deadline exceeded"}, kernel.OutcomeError},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				w, _ := s.start(worker.Config{Slots: 4},
					handler(jobs.Options{Timeout: time.Minute}, c.run),
					handler(jobs.Options{Key: "other"}, func(context.Context, json.RawMessage) error { return nil }))
				id := s.create("j", struct{}{})
				beside := s.create("other", struct{}{})
				time.Sleep(2 * time.Hour)
				run := s.wantState(id, c.state, c.cause)
				for _, text := range c.texts {
					if !strings.Contains(run.Error, text) {
						t.Errorf("error is %.300q..., want it to contain %q", run.Error, text)
					}
				}
				if len(run.Error) > kernel.MaxError {
					t.Errorf("error has %d bytes", len(run.Error))
				}
				s.wantState(beside, jobs.Succeeded, "")
				s.wantState(s.create("other", struct{}{}), jobs.Succeeded, "")
				want := map[kernel.Outcome]uint64{kernel.OutcomeSuccess: 2}
				want[c.outcome]++
				wantFinished(t, w, want)
				if st := w.Stats(); st.Running != 0 || st.Free != 4 || st.Stuck != 0 {
					t.Errorf("stats are %+v, want all slots free", st)
				}
			})
		})
	}
}

func TestRetriesArePushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		var numbers []uint32
		s.start(worker.Config{Slots: 1}, handler(jobs.Options{Retries: 2}, func(ctx context.Context, _ json.RawMessage) error {
			numbers = append(numbers, jobs.Attempt(ctx).Number)
			if len(numbers) < 3 {
				return errors.New("not yet")
			}
			return nil
		}))
		began := time.Now()
		s.wantState(s.create("j", struct{}{}), jobs.Succeeded, "")
		if fmt.Sprint(numbers) != "[1 2 3]" || time.Since(began) > 0 {
			t.Errorf("attempts %v took %v, want three at once", numbers, time.Since(began))
		}
	})
}

func TestSnoozeCostsNoRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		w, _ := s.start(worker.Config{}, handler(jobs.Options{}, func(context.Context, json.RawMessage) error {
			return fmt.Errorf("wait: %w", jobs.Snooze(time.Minute))
		}))
		run := s.wantState(s.create("j", struct{}{}), jobs.Failed, kernel.BySnooze)
		if !run.RetryAt.Equal(time.Now().UTC().Add(time.Minute)) || run.Failures != 0 {
			t.Errorf("back at %v after %d failures", run.RetryAt, run.Failures)
		}
		wantFinished(t, w, map[kernel.Outcome]uint64{kernel.OutcomeSnooze: 1})
	})
}

// The deadline is measured from the acceptance, by the difference of two times of the store: neither a push that was
// repeated for long nor a store whose clock is wrong changes what a handler gets.
func TestTheTimeRunsFromTheAcceptance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		var begun, deadline time.Time
		w, _ := s.start(worker.Config{}, handler(jobs.Options{Timeout: 10 * time.Second}, func(ctx context.Context, _ json.RawMessage) error {
			begun = time.Now()
			deadline, _ = ctx.Deadline()
			<-ctx.Done()
			return ctx.Err()
		}))
		run := *s.started(w, "j")
		run.Started, run.Deadline = run.Started.Add(-time.Hour), run.Deadline.Add(-time.Hour)
		time.Sleep(40 * time.Second)
		accepted := time.Now()
		s.push(w, &run)
		time.Sleep(time.Second)
		if list := w.Status().Running; len(list) != 1 || !list[0].Deadline.Equal(accepted.Add(10*time.Second)) {
			t.Errorf("the status has %+v", list)
		}
		s.push(w, &run) // again, which changes nothing
		s.wantStateAfter(9*time.Second, run.ID, jobs.Terminated, kernel.ByTimeout)
		if !begun.Equal(accepted) || deadline.Sub(accepted) != 10*time.Second {
			t.Errorf("it began %v after the acceptance with the deadline %v after it, want 10s", begun.Sub(accepted), deadline.Sub(accepted))
		}
	})
}

// A handler that ignores its timeout: the store ends the attempt at once, the slot is not free until the handler
// returns, and it is shown as stuck.
func TestAHandlerThatOutlivesItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{Slots: 1}, handler(jobs.Options{Timeout: 5 * time.Second, Retries: 1}, g.run))
		id := s.create("j", struct{}{})
		time.Sleep(6*time.Second + time.Millisecond)
		if run := s.wantState(id, jobs.Failed, kernel.ByTimeout); !run.Lingering || run.Ready() {
			t.Error("the retry can start although the handler has not returned")
		}
		wantErr(t, g.cause(0), jobs.ErrTimeout)
		s.stop(w, bus.Stop{ID: id, Attempt: 1, Timeout: true}) // the leader times it out, too
		synctest.Wait()
		if st := w.Stats(); st.Stopped != 0 || st.Finished["timeout"] != 1 {
			t.Errorf("stats are %+v, want one timeout and nothing else", st)
		}
		if st := w.Stats(); st.Free != 0 || st.Running != 1 || st.Stuck != 0 {
			t.Errorf("stats are %+v, want the slot taken", st)
		}
		time.Sleep(13 * time.Second)
		if st := w.Stats(); st.Stuck != 1 {
			t.Errorf("stats are %+v, want one stuck", st)
		}
		if b := s.lastHeartbeat(); len(b.Running) != 1 || !b.Running[0].Stuck {
			t.Errorf("heartbeat is %+v, want it to report a stuck handler", b)
		}
		s.set(func(s *stage) { s.quiet = true })
		g.open <- nil
		if run := s.wantState(id, jobs.Failed, kernel.ByTimeout); run.Lingering {
			t.Error("still waits for the handler")
		}
		s.push(w, s.startOn(w, id))
		synctest.Wait()
		g.open <- nil
		s.wantState(id, jobs.Succeeded, "")
		if st := w.Stats(); st.Free != 1 || st.Stuck != 0 {
			t.Errorf("stats are %+v, want the slot free", st)
		}
	})
}

func TestManyRunsMakeSeveralHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		s.start(worker.Config{Slots: worker.Unlimited}, handler(jobs.Options{}, g.run))
		const n = 4500
		for range n {
			s.create("j", struct{}{})
		}
		if g.inside() != n {
			t.Fatalf("%d handlers run, want %d", g.inside(), n)
		}
		s.set(func(s *stage) { s.heartbeats = nil })
		time.Sleep(4 * time.Second)
		s.mu.Lock()
		var sizes []int
		for i, b := range s.heartbeats {
			sizes = append(sizes, len(b.Running))
			if b.More != (i < len(s.heartbeats)-1) {
				t.Errorf("heartbeat %d of %d has More %v", i, len(s.heartbeats), b.More)
			}
		}
		s.mu.Unlock()
		if fmt.Sprint(sizes) != "[2000 2000 500]" {
			t.Errorf("heartbeats name %v runs", sizes)
		}
		close(g.open)
		synctest.Wait()
	})
}

func TestProgressRidesInHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		s.start(worker.Config{}, handler(jobs.Options{}, func(ctx context.Context, args json.RawMessage) error {
			for i := range int64(1000) {
				jobs.Progress(ctx, i, 1000, "")
			}
			jobs.Progress(ctx, -3, -10, strings.Repeat("é", 300))
			return g.run(ctx, args)
		}))
		s.create("j", struct{}{})
		synctest.Wait()
		s.set(func(s *stage) { s.heartbeats = nil })
		time.Sleep(4 * time.Second)
		b := s.lastHeartbeat()
		if len(b.Running) != 1 || b.Running[0].Progress == nil {
			t.Fatalf("heartbeat is %+v, want progress", b)
		}
		if p := *b.Running[0].Progress; p.Done != 0 || p.Total != 0 || p.Text != strings.Repeat("é", 100) {
			t.Errorf("progress is %+v, want nothing negative and at most 200 bytes", p)
		}
		s.set(func(s *stage) {
			if len(s.heartbeats) > 2 {
				t.Errorf("%d heartbeats in 4 s: progress must not make more", len(s.heartbeats))
			}
		})
		g.open <- nil
	})
}

func TestCheckpointsReachTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		type place struct{ Page int }
		var found []string
		s.start(worker.Config{}, handler(jobs.Options{Retries: 1}, func(ctx context.Context, _ json.RawMessage) error {
			var at place
			ok, err := jobs.Load(ctx, &at)
			found = append(found, fmt.Sprint(ok, at.Page, err))
			if err := jobs.Save(ctx, strings.Repeat("x", kernel.MaxCheckpoint)); err == nil || !errors.Is(err, jobs.BadInput) {
				t.Errorf("a checkpoint that is too large: %v", err)
			}
			if err := jobs.Result(ctx, strings.Repeat("x", kernel.MaxResult)); err == nil || !errors.Is(err, jobs.BadInput) {
				t.Errorf("a result that is too large: %v", err)
			}
			if err := jobs.Result(ctx, func() {}); err == nil {
				t.Error("a function is no result")
			}
			if ok {
				return nil
			}
			if err := jobs.Save(ctx, place{7}); err != nil {
				return err
			}
			if _, err := jobs.Load(ctx, &at); err != nil || at.Page != 7 {
				t.Errorf("loads page %d, %v right after it was saved", at.Page, err)
			}
			return errors.New("once more")
		}))
		s.wantState(s.create("j", struct{}{}), jobs.Succeeded, "")
		if fmt.Sprint(found) != "[false 0 <nil> true 7 <nil>]" {
			t.Errorf("attempts found %v", found)
		}
	})
}

// What the leader stops is stopped; further fields of the request change nothing.
func TestStops(t *testing.T) {
	for _, c := range []struct {
		name        string
		byHeartbeat bool
	}{{"by signal", false}, {"by heartbeat", true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				causes := make(chan error, 1)
				w, _ := s.start(worker.Config{}, handler(jobs.Options{}, heedful(causes)))
				id := s.create("j", struct{}{})
				synctest.Wait()
				run := s.do(kernel.Cancel{ID: id})
				if !run.Lingering {
					t.Fatal("a cancelled run must wait for its handler")
				}
				stop := bus.Stop{ID: id, Attempt: 1, By: "person:ann", Reason: "a mistake"}
				if c.byHeartbeat {
					s.set(func(s *stage) { s.stops = []bus.Stop{stop, stop} })
					time.Sleep(4 * time.Second)
				} else {
					s.stop(w, stop)
					s.stop(w, stop)
				}
				var cancelled *jobs.CancelledError
				if err := <-causes; !errors.As(err, &cancelled) || cancelled.By != "person:ann" || cancelled.Reason != "a mistake" {
					t.Errorf("the cause is %v", err)
				}
				if run := s.wantState(id, jobs.Cancelled, kernel.ByPerson); run.Lingering {
					t.Error("the return of the handler is not reported")
				}
				if n := len(sent[kernel.Finish](s)); n > 0 {
					t.Errorf("%d results of a cancelled run were sent", n)
				}
				if st := w.Stats(); st.Stopped != 1 || st.Running != 0 {
					t.Errorf("stats are %+v, want one stopped", st)
				}
			})
		})
	}
}

// Nothing is reported of an attempt that was taken away, but its handler keeps its slot until it returns.
func TestAStaleAttemptIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{Slots: 1}, handler(jobs.Options{}, g.run))
		id := s.create("j", struct{}{})
		synctest.Wait()
		s.stop(w, bus.Stop{ID: id, Attempt: 1, Stale: true})
		wantErr(t, g.cause(0), jobs.ErrLeaseLost)
		time.Sleep(20 * time.Second)
		if b := s.lastHeartbeat(); len(b.Running) != 0 {
			t.Errorf("the heartbeat names %v, which was taken away", b.Running)
		} else if b.Strays != 1 {
			t.Errorf("the heartbeat reports %d strays: the handler takes a slot", b.Strays)
		}
		if st := w.Stats(); st.Free != 0 || st.Stuck != 1 {
			t.Errorf("stats are %+v, want the slot taken and the handler stuck", st)
		}
		g.open <- nil
		synctest.Wait()
		if f, r := sent[kernel.Finish](s), sent[kernel.Returned](s); len(f)+len(r) > 0 {
			t.Errorf("sent %v %v of an attempt that was taken away", f, r)
		}
		if st := w.Stats(); st.Free != 1 {
			t.Errorf("stats are %+v, want the slot free", st)
		}
		time.Sleep(4 * time.Second)
		if b := s.lastHeartbeat(); b.Strays != 0 {
			t.Errorf("the heartbeat reports %d strays", b.Strays)
		}
	})
}

// A stop that overtakes its push: the attempt never begins, and the leader need not wait for a handler. If the attempt
// is not this worker's any more, nothing is reported about it.
func TestAStopOvertakesItsPush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{}, handler(jobs.Options{}, g.run))
		for _, stale := range []bool{true, false} {
			run := s.started(w, "j")
			s.do(kernel.Cancel{ID: run.ID})
			s.stop(w, bus.Stop{ID: run.ID, Attempt: 1, Stale: stale})
			if row := s.wantState(run.ID, jobs.Cancelled, kernel.ByPerson); row.Lingering != stale {
				t.Errorf("stale %v: lingering %v", stale, row.Lingering)
			}
			for range 4 {
				if a := s.push(w, run); !slices.Equal(a.Over, []bus.Attempt{{ID: run.ID, N: 1}}) {
					t.Errorf("stale %v: the late push is answered with %+v", stale, a)
				}
				time.Sleep(9 * time.Second)
			}
		}
		if st := w.Stats(); g.inside() > 0 || st.Begun != 0 || st.Running != 0 {
			t.Errorf("stats are %+v, %d handlers were called", st, g.inside())
		}
	})
}

// A store that was restored beneath a worker starts an attempt again under the same number. The worker has ended one of
// that number, and begins it all the same.
func TestARestoredStoreStartsAnAttemptAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		w, _ := s.start(worker.Config{}, handler(jobs.Options{}, func(context.Context, json.RawMessage) error { return nil }))
		run := s.started(w, "j")
		s.push(w, run)
		s.wantState(run.ID, jobs.Succeeded, "")
		if a := s.push(w, run); !slices.Equal(a.Over, []bus.Attempt{{ID: run.ID, N: 1}}) {
			t.Errorf("a late copy of the push is answered with %+v", a)
		}
		again := *run
		again.Started = run.Started.Add(time.Second)
		if a := s.push(w, &again); len(a.Over)+len(a.Refused) > 0 {
			t.Errorf("the attempt of the restored store is answered with %+v", a)
		}
		synctest.Wait()
		if n := w.Stats().Begun; n != 2 {
			t.Errorf("%d attempts have begun, want 2", n)
		}
	})
}

// A run is cancelled while its success is on its way: its slots must not wait for the lease to expire.
func TestCancelledWhileItFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		var id jobs.ID
		w, _ := s.start(worker.Config{}, handler(jobs.Options{}, func(context.Context, json.RawMessage) error {
			s.do(kernel.Cancel{ID: id})
			return nil
		}))
		run := s.started(w, "j")
		id = run.ID
		s.push(w, run)
		if run := s.wantState(id, jobs.Cancelled, kernel.ByPerson); run.Lingering {
			t.Error("the return of the handler is not reported")
		}
	})
}

// Only a control plane may stop runs.
func TestOthersCannotStopRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{}, handler(jobs.Options{}, g.run))
		id := s.create("j", struct{}{})
		synctest.Wait()
		other := s.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Client, Name: "eve"})
		defer other.Close()
		if err := other.Signal(t.Context(), bus.Signal{Topic: bus.TopicCancel, To: w.Name(), Data: bus.Encode(bus.Stop{ID: id, Attempt: 1})}); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("a client signals a cancel: %v", err)
		}
		s.must(s.node.Signal(t.Context(), bus.Signal{Topic: bus.TopicCancel, Tenant: jobs.DefaultTenant, To: w.Name(), Data: []byte("{")}))
		if err := g.cause(0); err != nil {
			t.Errorf("the run was stopped: %v", err)
		}
		g.open <- nil
		s.wantState(id, jobs.Succeeded, "")
	})
}
