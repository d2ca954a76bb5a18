package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/jobs"
)

var node = bus.Principal{Role: bus.Node, Name: "node-1"}

// within is a context for what must happen, on a busy machine, too.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// same answers a push with its own bytes.
func same(push []byte) (answer []byte, then func()) { return push, nil }

func TestOneThatDoesNotListen(t *testing.T) {
	s, err := embedded.Start(embedded.Config{DontListen: true})
	must(t, err)
	if s.URL() != "" || s.Port() != 0 {
		t.Errorf("it is at %q, port %d", s.URL(), s.Port())
	}
	b, err := natsbus.Connect(within(t), "", natsbus.Config{As: node, InProcess: s})
	must(t, err)
	if most := b.Limit(); most > embedded.MaxPayload || most < embedded.MaxPayload-4096 {
		t.Errorf("the limit is %d", most)
	}
	must(t, b.Close())
	must(t, s.Stop())
	must(t, s.Stop())
}

func TestItStaysOnThisMachine(t *testing.T) {
	s, err := embedded.Start(embedded.Config{})
	must(t, err)
	defer func() { must(t, s.Stop()) }()
	if !strings.HasPrefix(s.URL(), "nats://127.0.0.1:") {
		t.Errorf("it is at %s", s.URL())
	}
}

func TestAPortThatIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	s, err := embedded.Start(embedded.Config{Port: l.Addr().(*net.TCPAddr).Port})
	if err == nil {
		_ = s.Stop()
		t.Fatal("it has started")
	}
	if !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("it returns no reason: %v", err)
	}
}

func TestAWrongPassword(t *testing.T) {
	s, err := embedded.Start(embedded.Config{Users: []natsbus.Grant{{User: "u", Password: "right", As: node}}})
	must(t, err)
	defer func() { must(t, s.Stop()) }()
	for _, cfg := range []natsbus.Config{{As: node, User: "u", Password: "wrong"}, {As: node}} {
		b, err := natsbus.Connect(within(t), s.URL(), cfg)
		if err == nil {
			_ = b.Close()
			t.Fatalf("connected as %q with password %q", cfg.User, cfg.Password)
		}
		if !strings.Contains(err.Error(), "Authorization") {
			t.Errorf("it returns no reason: %v", err)
		}
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

func (p *page) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.String()
}

// A user's refused requests are in the log.
func TestViolationsAreLogged(t *testing.T) {
	var log page
	s, err := embedded.Start(embedded.Config{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Users:  []natsbus.Grant{{User: "u", Password: "p", As: bus.Principal{Tenant: "default", Role: bus.Client, Name: "c"}}},
	})
	must(t, err)
	defer func() { must(t, s.Stop()) }()
	nc, err := nats.Connect(s.URL(), nats.Timeout(time.Minute), nats.UserInfo("u", "p"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	must(t, err)
	defer nc.Close()
	must(t, nc.Publish("$SYS.REQ.SERVER.PING", nil))
	must(t, nc.Flush())
	if logged := log.String(); !strings.Contains(logged, "Publish Violation") || !strings.Contains(logged, "$SYS.REQ.SERVER.PING") {
		t.Errorf("the log is: %s", logged)
	}
}

// A server that is shut can be reached in its own process only. It listens from Unlock on, and after Lock no more:
// connections from outside are gone, and our own process finds it again.
func TestShut(t *testing.T) {
	r := newRegister()
	port := freeport.Port(t)
	s, leader := guarded(t, embedded.Config{Admit: r.admit, Port: port, Shut: true})
	url := fmt.Sprintf("nats://127.0.0.1:%d", port)
	come := func() (*natsbus.Bus, error) {
		b, err := natsbus.Connect(within(t), url, natsbus.Config{As: as("default", bus.Client, "shop"), Token: ofClient})
		if err == nil {
			t.Cleanup(func() { _ = b.Close() })
		}
		return b, err
	}
	for range 2 {
		if _, err := come(); !errors.Is(err, jobs.Unavailable) {
			t.Fatalf("it is shut, and a client connects: %v", err)
		}
		must(t, s.Unlock())
		must(t, s.Unlock())
		client, err := come()
		must(t, err)
		if _, err := client.Call(within(t), bus.ServiceStore, nil); err != nil {
			t.Errorf("a client's call: %v", err)
		}
		must(t, s.Lock())
		must(t, s.Lock())
		for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			if _, err := leader.Call(within(t), bus.ServiceStore, nil); err == nil {
				break
			} else if time.Since(began) > 2*time.Minute {
				t.Fatalf("our own process does not find it again: %v", err)
			}
		}
		if _, err := client.Call(within(t), bus.ServiceStore, nil); err == nil {
			t.Error("who came is still there")
		}
	}
}
