package embedded_test

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// signpost is a way that turns.
type signpost struct {
	mu sync.Mutex
	to natsbus.Place
}

func (s *signpost) turn(to natsbus.Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = to
}

func (s *signpost) way() (natsbus.Place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to.Inside == nil && s.to.Address == "" {
		return s.to, errors.New("there is no server yet")
	}
	return s.to, nil
}

const peerToken = natsbus.PeerToken + "right"

// peering starts a server that other processes may be nodes at, by peerToken.
func peering(t *testing.T, secure *tls.Config) *embedded.Server {
	t.Helper()
	refuse := kernel.Refuse(jobs.Forbidden, "no")
	s, err := embedded.Start(embedded.Config{Shut: true, TLS: secure,
		Admit: func(context.Context, string) (bus.Principal, string, error) { return bus.Principal{}, "", refuse },
		Peers: func(_ context.Context, token string) error {
			if token == peerToken {
				return nil
			}
			return refuse
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Stop() })
	return s
}

func selfSigned(t *testing.T) *tls.Config {
	t.Helper()
	secure, err := embedded.SelfSigned()
	if err != nil {
		t.Fatal(err)
	}
	return secure
}

// opened is where a server is that listens from now on.
func opened(t *testing.T, s *embedded.Server) natsbus.Place {
	t.Helper()
	if err := s.Unlock(); err != nil {
		t.Fatal(err)
	}
	p, err := s.Place("", "")
	if err != nil {
		t.Fatal(err)
	}
	p.Token = peerToken
	return p
}

// A connection follows its way: from no server to the one in this process, to another one over TLS, and to a third
// without. At each it is a node.
func TestConnectionFollowsItsWay(t *testing.T) {
	var s signpost
	b, err := natsbus.Connect(t.Context(), "", natsbus.Config{As: bus.Principal{Tenant: "default", Role: bus.Node, Name: "n"}, Way: s.way})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Call(t.Context(), "echo", nil); !errors.Is(err, bus.ErrNoReceiver) {
		t.Errorf("without a server: %v", err)
	}
	inside := peering(t, nil)
	secure, plain := opened(t, peering(t, selfSigned(t))), opened(t, peering(t, nil))
	for name, to := range map[string]natsbus.Place{"inside": {Inside: inside}, "TLS": secure, "plain": plain} {
		s.turn(to)
		b.Redial()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if err := b.Serve(ctx, "echo."+name, func(_ context.Context, _ bus.Principal, request []byte) ([]byte, error) { return request, nil }); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if answer, err := b.Call(ctx, "echo."+name, []byte("hello")); err != nil || string(answer) != "hello" {
			t.Errorf("%s: %q (%v)", name, answer, err)
		}
		if got := b.Inside(); got != (to.Inside != nil) {
			t.Errorf("%s: inside %v", name, got)
		}
		cancel()
	}
}

// A server is not believed that has another certificate than was announced, or none, and a wrong token opens none.
func TestWayIsChecked(t *testing.T) {
	secure, plain, other := opened(t, peering(t, selfSigned(t))), opened(t, peering(t, nil)), opened(t, peering(t, selfSigned(t)))
	for name, to := range map[string]natsbus.Place{
		"another certificate": {Address: secure.Address, Token: peerToken, Certificate: other.Certificate},
		"no certificate":      {Address: plain.Address, Token: peerToken, Certificate: other.Certificate},
		"a wrong token":       {Address: secure.Address, Token: natsbus.PeerToken + "wrong", Certificate: secure.Certificate},
		"no token":            {Address: secure.Address, Certificate: secure.Certificate},
		"not announced TLS":   {Address: secure.Address, Token: peerToken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tried := make(chan struct{}, 1000)
			b, err := natsbus.Connect(t.Context(), "", natsbus.Config{As: bus.Principal{Tenant: "default", Role: bus.Node, Name: "n"}, Way: func() (natsbus.Place, error) {
				tried <- struct{}{}
				return to, nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			for range 3 {
				select {
				case <-tried:
				case <-time.After(time.Minute):
					t.Fatal("it does not try again")
				}
				if b.Connected() {
					t.Fatal("it is connected")
				}
			}
		})
	}
}

// Another node's connection ends when its token is no longer permitted. A database that does not answer ends none, and
// makes no token wrong.
func TestAPeerIsWatched(t *testing.T) {
	var mu sync.Mutex
	var answer error
	asked := make(chan struct{}, 1000)
	set := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		answer = err
	}
	s, err := embedded.Start(embedded.Config{
		Admit: func(context.Context, string) (bus.Principal, string, error) {
			return bus.Principal{}, "", kernel.Refuse(jobs.Forbidden, "no")
		},
		Peers: func(ctx context.Context, _ string) error {
			mu.Lock()
			defer mu.Unlock()
			asked <- struct{}{}
			if errors.Is(answer, context.DeadlineExceeded) {
				<-ctx.Done()
			}
			return answer
		}})
	must(t, err)
	t.Cleanup(func() { must(t, s.Stop()) })
	set(context.DeadlineExceeded)
	if b, err := enter(t, s, peerToken, node, ""); err == nil || errors.Is(err, jobs.Forbidden) {
		t.Errorf("while the database hangs: %v, %v", b, err)
	}
	set(nil)
	closed := make(chan struct{})
	nc, err := nats.Connect(s.URL(), nats.Timeout(time.Minute), nats.Token(peerToken), nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	must(t, err)
	defer nc.Close()
	set(kernel.Refuse(jobs.Unavailable, "the database does not answer"))
	for len(asked) > 0 {
		<-asked
	}
	for range 3 {
		select {
		case <-asked:
		case <-time.After(time.Minute):
			t.Fatal("the token is not checked again")
		}
	}
	select {
	case <-closed:
		t.Fatal("it is closed while the database does not answer")
	default:
	}
	set(kernel.Refuse(jobs.Forbidden, "no node has this token"))
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Error("it is still there")
	}
}

// A server that serves strangers, too, tells them with TLS what it always does: it speaks first.
func TestSharedServerSpeaksFirst(t *testing.T) {
	secure := selfSigned(t)
	server, err := embedded.Start(embedded.Config{Shut: true, TLS: secure})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Stop() }()
	if err := server.Unlock(); err != nil {
		t.Fatal(err)
	}
	b, err := natsbus.Connect(t.Context(), server.URL(), natsbus.Config{As: bus.Principal{Tenant: "default", Role: bus.Worker, Name: "w", App: "a"}, TLS: &tls.Config{InsecureSkipVerify: true}})
	if err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
}
