package ui

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

const (
	maxStreams = 512                    // max connected browsers
	maxOwn     = 64                     // of these, of one signed-in user
	maxTenant  = maxStreams / 2         // of these, of one tenant, but for the default one: no tenant takes all
	eventEvery = time.Second            // the shortest interval between two events; the first one is sent at once
	heartbeat  = 15 * time.Second       // keeps proxies from closing a quiet stream
	writeTime  = 5 * time.Second        // a browser that does not read is disconnected
	stillEvery = 500 * time.Millisecond // how often its session is checked
)

// hub watches each tenant once, however many browsers are connected, and wakes them together.
type hub struct {
	ops     *ops.Ops
	mu      sync.Mutex
	streams int
	own     map[string]int // by tenant and actor
	tenants map[jobs.Tenant]*channel
}

// channel is one tenant's changes.
type channel struct {
	listeners int
	number    uint64        // of the last change
	wake      chan struct{} // closed when number grows, and then another
	stop      func()
}

// join adds a listener; false means that there are too many. leave removes it.
func (h *hub) join(who ops.Who) (leave func(), ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := string(who.Tenant) + "/" + who.Actor
	if h.streams >= maxStreams || h.own[name] >= maxOwn && who.Actor != nameless {
		return nil, false
	}
	c := h.tenants[who.Tenant]
	if c != nil && c.listeners >= maxTenant && who.Tenant != "" && who.Tenant != jobs.DefaultTenant {
		return nil, false
	}
	h.streams++
	if h.own == nil {
		h.own = map[string]int{}
	}
	h.own[name]++
	if c == nil {
		if h.tenants == nil {
			h.tenants = map[jobs.Tenant]*channel{}
		}
		c = &channel{wake: make(chan struct{}), number: uint64(time.Now().UnixNano())}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		c.stop = func() { cancel(); <-done }
		h.tenants[who.Tenant] = c
		go func() { defer close(done); h.watch(ctx, who, c) }()
	}
	c.listeners++
	return func() { h.leave(who, c) }, true
}

func (h *hub) leave(who ops.Who, c *channel) {
	h.mu.Lock()
	h.streams--
	c.listeners--
	name := string(who.Tenant) + "/" + who.Actor
	if h.own[name]--; h.own[name] == 0 {
		delete(h.own, name)
	}
	last := c.listeners == 0
	if last {
		delete(h.tenants, who.Tenant)
	}
	h.mu.Unlock()
	if last {
		c.stop()
	}
}

// watch converts changes into at most one number a second.
func (h *hub) watch(ctx context.Context, who ops.Who, c *channel) {
	changed := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.ops.Watch(ctx, who, func(bus.Changes) {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	}()
	defer func() { <-done }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		h.mu.Lock()
		c.number++
		close(c.wake)
		c.wake = make(chan struct{})
		h.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(eventEvery):
		}
	}
}

// change returns the number of the tenant's last change; false if no browser listens, so that it is not known.
func (h *hub) change(who ops.Who) (number uint64, listening bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.tenants[who.Tenant]
	if c == nil {
		return 0, false
	}
	return c.number, true
}

// next returns the number of the last change, and the channel that the next one closes.
func (h *hub) next(who ops.Who) (number uint64, wake <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.tenants[who.Tenant]
	return c.number, c.wake
}

// events notifies a browser of changes while it is connected. Events have no data: the browser fetches the page again.
func (u *UI) events(w http.ResponseWriter, r *http.Request) {
	v, err := u.visitor(r)
	if err != nil || !v.Who.Role.Covers(ops.Viewer) {
		http.Error(w, "sign in first", http.StatusUnauthorized)
		return
	}
	leave, ok := u.hub.join(v.Who)
	if !ok {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer leave()
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
	seen, wake := u.hub.next(v.Who)
	// A browser that reconnects may have missed changes: it fetches the page again.
	if send("retry: 1000\nevent: change\ndata: {}\n\n") != nil {
		return
	}
	heartbeat, still := time.NewTicker(heartbeat), time.NewTicker(stillEvery)
	defer heartbeat.Stop()
	defer still.Stop()
	again := r.WithContext(metastore.FromCopy(r.Context()))
	for {
		var text string
		select {
		case <-r.Context().Done():
			return
		case <-still.C:
			// The session or its token may have ended meanwhile.
			v, err := u.visitor(again)
			if errors.Is(err, jobs.Forbidden) || err == nil && !v.Who.Role.Covers(ops.Viewer) {
				return
			}
			continue
		case <-heartbeat.C:
			text = ": still here\n\n"
		case <-wake:
			var number uint64
			if number, wake = u.hub.next(v.Who); number == seen {
				continue
			}
			seen, text = number, "event: change\ndata: {}\n\n"
		}
		if send(text) != nil {
			return
		}
	}
}
