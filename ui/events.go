package ui

import (
	"context"
	"net/http"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
)

const (
	maxStreams = 256              // browsers that listen at the same time
	eventEvery = time.Second      // at most so often is a browser told to look again; the first time at once
	heartbeat  = 15 * time.Second // what keeps proxies from closing a quiet stream
	writeTime  = 5 * time.Second  // a browser that does not read is let go
)

// events tells a browser that something has changed, for as long as it listens. It is told when, never what.
func (u *UI) events(w http.ResponseWriter, r *http.Request) {
	select {
	case u.streams <- struct{}{}:
		defer func() { <-u.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	stream := http.NewResponseController(w)
	_ = stream.SetReadDeadline(time.Time{}) // the server's limit on requests does not hold for a stream
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	send := func(text string) error {
		_ = stream.SetWriteDeadline(time.Now().Add(writeTime)) // not supported by recorders in tests
		if _, err := w.Write([]byte(text)); err != nil {
			return err
		}
		return stream.Flush()
	}
	// A browser that comes back may have missed something: let it look.
	if send("retry: 1000\nevent: change\ndata: {}\n\n") != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	changed := make(chan struct{}, 1)
	done := make(chan struct{})
	defer func() { cancel(); <-done }()
	go func() {
		defer close(done)
		u.ops.Watch(ctx, u.who(r), func(bus.Changes) {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		text := ": still here\n\n"
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		case <-changed:
			text = "event: change\ndata: {}\n\n"
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
