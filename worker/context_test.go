package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

type contextKey struct{}

// The context of a handler is made on its first use, and is the same by any way of using it.
func TestAHandlersContext(t *testing.T) {
	ways := map[string]func(context.Context) (context.Context, context.CancelFunc){
		"itself":  func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
		"a child": context.WithCancel,
		"a value": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithValue(ctx, contextKey{}, 1), func() {}
		},
		"a child of a child": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithTimeout(context.WithValue(ctx, contextKey{}, 1), time.Hour)
			child, end := context.WithCancelCause(ctx)
			return child, func() { end(nil); cancel() }
		},
		"its error first": func(ctx context.Context) (context.Context, context.CancelFunc) {
			if ctx.Err() != nil || context.Cause(ctx) != nil || ctx.Value(contextKey{}) != nil {
				panic("it has ended, or has a cause too early")
			}
			return ctx, func() {}
		},
	}
	for name, way := range ways {
		for _, timeout := range []time.Duration{500 * time.Millisecond, time.Minute} { // with a timer from the start, and with one that comes
			t.Run(fmt.Sprint(name, " ", timeout), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStage(t)
					begun := time.Now()
					var cause error
					s.start(worker.Config{}, handler(jobs.Options{Timeout: timeout}, func(ctx context.Context, _ json.RawMessage) error {
						if due, has := ctx.Deadline(); !has || due.Sub(begun) != timeout {
							t.Errorf("the deadline is %v (%t), want %v", due.Sub(begun), has, timeout)
						}
						if jobs.Attempt(ctx).Number != 1 {
							t.Errorf("the attempt is %+v", jobs.Attempt(ctx))
						}
						ctx, cancel := way(ctx)
						defer cancel()
						<-ctx.Done()
						cause = context.Cause(ctx)
						return ctx.Err()
					}))
					id := s.create("j", struct{}{})
					s.wantStateAfter(timeout, id, jobs.Terminated, kernel.ByTimeout)
					wantErr(t, cause, jobs.ErrTimeout)
				})
			})
		}
	}
}

// A context that is used for longer than the handler runs has ended, whether it was used before or not.
func TestAContextThatIsKept(t *testing.T) {
	for name, look := range map[string]func(context.Context){"seen before": func(ctx context.Context) { ctx.Done() }, "not seen before": func(context.Context) {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				var kept context.Context
				s.start(worker.Config{}, handler(jobs.Options{}, func(ctx context.Context, _ json.RawMessage) error {
					look(ctx)
					kept = ctx
					return nil
				}))
				s.wantState(s.create("j", struct{}{}), jobs.Succeeded, "")
				select {
				case <-kept.Done():
				default:
					t.Error("it goes on")
				}
				if !errors.Is(kept.Err(), context.Canceled) {
					t.Errorf("its error is %v", kept.Err())
				}
			})
		})
	}
}

// A handler that never looks at its context times out all the same: at its time, and for many others that came and
// went before it.
func TestAHandlerThatNeverLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		s.start(worker.Config{}, handler(jobs.Options{Key: "slow", Timeout: 10 * time.Second}, g.run),
			handler(jobs.Options{Key: "quick"}, func(context.Context, json.RawMessage) error { return nil }))
		s.create("quick", struct{}{})
		slow := s.create("slow", struct{}{})
		s.create("quick", struct{}{})
		s.wantStateAfter(10*time.Second+900*time.Millisecond, slow, jobs.Processing, "")
		s.wantStateAfter(200*time.Millisecond, slow, jobs.Terminated, kernel.ByTimeout)
		wantErr(t, g.cause(0), jobs.ErrTimeout)
		g.open <- nil
	})
}
