package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metrics"
)

// watched is a control plane that leads, as far as it is watched.
func watched(t *testing.T, hub *membus.Hub) metrics.Config {
	t.Helper()
	rows := memstore.Open(memstore.Config{})
	cp, err := controlplane.New(controlplane.Config{Store: rows, Bus: hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cp.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return metrics.Config{Version: "v1", Plane: cp, Rows: rows}
}

func read(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if answer.Code != 200 {
		t.Fatalf("status %d: %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// Apps are bounded: those beyond are one, and their workers are counted all the same.
func TestApps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := membus.New()
		m := metrics.New(watched(t, hub))
		synctest.Wait()
		for i := range 70 {
			name := fmt.Sprintf("w%d", i)
			b := hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: name})
			heartbeat := bus.Heartbeat{Worker: name + "-abcdefgh", Info: &bus.WorkerInfo{App: fmt.Sprintf("app%02d", i), Slots: 2}}
			if _, err := b.Call(t.Context(), bus.ServiceHeartbeat, bus.Encode(heartbeat)); err != nil {
				t.Fatal(err)
			}
		}
		text := read(t, m)
		if n := strings.Count(text, "\ncarillon_workers{"); n != 51 {
			t.Errorf("%d apps have series of their own", n)
		}
		for _, want := range []string{`carillon_workers{app="app00",tenant="default"} 1`, `carillon_workers{app="(other)",tenant="(other)"} 20`,
			`carillon_worker_slots{app="(other)",tenant="(other)"} 40`, "carillon_heartbeats_total 70"} {
			if !strings.Contains(text, "\n"+want+"\n") {
				t.Errorf("%s is missing", want)
			}
		}
	})
}

// Requests are counted by their route, streams while they are open, panics as what they become.
func TestRequests(t *testing.T) {
	c := watched(t, membus.New())
	c.Route = func(r *http.Request) string { return strings.Trim(r.URL.Path, "0123456789") }
	m := metrics.New(c)
	open, release := make(chan struct{}), make(chan struct{})
	inner := m.Requests(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panic":
			panic("oh")
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			close(open)
			<-release
			_, _ = io.WriteString(w, "data: 1\n\n")
		case "/missing":
			http.NotFound(w, r)
		}
	}))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { _ = recover() }()
		inner.ServeHTTP(w, r)
	})
	ask := func(path string) { handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)) }
	done := make(chan struct{})
	go func() { defer close(done); ask("/events") }()
	<-open
	for _, path := range []string{"/runs/1", "/runs/2", "/panic", "/missing"} {
		ask(path)
	}
	if text := read(t, m); !strings.Contains(text, "\ncarillon_http_streams 1\n") {
		t.Error("the open stream is not counted")
	}
	close(release)
	<-done
	text := read(t, m)
	for _, want := range []string{`carillon_http_streams 0`, `carillon_http_requests_total{route="/runs/",status="2xx"} 2`, `carillon_http_requests_total{route="/panic",status="5xx"} 1`,
		`carillon_http_requests_total{route="/missing",status="4xx"} 1`, `carillon_http_requests_total{route="/events",status="2xx"} 1`, `carillon_http_request_seconds_count{route="/runs/"} 2`} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
	if strings.Contains(text, `carillon_http_request_seconds_count{route="/events"}`) {
		t.Error("a stream is counted as a slow request")
	}
}

// Jobs have series of their own if the configuration names them; those beyond the limit have none.
func TestNamedJobs(t *testing.T) {
	c := watched(t, membus.New())
	apply := func(k kernel.Command) {
		t.Helper()
		r := c.Rows.(metastore.Full).Apply(t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "test", Command: k}})[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	for i := range 250 {
		apply(kernel.Register{App: "shop", Worker: "w1", Start: true, Job: kernel.Declaration{Key: jobs.Key(fmt.Sprintf("bulk.%03d", i)), Kind: kernel.Triggered}})
	}
	for _, key := range []jobs.Key{"shop.pack", "shop.bad", "shop.other"} {
		apply(kernel.Register{App: "shop", Worker: "w1", Start: true, Job: kernel.Declaration{Key: key, Kind: kernel.Triggered}})
	}
	for key, outcome := range map[jobs.Key]kernel.Outcome{"shop.pack": kernel.OutcomeSuccess, "shop.bad": kernel.OutcomeError} {
		id := jobs.NewID(time.Now())
		apply(kernel.Create{ID: id, Key: key, Retries: new(0)})
		apply(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
		apply(kernel.Finish{ID: id, Worker: "w1", Attempt: 1, Outcome: outcome, Error: "no"})
	}
	apply(kernel.Pause{Key: "shop.bad"})
	c.Jobs = []string{"shop.pack", "shop.b*"}
	text := read(t, metrics.New(c))
	for want, there := range map[string]bool{
		`carillon_job_last_success_timestamp_seconds{app="shop",key="shop.pack",tenant="default"}`: true,
		`carillon_job_last_success_timestamp_seconds{app="shop",key="shop.bad",tenant="default"}`:  false,
		`carillon_job_last_failure_timestamp_seconds{app="shop",key="shop.bad",tenant="default"}`:  true,
		`carillon_job_paused{app="shop",key="shop.bad",tenant="default"} 1`:                        true,
		`carillon_job_paused{app="shop",key="shop.pack",tenant="default"} 0`:                       true,
		`shop.other`: false, `bulk.`: false,
	} {
		if strings.Contains(text, want) != there {
			t.Errorf("%s is there: %v", want, !there)
		}
	}
	c.Jobs = []string{"bulk.*"}
	if n := strings.Count(read(t, metrics.New(c)), "\ncarillon_job_paused{"); n != 200 {
		t.Errorf("%d jobs have series of their own, want 200", n)
	}
}

// shop is a store with the jobs of an app, without workers, for the tests below.
type shop struct {
	t    *testing.T
	rows metastore.Full
	m    *metrics.Metrics
}

func (s shop) apply(k kernel.Command) {
	s.t.Helper()
	r := s.rows.Apply(s.t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "test", Command: k}})[0]
	if r.Err != nil {
		s.t.Fatal(r.Err)
	}
}

func (s shop) create(key jobs.Key, n int, delay time.Duration) (ids []jobs.ID) {
	s.t.Helper()
	for range n {
		id := jobs.NewID(time.Now())
		s.apply(kernel.Create{ID: id, Key: key, Delay: delay})
		ids = append(ids, id)
	}
	return ids
}

func (s shop) want(when string, lines ...string) {
	s.t.Helper()
	text := read(s.t, s.m)
	for _, want := range lines {
		if !strings.Contains(text, "\n"+want+"\n") {
			s.t.Errorf("%s: %s is missing", when, want)
		}
	}
}

// Runs that wait for a worker's slot are the backlog, and those that a limit, a delay or a pause holds are not.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := membus.New()
		c := watched(t, hub)
		s := shop{t, c.Rows.(metastore.Full), metrics.New(c)}
		synctest.Wait()
		for _, j := range []kernel.Declaration{{Key: "shop.pack", Kind: kernel.Triggered},
			{Key: "shop.one", Kind: kernel.Triggered, Code: kernel.Settings{MaxConcurrency: new(1)}}, {Key: "shop.paused", Kind: kernel.Triggered}} {
			s.apply(kernel.Register{App: "shop", Worker: "w1", Start: true, Job: j})
		}
		s.apply(kernel.Pause{Key: "shop.paused"})
		packs := s.create("shop.pack", 5, 0)
		ones := s.create("shop.one", 3, 0)
		s.create("shop.pack", 7, time.Hour)
		s.create("shop.paused", 9, 0)
		of := `{app="shop",tenant="default"} `
		s.want("without workers", `carillon_backlog_runs`+of+"6", `carillon_backlog_oldest_seconds`+of+"0", `carillon_workers`+of+"0")
		time.Sleep(10 * time.Minute)
		s.want("later", `carillon_backlog_runs`+of+"6", `carillon_backlog_oldest_seconds`+of+"600")

		b := hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "w1"})
		heartbeat := func(worker string, slots int, running []jobs.ID) {
			t.Helper()
			h := bus.Heartbeat{Worker: worker, Info: &bus.WorkerInfo{App: "shop", Slots: slots}}
			for _, id := range running {
				h.Running = append(h.Running, bus.Held{ID: id, Attempt: 1})
			}
			if _, err := b.Call(t.Context(), bus.ServiceHeartbeat, bus.Encode(h)); err != nil {
				t.Fatal(err)
			}
		}
		take := append(packs[:4:4], ones[0])
		for _, id := range take {
			s.apply(kernel.Start{ID: id, Worker: "w1-abcdefgh", Attempt: 1})
		}
		heartbeat("w1-abcdefgh", 6, take)
		heartbeat("w1-unlimite", 0, nil)
		s.want("with a worker", `carillon_backlog_runs`+of+"1", `carillon_backlog_oldest_seconds`+of+"600", `carillon_workers_unlimited`+of+"1",
			`carillon_worker_slots`+of+"6", `carillon_worker_slots_free`+of+"1", `carillon_worker_runs`+of+"5")
		s.apply(kernel.Finish{ID: ones[0], Worker: "w1-abcdefgh", Attempt: 1, Outcome: kernel.OutcomeSuccess})
		s.apply(kernel.Cancel{ID: packs[4]})
		s.want("when a limit gives a slot", `carillon_backlog_runs`+of+"1", `carillon_backlog_oldest_seconds`+of+"0")
		for _, id := range ones[1:] {
			s.apply(kernel.Cancel{ID: id})
		}
		for _, id := range take[:4] {
			s.apply(kernel.Finish{ID: id, Worker: "w1-abcdefgh", Attempt: 1, Outcome: kernel.OutcomeSuccess})
		}
		s.want("after the work", `carillon_backlog_runs`+of+"0", `carillon_backlog_oldest_seconds`+of+"0")
		time.Sleep(20 * time.Minute)
		if text := read(t, s.m); strings.Contains(text, `app="shop"`) {
			t.Errorf("an app without workers and backlog keeps its series for ever: %s", regexp.MustCompile(`.*app="shop".*`).FindAllString(text, -1))
		}
	})
}

// A process that does not lead has no series of apps.
func TestAppsAreTheLeaders(t *testing.T) {
	rows := memstore.Open(memstore.Config{})
	s := shop{t, rows, nil}
	s.apply(kernel.Register{App: "shop", Worker: "w1", Start: true, Job: kernel.Declaration{Key: "shop.pack", Kind: kernel.Triggered}})
	s.create("shop.pack", 1, 0)
	cp, err := controlplane.New(controlplane.Config{Store: rows, Bus: membus.New().As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"})})
	if err != nil {
		t.Fatal(err)
	}
	if text := read(t, metrics.New(metrics.Config{Plane: cp, Rows: rows})); strings.Contains(text, `app="`) {
		t.Errorf("a follower exports what the leader knows: %s", text)
	}
}
