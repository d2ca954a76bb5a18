package ui_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// stream listens like a browser does; next waits for the next word that something has changed.
func stream(t *testing.T, server *httptest.Server) (next func()) {
	t.Helper()
	answer, err := server.Client().Get(server.URL + "/events")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	return func() {
		t.Helper()
		for lines.Scan() {
			if lines.Text() == "event: change" {
				return
			}
		}
		t.Errorf("the stream ended: %v", lines.Err())
	}
}

// Many requests for the same page cost one: it is rendered once, and clients that have it get 304. A change is visible
// at once all the same. Fragments live for a second, so many requests over a longer time cost one a second.
func TestFragmentsAreShared(t *testing.T) {
	s := newScene(t)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	next := stream(t, server)
	next()
	s.live.asked.Store(0)
	s.get("/workers", "X-Fragment", "1")
	once := s.live.asked.Swap(0)
	const readers = 200
	begun := time.Now()
	var all sync.WaitGroup
	for range readers {
		all.Go(func() { s.get("/workers", "X-Fragment", "1") })
	}
	all.Wait()
	if n, took := s.live.asked.Load(), time.Since(begun); n > once*int64(1+took/time.Second) {
		t.Errorf("%d readers of one page asked %d times within %v; one asks %d times", readers, n, took, once)
	}

	answer, body := s.get("/jobs/app.nightly", "X-Fragment", "1")
	tag := answer.Header.Get("ETag")
	if answer.StatusCode != 200 || tag == "" || regexp.MustCompile(`<time [^>]*data-rel>[^<]`).MatchString(body) {
		t.Fatalf("%d %q: it has words that change by themselves", answer.StatusCode, tag)
	}
	if answer, body := s.get("/jobs/app.nightly", "X-Fragment", "1", "If-None-Match", tag); answer.StatusCode != http.StatusNotModified || body != "" {
		t.Errorf("nothing has changed: %d", answer.StatusCode)
	}
	s.apply(kernel.Pause{Key: "app.nightly", Reason: "the new words"})
	s.live.changes <- bus.Changes{}
	next()
	if answer, body := s.get("/jobs/app.nightly", "X-Fragment", "1", "If-None-Match", tag); answer.StatusCode != 200 || !strings.Contains(body, "the new words") {
		t.Errorf("after a change: %d", answer.StatusCode)
	}
	// Another role has a page of its own.
	if answer, _ := s.get("/nothing", "X-Fragment", "1"); answer.StatusCode != 404 {
		t.Errorf("a page that is none: %d", answer.StatusCode)
	}
}

// However fast rows change, browsers get one event a second; all of them, also one that connected later.
func TestChangesAreMerged(t *testing.T) {
	s := newScene(t)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	first, second := stream(t, server), stream(t, server)
	first()
	second()
	begin := time.Now()
	for range 50 {
		s.live.changes <- bus.Changes{}
	}
	first()
	second()
	s.live.changes <- bus.Changes{}
	first()
	second()
	if took := time.Since(begin); took < 900*time.Millisecond {
		t.Errorf("two words within %v", took)
	}
}

// Commands on a page contain the server's address as the client knows it: a fragment is not shared with clients that
// use another name.
func TestFragmentsAreOfOneName(t *testing.T) {
	s := newScene(t)
	server := httptest.NewServer(s) // a browser listens, so that fragments are kept
	t.Cleanup(server.Close)
	stream(t, server)()
	for _, host := range []string{"evil.example", "jobs.example"} {
		r := httptest.NewRequest("GET", "/runs/"+s.runs[jobs.Terminated].String(), nil)
		r.Host = host
		r.Header.Set("X-Fragment", "1")
		if _, body := s.do(r); !strings.Contains(body, "http://"+host+"/api/") {
			t.Errorf("%s does not get its own name", host)
		}
	}
}
