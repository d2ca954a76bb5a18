package embed

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore"
)

// A connection that cannot be made, as one of an HTTP worker, holds up no new leader.
func TestALeaderWaitsForTheNodeOnly(t *testing.T) {
	server, err := embedded.Start(embedded.Config{Shut: true, Admit: refuseAll})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Stop() }()
	r := &road{server: server, log: slog.New(slog.DiscardHandler), episodes: episode.New(nil), services: map[string]*bus.Handler{}}
	node, err := r.connect(t.Context(), bus.Principal{Tenant: "default", Role: bus.Node, Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	b, err := natsbus.Connect(t.Context(), "", natsbus.Config{As: bus.Principal{Tenant: "default", Role: bus.Worker, Name: "w", App: "app"},
		Way: func() (natsbus.Place, error) { return natsbus.Place{}, errors.New("no way") }})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r.buses = append(r.buses, b)
	r.lead(true)
	if err := r.settle(context.Background()); err != nil {
		t.Error(err)
	}
}

// A leader that hangs accepts connections and sends nothing. Its followers leave it each time that another one leads,
// although the NATS library holds a lock while it connects.
func TestALeaderThatHangsIsLeft(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	server, err := embedded.Start(embedded.Config{Shut: true, Admit: refuseAll})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Stop() }()
	r := &road{server: server, log: slog.New(slog.DiscardHandler), episodes: episode.New(slog.New(slog.DiscardHandler)), services: map[string]*bus.Handler{},
		out: true, known: sqlstore.Road{Term: 1, Address: l.Addr().String(), Certificate: make([]byte, 32)}}
	for _, name := range []string{"a", "b", "c"} {
		b, err := r.connect(t.Context(), bus.Principal{Tenant: "default", Role: bus.Node, Name: name})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
	}
	turned := make(chan struct{})
	go func() {
		defer close(turned)
		for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
			r.lead(false)
			r.mu.Lock()
			r.out = true
			r.mu.Unlock()
			time.Sleep(20 * time.Millisecond)
		}
		r.lead(true)
	}()
	select {
	case <-turned:
	case <-time.After(time.Minute):
		t.Fatal("it hangs, too")
	}
	if err := r.settle(context.Background()); err != nil {
		t.Error(err)
	}
}
