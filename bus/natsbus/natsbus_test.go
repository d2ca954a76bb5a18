package natsbus_test

import (
	"context"
	"testing"

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

func echo(_ context.Context, _ bus.Principal, request []byte) ([]byte, error) { return request, nil }

// slow reports that it was asked, and answers when it is released.
func slow(asked chan<- struct{}, free <-chan struct{}) bus.Handler {
	return func(context.Context, bus.Principal, []byte) ([]byte, error) {
		close(asked)
		<-free
		return nil, nil
	}
}
