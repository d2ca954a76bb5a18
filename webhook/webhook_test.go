package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// receiver takes events, or does not, as the test says.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	events []Event
	heads  []http.Header
	bodies [][]byte
	answer func(n int) int // the status of the nth answer; nil = always 204
	came   chan struct{}
}

func newReceiver(t *testing.T, answer func(n int) int) *receiver {
	r := &receiver{answer: answer, came: make(chan struct{}, 10_000)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var e Event
		if err != nil || req.Method != "POST" || json.Unmarshal(body, &e) != nil {
			t.Errorf("%s of %q: %v", req.Method, body, err)
		}
		r.mu.Lock()
		n := len(r.events)
		r.events, r.heads, r.bodies = append(r.events, e), append(r.heads, req.Header), append(r.bodies, body)
		r.mu.Unlock()
		if r.answer == nil {
			w.WriteHeader(http.StatusNoContent)
		} else if status := r.answer(n); status >= 300 && status < 400 {
			http.Redirect(w, req, "/elsewhere", status)
		} else {
			w.WriteHeader(status)
		}
		r.came <- struct{}{}
	}))
	t.Cleanup(r.Close)
	return r
}

// await waits until so many requests have come, and answers with all events.
func (r *receiver) await(t *testing.T, n int) []Event {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		r.mu.Lock()
		if len(r.events) >= n {
			defer r.mu.Unlock()
			return append([]Event(nil), r.events...)
		}
		r.mu.Unlock()
		select {
		case <-r.came:
		case <-timeout:
			t.Fatalf("%d events have come, want %d", len(r.events), n)
		}
	}
}

// run creates a poster and runs it; stop waits until it has ended. It waits long for a receiver without processor time:
// otherwise an event could be retried or lost at the end, which is not what the test is about.
func run(t *testing.T, c Config) (p *Poster, stop func()) {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	p.client.Timeout, p.last = time.Minute, time.Minute
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return p, stop
}

func terminated(key jobs.Key) *kernel.Run {
	return &kernel.Run{Tenant: "default", ID: jobs.NewID(time.Now()), Key: key, State: jobs.Terminated, Cause: kernel.ByError, Attempt: 3,
		Error: "no " + strings.Repeat("x", 5000), Ended: time.Now()}
}

var secret = []byte("sixteen bytes or more")

// An event describes what happened, and its signature is valid for no other body.
func TestEvents(t *testing.T) {
	r := newReceiver(t, nil)
	p, _ := run(t, Config{URL: r.URL, Secret: secret, Page: "https://jobs.example.com"})
	in := terminated("a.b")
	p.Ended(in)
	e := r.await(t, 1)[0]
	if e.ID != in.ID.String()+"-3" || e.Event != "run.terminated" || e.Tenant != "default" || e.Job != "a.b" || e.Run != in.ID.String() || e.Attempt != 3 ||
		e.Cause != "error" || len(e.Error) != 2048 || !e.Ended.Equal(in.Ended) || e.URL != "https://jobs.example.com/runs/"+in.ID.String() || e.From != nil {
		t.Errorf("it says %+v", e)
	}
	due := time.Now().Add(-time.Hour)
	p.Missed("default", "c.d", kernel.Missed{From: due, To: due.Add(time.Minute), Count: 2, Reason: kernel.MissedPaused})
	p.Missed("default", "c.d", kernel.Missed{From: due, To: due.Add(time.Minute), Count: 2, Reason: kernel.MissedLate})
	if e := r.await(t, 2)[1]; e.Event != "due.missed" || e.Job != "c.d" || e.Count != 2 || !e.From.Equal(due) || e.Run != "" || e.ID == "" {
		t.Errorf("it says %+v", e)
	}
	held := &kernel.Held{By: "person:ann", Reason: "3 runs in a row failed", At: due}
	d := &kernel.Definition{Tenant: "default", Key: "e.f", Paused: held}
	p.Paused(d)
	held.By = kernel.ByItself
	p.Paused(d)
	if e := r.await(t, 3)[2]; e.Event != "job.paused" || e.Job != "e.f" || e.Reason != held.Reason || e.URL != "https://jobs.example.com/jobs/e.f" || e.ID == "" {
		t.Errorf("it says %+v", e)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, head := range r.heads {
		said := head.Get(SignatureHeader)
		if err := Verify(secret, said, r.bodies[i], time.Now()); err != nil || head.Get("Carillon-Event-Id") != r.events[i].ID {
			t.Errorf("%v: %v", head, err)
		}
		for name, err := range map[string]error{
			"another secret":    Verify([]byte("another secret of mine"), said, r.bodies[i], time.Now()),
			"another body":      Verify(secret, said, append(r.bodies[i], ' '), time.Now()),
			"another time":      Verify(secret, strings.Replace(said, "t=1", "t=2", 1), r.bodies[i], time.Now()),
			"much later":        Verify(secret, said, r.bodies[i], time.Now().Add(Tolerance+2*time.Second)),
			"signature missing": Verify(secret, "", r.bodies[i], time.Now()),
			"half a one":        Verify(secret, said[:len(said)-1], r.bodies[i], time.Now()),
			"an empty one":      Verify(secret, "t=0,v1=", r.bodies[i], time.Unix(0, 0)),
		} {
			if err == nil {
				t.Errorf("%s is taken", name)
			}
		}
	}
}

// comes waits until what a poster counts is as it should be.
func comes(t *testing.T, p *Poster, ok func(Stats) bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(p.Stats()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it came to %+v", p.Stats())
		}
	}
}

// What may help is tried again with the same id, what cannot is not, and a redirect is not followed.
func TestTries(t *testing.T) {
	for _, c := range []struct {
		name   string
		status func(n int) int
		asked  int
		want   Stats
	}{
		{"busy, then taken", func(n int) int { return []int{503, 204}[n] }, 2, Stats{Sent: 1}},
		{"refused", func(int) int { return 400 }, 1, Stats{Failed: 1}},
		{"elsewhere", func(int) int { return 307 }, 1, Stats{Failed: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t, c.status)
			p, _ := run(t, Config{URL: r.URL})
			p.Ended(terminated("a.b"))
			events := r.await(t, c.asked)
			comes(t, p, func(s Stats) bool { return s == c.want })
			if len(r.await(t, c.asked)) != c.asked || events[0].ID != events[len(events)-1].ID {
				t.Errorf("%d events came: %+v", len(events), events)
			}
		})
	}
}

// A job that keeps failing has one event in an interval, with the number of the others; another job has its own at
// once.
func TestInterval(t *testing.T) {
	r := newReceiver(t, nil)
	p, stop := run(t, Config{URL: r.URL, Interval: time.Hour})
	var last *kernel.Run
	for range 5 {
		last = terminated("a.b")
		p.Ended(last)
	}
	p.Ended(terminated("c.d"))
	r.await(t, 2) // the first of each
	p.mu.Lock()
	p.recent["default/a.b"].until = time.Now().Add(-time.Second) // the hour is over
	p.mu.Unlock()
	poke(p.moved)
	events := r.await(t, 3)
	byJob := map[jobs.Key][]Event{}
	for _, e := range events {
		byJob[e.Job] = append(byJob[e.Job], e)
	}
	if sent := byJob["a.b"]; len(sent) != 2 || sent[0].More != 0 || sent[1].More != 3 || sent[1].Run != last.ID.String() || len(byJob["c.d"]) != 1 {
		t.Errorf("sent %+v", byJob)
	}
	p.Ended(terminated("a.b")) // held, and sent when the process ends
	stop()
	if n := len(r.await(t, 4)); n != 4 {
		t.Errorf("%d events came", n)
	}
	if got := p.Stats(); got != (Stats{Sent: 4}) {
		t.Errorf("it came to %+v", got)
	}
}

// A receiver that does not answer delays no caller: excess events are dropped, and counted.
func TestNothingWaits(t *testing.T) {
	block := make(chan struct{})
	r := newReceiver(t, func(int) int { <-block; return 204 })
	p, stop := run(t, Config{URL: r.URL})
	for range mostWaiting + senders + 100 { // if one of them waited, block would never be closed
		p.Ended(terminated("a.b"))
	}
	if got := p.Stats(); got.Dropped < 100 || got.Dropped > 100+senders || got.Waiting > mostWaiting {
		t.Errorf("it came to %+v", got)
	}
	close(block)
	comes(t, p, func(s Stats) bool { return s.Sent+s.Dropped == mostWaiting+senders+100 })
	stop()
	if got := p.Stats(); got.Waiting != 0 || got.Sent+got.Dropped != mostWaiting+senders+100 {
		t.Errorf("at the end it came to %+v", got)
	}
}

// What is secret is in no line of the log, and what cannot work is refused in words without it.
func TestSecretsAreNotRevealed(t *testing.T) {
	var said strings.Builder
	r := newReceiver(t, nil)
	there := strings.Replace(r.URL, "http://", "http://user:hidden@", 1) + "/hidden?token=hidden"
	r.Close() // no receiver
	p, err := New(Config{URL: there, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.Ended(terminated("a.b"))
	p.Run(ctx)
	if !strings.Contains(said.String(), "a.b") || strings.Contains(said.String(), "hidden") {
		t.Errorf("it logs %s", &said)
	}
	for _, bad := range []Config{{URL: "ftp://hidden"}, {URL: "hidden"}, {URL: "http://"}, {URL: ":hidden"}, {URL: "http://a", Secret: []byte("hidden")}, {URL: "http://a", Interval: -1}} {
		if _, err := New(bad); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// An event that was held when the interval of its job ended is counted in the next event, if release has not run yet.
// looked.
func TestNothingHeldIsForgotten(t *testing.T) {
	p, err := New(Config{URL: "http://127.0.0.1:9/", Interval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	e := Event{Tenant: "t", Job: "k"}
	for range 3 { // one goes out, two are held
		p.take(e)
	}
	for _, held := range p.recent {
		held.until = time.Now().Add(-time.Second)
	}
	p.take(e)
	if first, next := <-p.queue, <-p.queue; first.More != 0 || next.More != 2 || len(p.queue) != 0 {
		t.Errorf("sent %d and %d more, %d wait", first.More, next.More, len(p.queue))
	}
}

// Events go to a function, with the retries of a POST.
func TestDeliver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type call struct {
			at time.Duration
			id string
		}
		begun := time.Now()
		var calls []call
		p, err := New(Config{Address: "slack", Deliver: func(_ context.Context, e Event) (time.Duration, error) {
			calls = append(calls, call{time.Since(begun), e.Event})
			switch {
			case e.Event == "job.paused":
				return -1, errors.New("no such channel")
			case len(calls) == 1:
				return 30 * time.Second, errors.New("too many")
			}
			return 0, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		p.Ended(&kernel.Run{Key: "a", State: jobs.Terminated})
		time.Sleep(time.Minute)
		p.Paused(&kernel.Definition{Key: "a", Paused: &kernel.Held{By: kernel.ByItself}})
		synctest.Wait()
		stop()
		running.Wait()
		if want := []call{{0, "run.terminated"}, {30 * time.Second, "run.terminated"}, {time.Minute, "job.paused"}}; !slices.Equal(calls, want) {
			t.Errorf("calls %v, want %v", calls, want)
		}
		if got := p.Stats(); got.Sent != 1 || got.Failed != 1 {
			t.Errorf("stats %+v", got)
		}
	})
	if _, err := New(Config{URL: "https://example.com", Deliver: func(context.Context, Event) (time.Duration, error) { return 0, nil }}); err == nil {
		t.Error("both a URL and a function")
	}
}
