package api_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// feed is a Live that sends the changes of a test.
type feed struct{ news chan bus.Changes }

func (feed) Workers(jobs.Tenant) []ops.Worker                      { return nil }
func (feed) Refusals(jobs.Tenant) []ops.Refusals                   { return nil }
func (feed) Shares() []ops.Share                                   { return nil }
func (feed) Nodes() []ops.Node                                     { return nil }
func (feed) Attempt(jobs.Tenant, jobs.ID) (a ops.Attempt, ok bool) { return }
func (feed) Leader() ops.Leader                                    { return ops.Leader{Node: "n"} }
func (feed) Pulse(jobs.Tenant) []ops.Minute                        { return nil }
func (f feed) Watch(ctx context.Context, _ jobs.Tenant, fn func(bus.Changes)) {
	for {
		select {
		case n := <-f.news:
			fn(n)
		case <-ctx.Done():
			return
		}
	}
}

// reader is a client of a stream.
type reader struct {
	*httptest.ResponseRecorder
	broken atomic.Bool // it does not read
}

func (r *reader) Write(b []byte) (int, error) {
	if r.broken.Load() {
		return 0, errors.New("i/o timeout")
	}
	return r.ResponseRecorder.Write(b)
}

func ended(done chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, live := newFixture(t), feed{make(chan bus.Changes)}
		var gone atomic.Bool
		d.Handler = api.New(api.Config{Ops: ops.New(ops.Config{Store: d.store, Live: live}), Who: func(*http.Request) (ops.Who, error) {
			if gone.Load() {
				return ops.Who{}, ops.ErrNotKnown
			}
			return ops.Who{Actor: "person:ann", Role: ops.Viewer}, nil
		}})
		listen := func() (*reader, context.CancelFunc, chan struct{}) {
			ctx, cancel := context.WithCancel(t.Context())
			r, done := &reader{ResponseRecorder: httptest.NewRecorder()}, make(chan struct{})
			go func() {
				defer close(done)
				d.ServeHTTP(r, httptest.NewRequestWithContext(ctx, "GET", "/api/v1/events", nil))
			}()
			synctest.Wait()
			return r, cancel, done
		}
		r, cancel, done := listen()
		run := jobs.NewID(time.Now())
		live.news <- bus.Changes{Keys: []jobs.Key{"a.b"}, Runs: []jobs.ID{run}}
		synctest.Wait()
		live.news <- bus.Changes{Many: true, Runs: []jobs.ID{run}}
		time.Sleep(time.Second)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		want := "retry: 1000\nevent: resync\ndata: {}\n\n" +
			`event: change` + "\n" + `data: {"jobs":["a.b"],"runs":["` + run.String() + `"]}` + "\n\n" +
			"event: resync\ndata: {}\n\n" + ": still here\n\n"
		if got := r.Body.String(); got != want || r.Header().Get("Content-Type") != "text/event-stream" {
			t.Errorf("%q\nwant %q", got, want)
		}
		cancel()
		<-done

		// Row 13: twenty of one principal, and no more; a place that is left is free again.
		var leave []context.CancelFunc
		for range 20 {
			_, cancel, _ := listen()
			leave = append(leave, cancel)
		}
		over, cancel, done := listen()
		if !ended(done) || over.Code != 429 || over.Header().Get("Retry-After") == "" {
			t.Errorf("the 21st stream: %d", over.Code)
		}
		cancel()
		leave[0]()
		synctest.Wait()
		r, cancel, done = listen()
		if r.Code != 200 {
			t.Errorf("after one has left: %d", r.Code)
		}
		// Who does not read is let go.
		r.broken.Store(true)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if !ended(done) {
			t.Error("a reader that does not read keeps its stream")
		}
		cancel()
		// Who is not known any more is let go, too.
		r, cancel, done = listen()
		gone.Store(true)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if !ended(done) || strings.Count(r.Body.String(), "event") != 1 {
			t.Errorf("a session that has ended keeps its stream: %s", r.Body)
		}
		cancel()
		for _, l := range leave {
			l()
		}
	})
}
