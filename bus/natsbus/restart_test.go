package natsbus_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// wire is a network that can be cut: connections to it reach the server until they are.
type wire struct {
	listener net.Listener
	to       string
	work     sync.WaitGroup

	mu     sync.Mutex
	cut    bool
	frozen chan struct{} // closed when it thaws; nil = it is not frozen
	ends   []net.Conn
}

func newWire(t *testing.T, to string) *wire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	w := &wire{listener: l, to: to}
	w.work.Go(w.accept)
	t.Cleanup(func() {
		_ = l.Close()
		w.set(true)
		w.work.Wait()
	})
	return w
}

func (w *wire) url() string { return "nats://" + w.listener.Addr().String() }

func (w *wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.to)
		w.mu.Lock()
		if err != nil || w.cut {
			_ = near.Close()
			if far != nil {
				_ = far.Close()
			}
			w.mu.Unlock()
			continue
		}
		w.ends = append(w.ends, near, far)
		w.mu.Unlock()
		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			w.work.Go(func() {
				_, _ = io.Copy(way[0], cold{way[1], w})
				_ = way[0].Close()
			})
		}
	}
}

// freeze has it carry nothing, and hang up on no connection, until it thaws.
func (w *wire) freeze() (thaw func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	frozen := make(chan struct{})
	w.frozen = frozen
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.frozen = nil
		close(frozen)
	}
}

// cold is an end of a wire that may freeze.
type cold struct {
	net.Conn
	w *wire
}

func (c cold) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.w.mu.Lock()
	frozen := c.w.frozen
	c.w.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
	return n, err
}

// set cuts all that is connected, or lets new connections through.
func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	for _, c := range w.ends {
		_ = c.Close()
	}
	w.ends = nil
}

// wired is an end behind a wire that can be cut, on a server of its own.
func wired(t *testing.T, as bus.Principal) (s *embedded.Server, b *natsbus.Bus, w *wire) {
	s = start(t, embedded.Config{})
	w = newWire(t, s.URL()[len("nats://"):])
	return s, connect(t, w.url(), natsbus.Config{As: as}), w
}

func (w *wire) connections() []net.Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ends)
}

// The server stays, the worker's connection goes: pushes reach the worker on its next connection.
func TestAcceptSurvivesACutWire(t *testing.T) {
	s, taker, w := wired(t, worker)
	leader := connect(t, s.URL(), natsbus.Config{As: node})
	must(t, taker.Accept(t.Context(), here, same))
	for range 5 {
		w.set(true)
		w.set(false)
		for ctx := within(t); ; {
			limited, cancel := context.WithTimeout(ctx, time.Second) // a push that went down with the wire is not answered
			_, err := leader.Push(limited, here, []byte("x"))
			cancel()
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}
}

// A push whose own connection breaks ends at once, and without one nothing is sent. Neither means that the worker is
// not there.
func TestAPushWithoutItsConnection(t *testing.T) {
	s, leader, w := wired(t, node)
	taker := connect(t, s.URL(), natsbus.Config{As: worker})
	called, free := make(chan struct{}), make(chan struct{})
	defer close(free)
	must(t, taker.Accept(t.Context(), here, func([]byte) ([]byte, func()) {
		close(called)
		<-free
		return nil, nil
	}))
	ended := make(chan error, 1)
	go func() {
		_, err := leader.Push(within(t), here, []byte("x"))
		ended <- err
	}()
	<-called
	w.set(true)
	select {
	case err := <-ended:
		if !errors.Is(err, jobs.Unknown) || errors.Is(err, bus.ErrNoReceiver) {
			t.Errorf("it ended with: %v", err)
		}
	case <-within(t).Done():
		t.Fatal("it still waits")
	}
	if _, err := leader.Push(within(t), here, []byte("x")); !errors.Is(err, jobs.Unavailable) || errors.Is(err, bus.ErrNoReceiver) {
		t.Errorf("a push without a connection: %v", err)
	}
}

// A call that is under way when the connection breaks ends at once: it may have been done.
func TestACallEndsWithItsConnection(t *testing.T) {
	s, asker, w := wired(t, worker)
	leader := connect(t, s.URL(), natsbus.Config{As: node})
	asked, free := make(chan struct{}), make(chan struct{})
	defer close(free)
	must(t, leader.Serve(t.Context(), bus.ServiceStore, slow(asked, free)))
	ended := make(chan error, 1)
	go func() {
		_, err := asker.Call(within(t), bus.ServiceStore, nil)
		ended <- err
	}()
	<-asked
	w.set(true)
	select {
	case err := <-ended:
		if !errors.Is(err, jobs.Unknown) || errors.Is(err, bus.ErrNoReceiver) {
			t.Fatalf("it ended with: %v", err)
		}
	case <-within(t).Done():
		t.Fatal("it still waits")
	}
	// While there is no connection nothing is sent, so nothing can have been done.
	if _, err := asker.Call(within(t), bus.ServiceStore, nil); !errors.Is(err, bus.ErrNoReceiver) {
		t.Fatalf("a call without a connection: %v", err)
	}
	if err := asker.Signal(within(t), bus.Signal{Topic: bus.TopicLog, Data: []byte("x")}); !errors.Is(err, bus.ErrNoReceiver) {
		t.Fatalf("a signal without a connection: %v", err)
	}
}

func TestSignalsAreKeptIfOneAsksForIt(t *testing.T) {
	s := start(t, embedded.Config{})
	leader := connect(t, s.URL(), natsbus.Config{As: node})
	received := make(chan bus.Signal, 10)
	must(t, leader.Listen(t.Context(), "*", bus.TopicLog, "", func(s bus.Signal) { received <- s }))
	w := newWire(t, s.URL()[len("nats://"):])
	teller := connect(t, w.url(), natsbus.Config{As: worker, Buffer: 1 << 20})
	w.set(true)
	for teller.Connected() {
		runtime.Gosched()
	}
	must(t, teller.Signal(within(t), bus.Signal{Topic: bus.TopicLog, Data: []byte("kept")}))
	w.set(false)
	select {
	case got := <-received:
		if string(got.Data) != "kept" {
			t.Errorf("received %q", got.Data)
		}
	case <-within(t).Done():
		t.Error("the signal is lost")
	}
}

func TestConnectWithoutAServer(t *testing.T) {
	port := freeport.Port(t) // which no other socket gets while the server is down
	s := start(t, embedded.Config{Port: port})
	url := s.URL()
	must(t, s.Stop())
	if b, err := natsbus.Connect(within(t), url, natsbus.Config{As: worker}); err == nil {
		_ = b.Close()
		t.Fatal("connected without a server")
	}
	var log page
	b := connect(t, url, natsbus.Config{As: worker, Retry: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if _, err := b.Call(within(t), bus.ServiceStore, nil); !errors.Is(err, bus.ErrNoReceiver) {
		t.Errorf("call: %v", err)
	}
	if b.Limit() < 64<<10 {
		t.Errorf("the limit is %d", b.Limit())
	}
	received := make(chan bus.Signal, 10)
	listens := make(chan error, 1)
	go func() {
		listens <- b.Listen(t.Context(), "", bus.TopicLive, "", func(s bus.Signal) { received <- s })
	}()
	s = start(t, embedded.Config{Port: port})
	must(t, <-listens) // it waited for the server
	must(t, connect(t, s.URL(), natsbus.Config{As: node}).Signal(within(t), bus.Signal{Topic: bus.TopicLive, Data: []byte("x")}))
	<-received
	must(t, s.Stop())
	for b.Connected() {
		runtime.Gosched()
	}
	if n := log.count("bus connected"); n != 1 {
		t.Errorf("the log has %d lines about a connection", n)
	}
}

// A frozen server hangs up on no connection. A request to it is answered by another one: the library, which would find
// out later, is kept from it here.
func TestAFrozenServerIsLeft(t *testing.T) {
	s := start(t, embedded.Config{})
	leader := connect(t, s.URL(), natsbus.Config{As: node})
	must(t, leader.Serve(t.Context(), bus.ServiceHeartbeat, func(context.Context, bus.Principal, []byte) ([]byte, error) { return []byte("received"), nil }))
	first, second := newWire(t, s.URL()[len("nats://"):]), newWire(t, s.URL()[len("nats://"):])
	w := connect(t, first.url()+","+second.url(), natsbus.Config{As: worker}.WithoutPings())
	if len(first.connections()) == 0 { // the library chooses
		first, second = second, first
	}
	defer first.freeze()()
	ctx := within(t)
	for {
		answer, err := w.Call(ctx, bus.ServiceHeartbeat, []byte("heartbeat"))
		if err == nil {
			if string(answer) != "received" {
				t.Errorf("the answer is %q", answer)
			}
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		runtime.Gosched() // without a connection nothing is asked
	}
	if len(second.connections()) == 0 {
		t.Error("it was answered, and not over the other server")
	}
}

// A slow answer is no frozen server: the connection stays.
func TestASlowAnswerIsWaitedFor(t *testing.T) {
	tests.Long(t)
	s := start(t, embedded.Config{})
	leader := connect(t, s.URL(), natsbus.Config{As: node})
	must(t, leader.Serve(t.Context(), bus.ServiceHeartbeat, func(ctx context.Context, _ bus.Principal, _ []byte) ([]byte, error) {
		select {
		case <-ctx.Done():
		case <-time.After(3 * time.Second): // the server is asked after one, and has answered after two
		}
		return []byte("at last"), nil
	}))
	w := newWire(t, s.URL()[len("nats://"):])
	c := connect(t, w.url(), natsbus.Config{As: worker})
	answer, err := c.Call(within(t), bus.ServiceHeartbeat, []byte("heartbeat"))
	if err != nil || string(answer) != "at last" {
		t.Errorf("answer is %q, %v", answer, err)
	}
}
