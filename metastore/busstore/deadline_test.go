package busstore

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// holding is a bus that delays the request of one call, as the socket of a frozen process does. Its caller waits in
// vain, and the next call reaches another server.
type holding struct {
	bus.Calls
	mu   sync.Mutex
	hold bool
	held []byte
}

func (l *holding) holdNext() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold = true
}

// holds takes a request if it is to be delayed.
func (l *holding) holds(request []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.hold
	if held {
		l.hold, l.held = false, bytes.Clone(request)
	}
	return held
}

func (l *holding) request() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

func (l *holding) Call(ctx context.Context, service string, request []byte) ([]byte, error) {
	if l.holds(request) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return l.Calls.Call(ctx, service, request)
}

// A copy of a request that arrives after its sender has stopped waiting is not executed, however late it is.
func TestLateRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := open(t)
		l := &holding{Calls: h.hub.As(client)}
		s, people := New(l, client), h.as(node)
		late := func() error { // the frozen process continues
			t.Helper()
			answer, err := l.Calls.Call(t.Context(), bus.ServiceStore, l.request())
			if err != nil {
				t.Fatal(err)
			}
			results, _, err := decodeAnswers(answer, 1)
			if err != nil {
				t.Fatal(err)
			}
			return results[0].Err
		}
		create := func(n byte) (jobs.ID, kernel.Effect) {
			id := jobs.ID{n}
			return id, h.must(t, s, kernel.Create{ID: id, Key: "charge", Unique: "c7"})
		}
		first, _ := create(1) // from the answer, the client learns the server's time
		l.holdNext()
		second, e := create(2)
		if run := e.Run(); run == nil || run.ID != first {
			t.Fatalf("a second request under the key is answered with %+v", e)
		}
		h.must(t, people, kernel.Cancel{ID: first})
		time.Sleep(10 * time.Minute) // no memory of the answer lasts so long
		h.must(t, people, kernel.Pause{Key: "charge", Reason: "a rest"})
		if err := late(); !errors.Is(err, jobs.Unavailable) {
			t.Errorf("a request ten minutes late is answered with %v", err)
		}
		if run, err := h.store.Run(t.Context(), jobs.DefaultTenant, second); !errors.Is(err, jobs.NotFound) {
			t.Errorf("a request ten minutes late has made %+v (%v)", run, err)
		}

		// A change that was repeated elsewhere does not undo a later one of another client.
		l.Calls = h.hub.As(node)
		s = New(l, node)
		h.must(t, s, kernel.Edit{Key: "charge", Set: kernel.Settings{Priority: new(1)}})
		l.holdNext()
		h.must(t, s, kernel.Edit{Key: "charge", Set: kernel.Settings{Priority: new(2)}})
		h.must(t, people, kernel.Edit{Key: "charge", Set: kernel.Settings{Priority: new(3)}})
		time.Sleep(attempt)
		if err := late(); !errors.Is(err, jobs.Unavailable) {
			t.Errorf("an edit that comes late is answered with %v", err)
		}
		if d, err := h.store.Definition(t.Context(), jobs.DefaultTenant, "charge"); err != nil || d.Policy.Priority != 3 {
			t.Errorf("after an edit that came late, the priority is %d: %v", d.Policy.Priority, err)
		}

		// One that is on its way no longer than its sender waits is executed.
		l.holdNext()
		go func() {
			time.Sleep(attempt - time.Second)
			if err := late(); err != nil {
				t.Errorf("a request in time is answered with %v", err)
			}
		}()
		h.must(t, s, kernel.Edit{Key: "charge", Set: kernel.Settings{Priority: new(4)}})
	})
}

// The clock that measures the age of requests is never slower than the wall clock, which runs while a machine is
// suspended, nor than the steady one, which cannot be set back.
func TestTheClockOfDeadlines(t *testing.T) {
	c := &clock{}
	for i, step := range []struct{ steady, wall, want time.Duration }{
		{time.Second, time.Second, time.Second},
		{2 * time.Second, 2 * time.Second, 2 * time.Second},
		{3 * time.Second, time.Hour, time.Hour},                                 // it was suspended, or set ahead
		{4 * time.Second, time.Minute, time.Hour + time.Second},                 // it was set back
		{5 * time.Second, time.Minute + time.Second, time.Hour + 2*time.Second}, // and continues
	} {
		if got := c.advance(step.steady, step.wall); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}
