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
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
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

// A request that reaches the next leader after its sender has stopped waiting is not executed there either: that leader
// does not know the clock of the time in it. One in time is sent again at once, with a time that it knows.
func TestARequestForTheLeaderBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fixture{hub: membus.New(), store: memstore.Open(memstore.Config{})}
		serve := func() (ends context.CancelFunc) {
			ctx, ends := context.WithCancel(t.Context())
			if err := Serve(ctx, h.hub.As(node), h.store, Config{}); err != nil {
				t.Fatal(err)
			}
			return ends
		}
		ends := serve()
		h.must(t, h.as(worker), register("billing", "billing", "charge"))
		calls := &line{Calls: h.hub.As(client)}
		held := &holding{Calls: calls}
		s := New(held, client)
		h.must(t, s, kernel.Create{ID: jobs.ID{1}, Key: "charge"}) // the client learns the time of the first leader

		held.holdNext()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ends()
		synctest.Wait()
		if r := s.Apply(ctx, creates(2, 1, ""))[0]; r.Err == nil {
			t.Fatal("there is no leader, and the request is answered")
		}
		time.Sleep(2 * patience)
		ends = serve()
		defer ends()
		if answer, err := calls.Calls.Call(t.Context(), bus.ServiceStore, held.request()); err != nil || len(answer) != answersHead {
			t.Errorf("a request a minute late is answered by the next leader with %d bytes, %v", len(answer), err)
		}
		first := appendApply(nil, askApply, creates(5, 1, "")) // of a client that knows no time yet
		if answer, err := calls.Calls.Call(t.Context(), bus.ServiceStore, first); err != nil || len(answer) != answersHead {
			t.Errorf("a first request is answered with %d bytes, %v", len(answer), err)
		}
		if n := live(t, h.store); n != 1 {
			t.Errorf("there are %d runs, want 1", n)
		}

		before, began := calls.calls.Load(), time.Now()
		h.must(t, s, kernel.Create{ID: jobs.ID{3}, Key: "charge"})
		h.must(t, s, kernel.Create{ID: jobs.ID{4}, Key: "charge"})
		if n := calls.calls.Load() - before; n != 3 || time.Since(began) > 0 {
			t.Errorf("two requests to the next leader take %d calls and %v, want 3 and no pause", n, time.Since(began))
		}
	})
}

// Two servers that get the requests in turn, such as a leader and one that does not know that it is none, keep nothing
// from being done.
func TestTwoServersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, l := open(t)
		if err := Serve(t.Context(), h.hub.As(node), h.store, Config{}); err != nil {
			t.Fatal(err)
		}
		s, began := New(l, node), time.Now()
		for i := range 5 {
			allDone(t, s.Apply(t.Context(), creates(i, 1, "")))
		}
		if n := l.calls.Load(); n != 5+heardServers || time.Since(began) > 0 {
			t.Errorf("five requests take %d calls and %v, want one more for each server and no pause", n, time.Since(began))
		}
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
