package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

// leave ends a worker and returns how long that took.
func leave(stop func()) time.Duration {
	began := time.Now()
	stop()
	return time.Since(began)
}

func TestDrainWaitsForRunningHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		w, stop := s.start(worker.Config{}, handler(jobs.Options{}, func(context.Context, json.RawMessage) error {
			time.Sleep(20 * time.Second)
			return nil
		}))
		id := s.create("j", struct{}{})
		synctest.Wait()
		go func() {
			time.Sleep(time.Millisecond)
			if b := s.lastHeartbeat(); !b.Draining {
				t.Error("the drain is not reported to the leader at once")
			}
			time.Sleep(5 * time.Second)
			if b := s.lastHeartbeat(); !b.Draining || len(b.Running) != 1 {
				t.Errorf("heartbeat is %+v, want it to report the drain, and to keep the lease", b)
			}
			if a := s.push(w, s.started(w, "j")); len(a.Refused) != 1 {
				t.Errorf("a draining worker answers %+v", a)
			}
		}()
		if took := leave(stop); took != 20*time.Second {
			t.Errorf("left after %v, want 20s", took)
		}
		s.wantState(id, jobs.Succeeded, "")
		if b := s.lastHeartbeat(); !b.Leaving {
			t.Errorf("the last heartbeat is %+v, want a goodbye", b)
		}
		wantFinished(t, w, map[kernel.Outcome]uint64{kernel.OutcomeSuccess: 1})
	})
}

func TestDrainGivesBackWhatGoesOnTooLong(t *testing.T) {
	errBusy := errors.New("busy")
	for _, c := range []struct {
		name    string
		result  error // what the handler result when its context ends
		state   jobs.State
		cause   kernel.Cause
		outcome kernel.Outcome
	}{
		{"the context's error", context.Canceled, jobs.Failed, kernel.ByHandback, kernel.OutcomeHandback},
		{"an error", errBusy, jobs.Failed, kernel.ByHandback, kernel.OutcomeHandback},
		{"NoRetry of the context's error", jobs.NoRetry(context.Canceled), jobs.Failed, kernel.ByHandback, kernel.OutcomeHandback},
		{"NoRetry of its own", jobs.NoRetry(errBusy), jobs.Terminated, kernel.ByError, kernel.OutcomeFatal},
		{"nil", nil, jobs.Succeeded, "", kernel.OutcomeSuccess},
		{"snooze", jobs.Snooze(time.Hour), jobs.Failed, kernel.BySnooze, kernel.OutcomeSnooze},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				w, stop := s.start(worker.Config{Grace: 10 * time.Second}, handler(jobs.Options{}, func(ctx context.Context, _ json.RawMessage) error {
					<-ctx.Done()
					wantErr(t, context.Cause(ctx), jobs.ErrShutdown)
					// A handler can still save what it has done.
					return errors.Join(c.result, jobs.Save(context.WithoutCancel(ctx), 7))
				}))
				id := s.create("j", struct{}{})
				synctest.Wait()
				s.set(func(s *stage) { s.quiet = true })
				if took := leave(stop); took != 10*time.Second {
					t.Errorf("left after %v, want 10s", took)
				}
				run := s.wantState(id, c.state, c.cause)
				if string(run.Checkpoint) != "7" || run.Lingering {
					t.Errorf("checkpoint is %q, lingering %v", run.Checkpoint, run.Lingering)
				}
				wantFinished(t, w, map[kernel.Outcome]uint64{c.outcome: 1})
			})
		})
	}
}

// A handler that ignores everything is left behind: the store knows, and Run returns.
func TestDrainLeavesHandlersThatDoNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		_, stop := s.start(worker.Config{Grace: -1}, handler(jobs.Options{}, g.run))
		id := s.create("j", struct{}{})
		g.inside()
		if took := leave(stop); took != time.Second {
			t.Errorf("left after %v, want 1s", took)
		}
		if run := s.wantState(id, jobs.Failed, kernel.ByHandback); !run.Lingering {
			t.Error("the store does not know that the handler runs")
		}
		g.open <- nil
	})
}

// A store that does not answer delays a draining worker for a moment only, and Run names the runs whose outcome it
// could not report. With the default grace all of it ends before Kubernetes kills the process, after 30 s.
func TestDrainWithoutAStore(t *testing.T) {
	hangs := func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result {
		if batch[0].Command.Verb() == kernel.VerbFinish {
			time.Sleep(mostTry)
			return metastore.Refused(batch, kernel.Refuse(jobs.Unknown, "no answer"))
		}
		return apply()
	}
	for _, c := range []struct {
		name    string
		grace   time.Duration // 0 = the default
		between interceptor
		handler func(g *gate) func(context.Context, json.RawMessage) error
		most    time.Duration
	}{
		{"the handler has returned", 0, unavailable(kernel.VerbFinish), returns, 28 * time.Second},
		{"the store hangs", 0, hangs, returns, 28 * time.Second},
		{"the handler returns at the end of the grace", 0, unavailable(kernel.VerbFinish), returnsAtTheEnd, 28 * time.Second},
		{"the handler never returns", 0, unavailable(kernel.VerbFinish), func(g *gate) func(context.Context, json.RawMessage) error { return g.run }, 28 * time.Second},
		{"a short grace", time.Second, unavailable(kernel.VerbFinish), returns, 8 * time.Second},
		{"no grace", -1, unavailable(kernel.VerbFinish), returns, 7 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				g := newGate()
				w := s.new(worker.Config{Grace: c.grace}, handler(jobs.Options{}, c.handler(g)))
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan error, 1)
				go func() { ended <- w.Run(ctx) }()
				synctest.Wait()
				s.intercept(c.between)
				id := s.create("j", struct{}{})
				synctest.Wait()
				s.set(func(s *stage) { s.silent = true })
				began := time.Now()
				cancel()
				err := <-ended
				if took := time.Since(began); took > c.most {
					t.Errorf("left after %v, want at most %v", took, c.most)
				}
				if missing, ok := errors.AsType[*worker.UnreportedError](err); !ok || !slices.Equal(missing.Runs, []jobs.ID{id}) || !strings.Contains(err.Error(), id.String()) {
					t.Errorf("Run returned %v, want an error that names run %s", err, id)
				}
				select {
				case g.open <- nil:
				default:
				}
				time.Sleep(time.Minute) // what hangs ends
			})
		})
	}
}

// mostTry is longer than any drain.
const mostTry = 45 * time.Second

func returns(*gate) func(context.Context, json.RawMessage) error {
	return func(context.Context, json.RawMessage) error { return nil }
}

func returnsAtTheEnd(*gate) func(context.Context, json.RawMessage) error {
	return func(ctx context.Context, _ json.RawMessage) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

// An outcome that the store confirms before the drain ends is not missing.
func TestDrainReportsOnlyWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		_, stop := s.start(worker.Config{}, handler(jobs.Options{}, func(context.Context, json.RawMessage) error { return nil }))
		until := time.Now().Add(20 * time.Second)
		s.intercept(func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result {
			if batch[0].Command.Verb() == kernel.VerbFinish && time.Now().Before(until) {
				return metastore.Refused(batch, kernel.Refuse(jobs.Unknown, "no answer"))
			}
			return apply()
		})
		id := s.create("j", struct{}{})
		synctest.Wait()
		if took := leave(stop); took > 25*time.Second { // stop fails the test if Run returns an error
			t.Errorf("left after %v", took)
		}
		s.wantState(id, jobs.Succeeded, "")
	})
}

// A run that was accepted and has not begun when the worker drains does not begin: another worker gets it at once.
func TestAcceptedAndNotBegunWhenItDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.wrap = func(b bus.Bus) bus.Bus { return slowAnswers{b, time.Second} }
		g := newGate()
		w, stop := s.start(worker.Config{}, handler(jobs.Options{}, g.run))
		run := s.started(w, "j")
		if a := s.push(w, run); len(a.Refused) > 0 {
			t.Fatalf("the answer is %+v", a)
		}
		leave(stop)
		if run := s.wantState(run.ID, jobs.Failed, kernel.ByHandback); run.Lingering || g.inside() > 0 {
			t.Errorf("%d handlers were called, lingering %v", g.inside(), run.Lingering)
		}
	})
}

// Until the goodbye is answered, a worker that leaves refuses what is pushed: the leader need not wait for its lease.
func TestPushesAreRefusedUntilTheGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, stop := s.start(worker.Config{}, handler(jobs.Options{}, g.run))
		run := s.started(w, "j")
		s.set(func(s *stage) { s.slow = 400 * time.Millisecond })
		head := s.head(w.Name())
		began := time.Now()
		go func() {
			time.Sleep(399 * time.Millisecond)
			if a, err := s.pushTo(w.Name(), head, run); err != nil || len(a.Refused) != 1 {
				t.Errorf("while the goodbye has no answer: %+v, %v", a, err)
			}
		}()
		if stop(); time.Since(began) != 400*time.Millisecond {
			t.Errorf("left after %v", time.Since(began))
		}
		if _, err := s.pushTo(w.Name(), head, run); !errors.Is(err, bus.ErrNoReceiver) || g.inside() > 0 {
			t.Errorf("after it: %v, %d handlers", err, g.inside())
		}
	})
}

// A worker that drains accepts nothing more, even if it is asked to resume.
func TestADrainingWorkerIsNotResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, stop := s.start(worker.Config{}, handler(jobs.Options{}, g.run))
		s.push(w, s.started(w, "j"))
		g.inside()
		go func() {
			time.Sleep(time.Second)
			s.stop(w, bus.Stop{Rest: bus.RestDrain})
			s.stop(w, bus.Stop{Rest: bus.RestResume})
			time.Sleep(time.Second)
			if a := s.push(w, s.started(w, "j")); len(a.Refused) != 1 {
				t.Errorf("it answers %+v", a)
			}
			g.open <- nil
		}()
		stop()
	})
}
