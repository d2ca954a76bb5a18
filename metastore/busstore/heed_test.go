package busstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
)

// A caller that waits for a dead leader asks the next one as soon as that announces itself.
func TestHeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := membus.New()
		node, asker := hub.As(bus.Principal{Tenant: "default", Role: bus.Node, Name: "n1"}), bus.Principal{Tenant: "default", Role: bus.Client, Name: "c"}
		end := hub.As(asker)
		defer func() { _, _ = node.Close(), end.Close(); synctest.Wait() }()
		dead, die := context.WithCancel(t.Context())
		if err := node.Serve(dead, "store", func(ctx context.Context, _ bus.Principal, _ []byte) ([]byte, error) {
			<-ctx.Done()
			time.Sleep(time.Hour) // it never answers
			return nil, nil
		}); err != nil {
			t.Fatal(err)
		}
		calls := busstore.Heed(end, asker)
		began := time.Now()
		var took time.Duration
		asked := make(chan error, 1)
		go func() {
			_, err := calls.Call(t.Context(), "store", nil)
			took = time.Since(began)
			asked <- err
		}()
		time.Sleep(time.Second)
		for _, from := range []bus.Role{bus.Worker, bus.Node} { // only a node announces a leader
			teller := hub.As(bus.Principal{Tenant: "default", Role: from, Name: "t"})
			defer teller.Close()
			err := teller.Signal(t.Context(), bus.Signal{Topic: bus.TopicCancel, Data: bus.Encode(bus.Stop{Term: 7, Stale: true})})
			if from == bus.Node && err != nil || from != bus.Node && !errors.Is(err, jobs.Forbidden) {
				t.Fatalf("a signal of a %s: %v", from, err)
			}
			time.Sleep(time.Second)
		}
		if err := <-asked; err == nil || took != 2*time.Second {
			t.Errorf("it ended after %v with %v", took, err)
		}
		die()
		// The same term again ends nothing.
		if err := node.Serve(t.Context(), "other", func(context.Context, bus.Principal, []byte) ([]byte, error) {
			time.Sleep(time.Second)
			return []byte("yes"), nil
		}); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(500*time.Millisecond, func() {
			_ = node.Signal(context.Background(), bus.Signal{Topic: bus.TopicCancel, Data: bus.Encode(bus.Stop{Term: 7, Stale: true})})
		})
		if b, err := calls.Call(t.Context(), "other", nil); string(b) != "yes" {
			t.Errorf("%q (%v)", b, err)
		}
		time.Sleep(2 * time.Hour)
	})
}

// One of two servers is frozen: a client that knows the leader's term does not ask it. While that leader does not
// answer either, the client asks any server.
func TestHeedAsksTheLeader(t *testing.T) {
	server, err := embedded.Start(embedded.Config{DontListen: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	connect := func(role bus.Role, name string) (*natsbus.Bus, bus.Principal) {
		as := bus.Principal{Tenant: "default", Role: role, Name: name}
		b, err := natsbus.Connect(t.Context(), "", natsbus.Config{As: as, InProcess: server, Retry: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b, as
	}
	serve := func(name string, term uint64, answers bool) *natsbus.Bus {
		b, _ := connect(bus.Node, name)
		if err := bus.InTerm(b, term).Serve(t.Context(), "store", func(ctx context.Context, _ bus.Principal, _ []byte) ([]byte, error) {
			if !answers {
				<-ctx.Done()
			}
			return []byte(name), nil
		}); err != nil {
			t.Fatal(err)
		}
		return b
	}
	serve("frozen", 7, false)
	lives := serve("lives", 8, true)
	b, as := connect(bus.Client, "c")
	heeding := busstore.Heed(b, as)
	ask := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := heeding.Call(ctx, "store", nil)
		return err
	}
	heard := make(chan bus.Signal, 100) // gets b's signals, later
	if err := b.Listen(t.Context(), "", bus.TopicCancel, as.Name, func(s bus.Signal) { heard <- s }); err != nil {
		t.Fatal(err)
	}
	// No leader is known yet, so one of the two is asked. It listens from then on.
	for end := time.Now().Add(30 * time.Second); ask(100*time.Millisecond) != nil; {
		if time.Now().After(end) {
			t.Fatal("no server answers")
		}
	}
	leads := func(term uint64) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; {
			if err := lives.Signal(t.Context(), bus.Signal{Topic: bus.TopicCancel, Data: bus.Encode(bus.Stop{Term: term, Stale: true})}); err != nil {
				t.Fatal(err)
			}
			<-heard
			if busstore.Heeds(heeding) == term {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("term %d did not arrive", term)
			}
		}
	}
	leads(8)
	for range 30 {
		if err := ask(30 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	// The next one is frozen at once: after one call without an answer the client asks the others again.
	serve("frozen, too", 9, false)
	leads(9)
	if err := ask(10 * time.Millisecond); err == nil {
		t.Fatal("the frozen server answers")
	}
	for end := time.Now().Add(30 * time.Second); ask(100*time.Millisecond) != nil; {
		if time.Now().After(end) {
			t.Fatal("only the leader is asked, which does not answer")
		}
	}
}
