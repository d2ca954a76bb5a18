package api

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

const (
	eventEvery = 250 * time.Millisecond // the shortest interval between two events; changes meanwhile are sent together
	heartbeat  = 15 * time.Second       // keeps proxies from closing a quiet stream
	writeTime  = 5 * time.Second        // a client that does not read is disconnected
	maxStreams = 20                     // of one principal at the same time
)

// News names what changed: the client reads it again if needed.
type News struct {
	Jobs     []jobs.Key `json:"jobs,omitempty"`
	Runs     []jobs.ID  `json:"runs,omitempty"`
	Settings bool       `json:"settings,omitempty"`
}

// streams counts the open streams of each principal.
type streams struct {
	mu sync.Mutex
	of map[string]int
}

// open takes a place, and reports whether there was one.
func (s *streams) open(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]int{}
	}
	if s.of[name] >= maxStreams {
		return false
	}
	s.of[name]++
	return true
}

func (s *streams) close(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[name]--; s.of[name] == 0 {
		delete(s.of, name)
	}
}

// routeEvents describes the stream through huma and serves it by hand: streams of huma have no comments, and so no
// heartbeat.
func (a *API) routeEvents() {
	op := a.rule(ops.Viewer, huma.Operation{OperationID: "events", Method: http.MethodGet, Path: "/events", Tags: []string{"system"}, Summary: "Stream changes",
		Description: "Server-sent events. The event change names changed jobs and runs: {\"jobs\":[keys],\"runs\":[ids],\"settings\":true}. " +
			"The event resync means that there were too many changes to name, or that some may have been missed: read again all that you show. The first event is a resync. " +
			"Limits: four events a second, 20 streams of one principal. A quiet stream gets a comment every 15 seconds."})
	op.Responses = map[string]*huma.Response{
		"200": {Description: "OK", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}}},
		"default": {Description: "Error", Content: map[string]*huma.MediaType{"application/problem+json": {
			Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}}}},
	}
	a.huma.OpenAPI().AddOperation(&op)
	a.mux.HandleFunc(op.Method+" "+op.Path, a.events)
	a.long[op.Method+" "+op.Path] = true
}

func (a *API) events(w http.ResponseWriter, r *http.Request) {
	asker := who(r.Context())
	name := string(asker.Tenant) + "/" + asker.Actor
	if !a.streams.open(name) {
		tooMany(heartbeat).write(w)
		return
	}
	defer a.streams.close(name)
	stream := http.NewResponseController(w)
	_ = stream.SetReadDeadline(time.Time{}) // the server's limit on requests does not apply to a stream
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	send := func(text string) error {
		_ = stream.SetWriteDeadline(time.Now().Add(writeTime)) // not supported by recorders in tests
		if _, err := w.Write([]byte(text)); err != nil {
			return err
		}
		return stream.Flush()
	}
	const resync = "event: resync\ndata: {}\n\n"
	if send("retry: 1000\n"+resync) != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	changed := make(chan bus.Changes)
	watched := make(chan struct{})
	defer func() { cancel(); <-watched }()
	go func() {
		defer close(watched)
		a.ops.Watch(ctx, asker, func(news bus.Changes) {
			select {
			case changed <- news: // changes while this waits are merged into the next event
			case <-ctx.Done():
			}
		})
	}()
	heartbeat := time.NewTicker(heartbeat)
	defer heartbeat.Stop()
	for {
		text := ": still here\n\n"
		select {
		case <-ctx.Done():
			return
		case <-heartbeat.C:
		case news := <-changed:
			if text = resync; !news.Many {
				text = "event: change\ndata: " + newsOf(news) + "\n\n"
			}
		}
		if send(text) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(eventEvery):
		}
	}
}

func newsOf(c bus.Changes) string {
	b, err := json.Marshal(News{Jobs: c.Keys, Runs: c.Runs, Settings: c.Global})
	if err != nil {
		panic(err) // names can always be written
	}
	return string(b)
}
