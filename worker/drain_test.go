package worker_test

import (
	"context"
	"encoding/json"
	"errors"
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
			s.set(func(s *stage) { s.quiet = true })
			o := offerOf(s.row(s.create("j", struct{}{})))
			s.must(s.node.Offer(context.Background(), s.queue, bus.Lane{Tenant: jobs.DefaultTenant, App: "default"}, []bus.Offer{o}))
			synctest.Wait()
			if n := len(sent[kernel.Claim](s)); n != 1 {
				t.Errorf("%d claims: one was made while draining", n)
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

// A store that does not answer delays a draining worker for a moment only.
func TestDrainWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		_, stop := s.start(worker.Config{Grace: 10 * time.Second}, handler(jobs.Options{}, func(context.Context, json.RawMessage) error { return nil }))
		s.intercept(unavailable(kernel.VerbFinish))
		s.create("j", struct{}{})
		synctest.Wait()
		s.set(func(s *stage) { s.silent = true })
		if took := leave(stop); took > 20*time.Second {
			t.Errorf("left after %v", took)
		}
	})
}

// A run whose claim succeeds while the worker drains is not begun: another worker gets it at once.
func TestAClaimThatSucceedsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		_, stop := s.start(worker.Config{}, handler(jobs.Options{}, g.run))
		s.set(func(s *stage) { s.quiet = true })
		s.intercept(func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result {
			if batch[0].Command.Verb() == kernel.VerbClaim {
				time.Sleep(time.Second)
			}
			return apply()
		})
		id := s.create("j", struct{}{})
		s.offer(offerOf(s.row(id)))
		synctest.Wait()
		leave(stop)
		if run := s.wantState(id, jobs.Failed, kernel.ByHandback); run.Lingering || g.inside() > 0 {
			t.Errorf("%d handlers were called, lingering %v", g.inside(), run.Lingering)
		}
	})
}
