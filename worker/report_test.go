package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

// An outage of a minute: runs continue, and those that end meanwhile are reported afterwards, with their results, once.
func TestResultsOutliveAnOutage(t *testing.T) {
	for _, code := range []jobs.Code{jobs.Unavailable, jobs.Unknown} {
		t.Run(string(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				g := newGate()
				w, _ := s.start(worker.Config{Slots: 2}, handler(jobs.Options{}, func(ctx context.Context, args json.RawMessage) error {
					if err := g.run(ctx, args); err != nil {
						return err
					}
					return jobs.Result(ctx, 42)
				}))
				ends, goesOn := s.create("j", struct{}{}), s.create("j", struct{}{})
				g.inside()
				var tries atomic.Int64
				s.set(func(s *stage) { s.silent = true })
				s.intercept(func(batch []kernel.Envelope, _ func() []metastore.Result) []metastore.Result {
					tries.Add(1)
					return metastore.Refused(batch, kernel.Refuse(code, "no answer"))
				})
				g.open <- nil
				time.Sleep(time.Minute)
				if b := s.lastHeartbeat(); len(b.Running) != 2 {
					t.Errorf("the heartbeat names %d attempts, want both: their leases matter", len(b.Running))
				}
				if st := w.Stats(); st.Running != 1 || st.Free != 1 {
					t.Errorf("stats are %+v, want one running and one slot free", st)
				}
				if n := tries.Load(); n > 60 {
					t.Errorf("%d tries in a minute", n)
				}
				s.set(func(s *stage) { s.silent = false })
				s.intercept(nil)
				time.Sleep(4 * time.Second)
				done, left := s.row(ends), s.row(goesOn)
				if done.State == jobs.Processing {
					done, left = left, done
				}
				if done.State != jobs.Succeeded || string(done.Result) != "42" || left.State != jobs.Processing {
					t.Errorf("runs are %s with %s, and %s", done.State, done.Result, left.State)
				}
				wantErr(t, g.cause(1), nil)
				g.open <- nil
				s.wantState(left.ID, jobs.Succeeded, "")
				if n := len(sent[kernel.Finish](s)); n != 2 {
					t.Errorf("%d reports reached the store", n)
				}
			})
		})
	}
}

// The store has taken a report and its answer was lost: the same command again gets the same answer.
func TestAReportWhoseAnswerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		w, _ := s.start(worker.Config{}, handler(jobs.Options{}, func(context.Context, json.RawMessage) error { return errors.New("no money") }))
		var ids []jobs.ID
		s.intercept(func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result {
			results := apply()
			if batch[0].Command.Verb() == kernel.VerbFinish {
				if ids = append(ids, batch[0].ID); len(ids) == 1 {
					return metastore.Refused(batch, kernel.Refuse(jobs.Unknown, "no answer"))
				}
			}
			return results
		})
		id := s.create("j", struct{}{})
		s.wantStateAfter(time.Second, id, jobs.Terminated, kernel.ByError)
		if len(ids) != 2 || ids[0] != ids[1] {
			t.Errorf("envelopes %v, want the same twice", ids)
		}
		wantFinished(t, w, map[kernel.Outcome]uint64{kernel.OutcomeError: 1})
	})
}

// The leader times an attempt out a moment before its worker reports the same: the slots are free all the same.
func TestBothReportTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.start(worker.Config{}, handler(jobs.Options{Timeout: time.Minute}, func(ctx context.Context, _ json.RawMessage) error {
			<-ctx.Done()
			return ctx.Err()
		}))
		id := s.create("j", struct{}{})
		s.intercept(func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result {
			if batch[0].Command.Verb() == kernel.VerbFinish {
				s.do(kernel.Expire{ID: id, Attempt: 1, Cause: kernel.ByTimeout})
			}
			return apply()
		})
		if run := s.wantStateAfter(time.Minute, id, jobs.Terminated, kernel.ByTimeout); run.Lingering {
			t.Error("the run waits for a handler that has returned")
		}
	})
}

// Another attempt has taken over: the reports of this one are refused, and forgotten.
func TestALateAttemptChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{}, handler(jobs.Options{}, func(ctx context.Context, args json.RawMessage) error {
			err := g.run(ctx, args)
			return errors.Join(err, jobs.Save(ctx, "late"))
		}))
		id := s.create("j", struct{}{})
		g.inside()
		s.set(func(s *stage) { s.quiet = true })
		s.do(kernel.Expire{ID: id, Attempt: 1, Cause: kernel.ByLoss})
		s.do(kernel.Start{ID: id, Worker: "other-1", Attempt: 2})
		g.open <- nil
		run := s.wantState(id, jobs.Processing, "")
		if run.Worker != "other-1" || run.Checkpoint != nil {
			t.Errorf("the late attempt left its mark: %+v", run)
		}
		if st := w.Stats(); st.Stopped != 1 || st.Running != 0 || len(st.Finished) != 0 {
			t.Errorf("stats are %+v", st)
		}
	})
}

// No leader answers any more: runs of jobs with LeaseCancel are cancelled before their lease expires, the others
// continue.
func TestALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		causes := make(chan error, 1)
		s.start(worker.Config{},
			handler(jobs.Options{}, g.run),
			handler(jobs.Options{Key: "careful", LeaseLost: jobs.LeaseCancel}, heedful(causes)))
		steady, careful := s.create("j", struct{}{}), s.create("careful", struct{}{})
		time.Sleep(time.Minute) // heartbeats are answered: the lease holds
		synctest.Wait()
		if len(causes) > 0 {
			t.Fatal("cancelled although heartbeats are answered")
		}
		s.set(func(s *stage) { s.silent, s.quiet = true, true })
		last := time.Now() // and so was the last answered heartbeat sent
		wantErr(t, <-causes, jobs.ErrLeaseLost)
		if d := time.Since(last); d < 9*time.Second || d > 12*time.Second {
			t.Errorf("cancelled %v after the last answer, want 12 s after the heartbeat it answered", d)
		}
		wantErr(t, g.cause(0), nil)
		// The run is given back: losing the lease is no failure of its own.
		if run := s.wantState(careful, jobs.Failed, kernel.ByHandback); run.Failures != 0 || run.Lingering {
			t.Errorf("%d failures, lingering %v", run.Failures, run.Lingering)
		}
		s.set(func(s *stage) { s.silent = false })
		g.open <- nil
		s.wantStateAfter(3*time.Second, steady, jobs.Succeeded, "")
	})
}

// An attempt that no heartbeat has named is the worker's for a lease from the heartbeat that its push followed.
func TestALeaseCountsFromTheHeartbeatBeforeThePush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		causes := make(chan error, 1)
		w, _ := s.start(worker.Config{}, handler(jobs.Options{LeaseLost: jobs.LeaseCancel}, heedful(causes)))
		time.Sleep(6 * time.Second)
		synctest.Wait()
		heartbeat := time.Now()
		run := s.started(w, "j")
		s.set(func(s *stage) { s.silent = true })
		time.Sleep(8 * time.Second) // others have no answer
		s.push(w, run)
		wantErr(t, <-causes, jobs.ErrLeaseLost)
		if d := time.Since(heartbeat); d != 12*time.Second {
			t.Errorf("cancelled %v after the heartbeat, want 12 s: its lease is 15 s, and a heartbeat's time is left to the handler", d)
		}
		s.set(func(s *stage) { s.silent = false })
	})
}
