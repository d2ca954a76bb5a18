package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/carillon-scheduler/carillon/api"
)

// front serves HTTP from the start of the process: opening the store may take minutes, or wait for other nodes, and
// probes shall not end a process that starts. Other requests wait for a moment.
type front struct {
	server  *http.Server
	open    chan struct{} // closed when there is a handler
	begun   chan struct{} // closed when all is stored that a start stores, such as the first token
	handler http.Handler
	hangUp  context.CancelCauseFunc
	ended   chan error
}

// openingPatience is how long requests wait for the store to open.
const openingPatience = 5 * time.Second

// newFront serves to these hosts.
func newFront(listener net.Listener, hosts []string, log *slog.Logger) *front {
	f := &front{open: make(chan struct{}), begun: make(chan struct{}), ended: make(chan error, 1)}
	var requests context.Context
	requests, f.hangUp = context.WithCancelCause(context.Background())
	f.server = api.NewServer(api.Hosts(hosts, f), log)
	f.server.BaseContext = func(net.Listener) context.Context { return requests }
	go func() { f.ended <- f.server.Serve(listener) }()
	return f
}

// ServeHTTP uses the handler, once there is one.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-f.open:
		f.handler.ServeHTTP(w, r)
		return
	default:
	}
	if !api.IsProbe(r.URL.Path) {
		select {
		case <-f.open:
			f.handler.ServeHTTP(w, r)
			return
		case <-r.Context().Done():
		case <-time.After(openingPatience):
		}
	}
	api.Starting(w, r)
}

// whole answers /readyz with 503 until all is stored that a start stores: what waits for it finds the first token.
func (f *front) whole(ready func(context.Context) error, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			select {
			case <-f.begun:
			default:
				err := ready(r.Context())
				if err == nil {
					err = errors.New("the server stores its first token and what its configuration defines")
				}
				api.NotReady(w, err.Error())
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// serve serves another handler, until the front is closed.
func (f *front) serve(handler http.Handler) error {
	f.handler = handler
	close(f.open)
	if err := <-f.ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the pages: %w", err)
	}
	return nil
}

// lastResponses is how long responses may still be read when all else has stopped.
const lastResponses = time.Second

// close ends all requests. A second close does nothing.
func (f *front) close() {
	f.hangUp(errStopped) // streams of events end; and it is not the client that went
	last, cancel := context.WithTimeout(context.Background(), lastResponses)
	defer cancel()
	_ = f.server.Shutdown(last) // clients that still read are cut off
	_ = f.server.Close()
}
