package natsbus_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
)

// start starts a server, to be stopped with the test.
func start(t testing.TB, cfg embedded.Config) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// connect connects, to be closed with the test.
func connect(t testing.TB, url string, cfg natsbus.Config) *natsbus.Bus {
	t.Helper()
	b, err := natsbus.Connect(within(t), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestBusOverTheNetwork(t *testing.T) {
	bustest.Run(t, func(t *testing.T) bustest.Harness {
		port := freeport.Port(t) // which no other socket gets while the server is down
		s := start(t, embedded.Config{Port: port})
		return bustest.Harness{
			As: func(t *testing.T, p bus.Principal) bus.Bus {
				return connect(t, s.URL(), natsbus.Config{As: p})
			},
			Restart: func(t *testing.T) {
				if err := s.Stop(); err != nil {
					t.Fatal(err)
				}
				s = start(t, embedded.Config{Port: port})
			},
		}
	})
}

func TestBusInProcess(t *testing.T) {
	bustest.Run(t, func(t *testing.T) bustest.Harness {
		s := start(t, embedded.Config{DontListen: true})
		return bustest.Harness{As: func(t *testing.T, p bus.Principal) bus.Bus {
			return connect(t, "", natsbus.Config{As: p, InProcess: s})
		}}
	})
}

var (
	node   = bus.Principal{Tenant: "default", Role: bus.Node, Name: "node-1"}
	worker = bus.Principal{Tenant: "default", Role: bus.Worker, Name: "w1", App: "billing"}
	here   = bus.Address{Tenant: "default", App: "billing", Worker: "w1"} // where worker is
)

// within is a context for what must happen, on a busy machine, too.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// page is a log that can be read.
type page struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.Write(b)
}

func (p *page) count(s string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Count(p.b.String(), s)
}

// same answers a push with its own bytes.
func same(push []byte) (answer []byte, then func()) { return push, nil }

func echo(_ context.Context, _ bus.Principal, request []byte) ([]byte, error) { return request, nil }

// slow reports that it was asked, and answers when it is released.
func slow(asked chan<- struct{}, free <-chan struct{}) bus.Handler {
	return func(context.Context, bus.Principal, []byte) ([]byte, error) {
		close(asked)
		<-free
		return nil, nil
	}
}

func Example() {
	server, err := embedded.Start(embedded.Config{DontListen: true})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	connect := func(as bus.Principal) *natsbus.Bus {
		b, err := natsbus.Connect(ctx, "", natsbus.Config{InProcess: server, As: as})
		if err != nil {
			panic(err)
		}
		return b
	}
	leader, w := connect(node), connect(worker)
	err = w.Accept(ctx, here, func(push []byte) ([]byte, func()) {
		return []byte("I got " + string(push)), nil
	})
	fmt.Println(err)
	answer, err := leader.Push(ctx, here, []byte("a run"))
	fmt.Println(string(answer), err)
	fmt.Println(w.Close(), leader.Close(), server.Stop())
	// Output:
	// <nil>
	// I got a run <nil>
	// <nil> <nil> <nil>
}
