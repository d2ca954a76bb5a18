package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/jobs"
)

const between = "what only we know, and is long"

// three are the servers of a cluster, and a node in the process of each.
type three struct {
	servers [3]*embedded.Server
	nodes   [3]*natsbus.Bus
}

func newThree(t *testing.T) *three {
	t.Helper()
	var h three
	var addrs []string
	for range h.servers {
		addrs = append(addrs, freeport.Address(t))
	}
	for i := range h.servers {
		name := fmt.Sprintf("N%d", i)
		var err error
		h.servers[i], err = embedded.Start(embedded.Config{Name: name, Cluster: embedded.Cluster{Addr: addrs[i], Routes: addrs, Secret: between}})
		must(t, err)
		t.Cleanup(func() { must(t, h.servers[i].Stop()) })
		h.nodes[i], err = natsbus.Connect(within(t), "", natsbus.Config{As: bus.Principal{Role: bus.Node, Name: name}, InProcess: h.servers[i]})
		must(t, err)
		t.Cleanup(func() { must(t, h.nodes[i].Close()) })
	}
	return &h
}

// urls are the addresses for clients, beginning with that of one server.
func (h *three) urls(first int) string {
	var all []string
	for i := range h.servers {
		all = append(all, h.servers[(first+i)%3].URL())
	}
	return strings.Join(all, ",")
}

// open opens the queue of a term as soon as that is possible, and says after what time that was.
func open(t *testing.T, b *natsbus.Bus, term uint64) (queue string, took time.Duration) {
	t.Helper()
	began := time.Now()
	for {
		queue, err := b.Open(t.Context(), term)
		if err == nil {
			return queue, time.Since(began)
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("the queue of term %d: %v", term, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// offered offers a run. A server that has just come may not answer yet: then whoever leads opens the queue again.
func offered(t *testing.T, leader *natsbus.Bus, queue string, term uint64, lane bus.Lane, offer bus.Offer) string {
	t.Helper()
	for began := time.Now(); ; {
		err := leader.Offer(t.Context(), queue, lane, []bus.Offer{offer})
		if err == nil {
			return queue
		}
		if time.Since(began) > time.Minute {
			t.Fatal(err)
		}
		t.Log(err)
		queue, _ = open(t, leader, term)
	}
}

// taken has a worker take the offer of a run, as soon as its server knows the queue.
func taken(t *testing.T, w *natsbus.Bus, queue string, lane bus.Lane, offer bus.Offer) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		list, done, err := w.Take(within(t), queue, lane, 1)
		if err == nil {
			if len(list) != 1 || list[0] != offer {
				t.Fatalf("a worker takes %v, not %v", list, offer)
			}
			done()
			return
		}
		if !errors.Is(err, bus.ErrNobody) || time.Since(began) > time.Minute {
			t.Fatalf("a worker takes: %v", err)
		}
	}
}

// keeper is the server that keeps a stream.
func keeper(t *testing.T, url, stream string) string {
	t.Helper()
	nc, err := nats.Connect(url, nats.Timeout(time.Minute))
	must(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	must(t, err)
	s, err := js.Stream(within(t), stream)
	must(t, err)
	return s.CachedInfo().Cluster.Leader
}

// Three servers are one bus: whoever leads keeps the queue on its own server, workers at any server take from it, and
// when the leader's server dies all go on at the others.
func TestCluster(t *testing.T) {
	t.Parallel()
	h := newThree(t)
	queue, took := open(t, h.nodes[1], 1)
	t.Logf("the first queue took %v", took)
	if at := keeper(t, h.servers[0].URL(), queue); at != "N1" {
		t.Errorf("the queue of N1 is kept at %s", at)
	}
	lane := bus.Lane{Tenant: "default", App: "bells"}
	worker := func(first int) *natsbus.Bus {
		b, err := natsbus.Connect(within(t), h.urls(first), natsbus.Config{As: bus.Principal{Tenant: "default", Role: bus.Worker, Name: fmt.Sprintf("w%d", first), App: "bells"}})
		must(t, err)
		t.Cleanup(func() { must(t, b.Close()) })
		return b
	}
	for _, at := range []int{0, 1} {
		offer := bus.Offer{ID: jobs.NewID(time.Now()), Attempt: 1, Key: "bells.ring"}
		queue = offered(t, h.nodes[1], queue, 1, lane, offer)
		taken(t, worker(at), queue, lane, offer)
	}

	// The server of the leader dies. N2 leads, and the worker that was at the dead server is there again.
	w := worker(1)
	hers := bus.Lane{Tenant: "default", App: "bells", Worker: "w1"}
	must(t, w.Receive(t.Context(), hers, func([]bus.Offer) {}))
	must(t, h.servers[1].Stop())
	died := time.Now()
	list := []bus.Offer{{ID: jobs.NewID(died), Attempt: 1, Key: "bells.ring"}}
	for {
		err := h.nodes[2].Hand(t.Context(), hers, list)
		if err == nil {
			break
		}
		if !errors.Is(err, bus.ErrNobody) && !errors.Is(err, context.DeadlineExceeded) || time.Since(died) > time.Minute {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Logf("the worker can be handed offers %v after its server died", time.Since(died))
	queue, _ = open(t, h.nodes[2], 2)
	t.Logf("the queue of the next term is there %v after the server died", time.Since(died))
	if at := keeper(t, h.servers[2].URL(), queue); at != "N2" {
		t.Errorf("the queue of N2 is kept at %s", at)
	}
	queue = offered(t, h.nodes[2], queue, 2, lane, list[0])
	taken(t, w, queue, lane, list[0])
}

// A server that does not know what the others show each other is none of them.
func TestClusterKeepsStrangersOut(t *testing.T) {
	t.Parallel()
	first, err := embedded.Start(embedded.Config{Name: "N0", Cluster: embedded.Cluster{Addr: freeport.Address(t), Secret: between}})
	must(t, err)
	defer func() { must(t, first.Stop()) }()
	inside := func(secret string, patience time.Duration) bool {
		s, err := embedded.Start(embedded.Config{Name: "N1", Cluster: embedded.Cluster{Routes: []string{first.ClusterAddr()}, Secret: secret}})
		must(t, err)
		defer func() { must(t, s.Stop()) }()
		b, err := natsbus.Connect(within(t), "", natsbus.Config{As: bus.Principal{Role: bus.Node, Name: "stranger"}, InProcess: s})
		must(t, err)
		defer func() { must(t, b.Close()) }()
		for began := time.Now(); time.Since(began) < patience; time.Sleep(10 * time.Millisecond) {
			if _, err := b.Call(within(t), "who", nil); err == nil {
				return true
			}
		}
		return false
	}
	b, err := natsbus.Connect(within(t), "", natsbus.Config{As: node, InProcess: first})
	must(t, err)
	defer func() { must(t, b.Close()) }()
	must(t, b.Serve(t.Context(), "who", func(context.Context, bus.Principal, []byte) ([]byte, error) { return nil, nil }))
	if !inside(between, 30*time.Second) {
		t.Error("a server with the secret is not heard")
	}
	if inside("let me in, let me in", 2*time.Second) || inside("", 2*time.Second) {
		t.Error("a server without the secret is heard")
	}
}

// The first server of a cluster needs no second one to keep a queue, and those that come later take part while it runs:
// three then bear that it dies, and it is one of them when it comes back.
func TestGrowFromOne(t *testing.T) {
	t.Parallel()
	var addrs []string
	for range 3 {
		addrs = append(addrs, freeport.Address(t))
	}
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	begin := func(i int) (*embedded.Server, *natsbus.Bus) {
		t.Helper()
		name := fmt.Sprintf("N%d", i)
		s, err := embedded.Start(embedded.Config{Name: name, Dir: dirs[i], Cluster: embedded.Cluster{Addr: addrs[i], Routes: addrs[:i+1], Secret: between, First: i == 0}})
		must(t, err)
		t.Cleanup(func() { must(t, s.Stop()) })
		b, err := natsbus.Connect(within(t), "", natsbus.Config{As: bus.Principal{Role: bus.Node, Name: name}, InProcess: s})
		must(t, err)
		t.Cleanup(func() { must(t, b.Close()) })
		return s, b
	}
	lane := bus.Lane{Tenant: "default", App: "bells"}
	works := func(what string, leader *natsbus.Bus, term uint64, at ...*embedded.Server) {
		t.Helper()
		queue, took := open(t, leader, term)
		t.Logf("%s: the queue took %v", what, took)
		for i, s := range at {
			offer := bus.Offer{ID: jobs.NewID(time.Now()), Attempt: 1, Key: "bells.ring"}
			queue = offered(t, leader, queue, term, lane, offer)
			w, err := natsbus.Connect(within(t), s.URL(), natsbus.Config{As: bus.Principal{Tenant: "default", Role: bus.Worker, Name: fmt.Sprintf("w%d-%d", term, i), App: "bells"}})
			must(t, err)
			taken(t, w, queue, lane, offer)
			must(t, w.Close())
		}
	}
	first, b0 := begin(0)
	works("one", b0, 1, first)
	second, b1 := begin(1)
	works("two", b0, 2, first, second)
	third, b2 := begin(2)
	works("three", b2, 3, first, second, third)
	// Who has met whom is the servers' own affair, which takes them a moment; then the first may die.
	must(t, first.Stop())
	works("without the first", b1, 4, second, third)
	again, b0 := begin(0)
	works("with the first again", b0, 5, again, second, third)
}
