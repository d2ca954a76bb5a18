package embedded_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/link"
)

// circle are servers that know each other by their keys.
type circle struct {
	t    *testing.T
	mu   sync.Mutex
	keys map[string]*link.Key // by the server's name
	out  map[string]bool      // by the key's node
}

func newCircle(t *testing.T) *circle {
	return &circle{t: t, keys: map[string]*link.Key{}, out: map[string]bool{}}
}

// tls is the configuration of a server, which is one of the circle from then on.
func (c *circle) tls(name string) *tls.Config {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys[name] == nil {
		key, err := link.NewKey()
		must(c.t, err)
		c.keys[name] = key
	}
	return c.keys[name].TLS(link.ProtocolRoute, c.member)
}

func (c *circle) member(node string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.keys {
		if k.Node() == node && !c.out[node] {
			return nil
		}
	}
	return errors.New("it is not a member")
}

// remove takes a server out of the circle.
func (c *circle) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out[c.keys[name].Node()] = true
}

// trusting is the configuration of a server of the circle that does not look at the others.
func (c *circle) trusting(name string) *tls.Config {
	conf := c.tls(name)
	conf.VerifyConnection = func(tls.ConnectionState) error { return nil }
	return conf
}

// three are the servers of a cluster, and a node in the process of each.
type three struct {
	servers [3]*embedded.Server
	nodes   [3]*natsbus.Bus
}

func newThree(t *testing.T) *three {
	t.Helper()
	var h three
	between := newCircle(t)
	var addrs []string
	for range h.servers {
		addrs = append(addrs, freeport.Address(t))
	}
	for i := range h.servers {
		name := fmt.Sprintf("N%d", i)
		var err error
		h.servers[i], err = embedded.Start(embedded.Config{Name: name, Cluster: embedded.Cluster{Addr: addrs[i], Routes: addrs, TLS: between.tls(name)}})
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

// open opens the queue of a term as soon as that is possible, and returns how long that took.
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

// offered offers a run. A server that has just come may not answer yet: then the leader opens the queue again.
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
		if !errors.Is(err, bus.ErrNoReceiver) || time.Since(began) > time.Minute {
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

// Three servers are one bus: the leader keeps the queue on its own server, workers at any server take from it, and when
// the leader's server dies all continue at the others.
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
		if !errors.Is(err, bus.ErrNoReceiver) && !errors.Is(err, context.DeadlineExceeded) || time.Since(died) > time.Minute {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Logf("the worker can be sent offers %v after its server died", time.Since(died))
	queue, _ = open(t, h.nodes[2], 2)
	t.Logf("the queue of the next term is there %v after the server died", time.Since(died))
	if at := keeper(t, h.servers[2].URL(), queue); at != "N2" {
		t.Errorf("the queue of N2 is kept at %s", at)
	}
	queue = offered(t, h.nodes[2], queue, 2, lane, list[0])
	taken(t, w, queue, lane, list[0])
}

// reaches reports whether a node at one server is answered by a service at another one.
func reaches(t *testing.T, at *embedded.Server, name, service string, within time.Duration) bool {
	t.Helper()
	b, err := natsbus.Connect(t.Context(), "", natsbus.Config{As: bus.Principal{Role: bus.Node, Name: name}, InProcess: at})
	must(t, err)
	defer func() { must(t, b.Close()) }()
	for began := time.Now(); time.Since(began) < within; time.Sleep(10 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // what asks while a route is closed gets no answer
		_, err := b.Call(ctx, service, nil)
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}

// A server that is not one of the others, or not any more, is refused by them, even if it does not know that itself;
// and its connections are closed, from either side. Those of others stay, and those of clients.
func TestClusterKeepsStrangersOut(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	between := newCircle(t)
	addrs := []string{freeport.Address(t), freeport.Address(t), freeport.Address(t)}
	first, err := embedded.Start(embedded.Config{Name: "N0", Admit: newRegister().admit, Cluster: embedded.Cluster{Addr: addrs[0], TLS: between.tls("N0")}})
	must(t, err)
	defer func() { must(t, first.Stop()) }()
	var log page
	to := slog.New(slog.NewTextHandler(&log, nil))
	inside, err := natsbus.Connect(within(t), "", natsbus.Config{As: node, InProcess: first, Logger: to})
	must(t, err)
	defer func() { must(t, inside.Close()) }()
	must(t, inside.Serve(t.Context(), bus.ServiceStore, func(context.Context, bus.Principal, []byte) ([]byte, error) { return nil, nil }))
	other, err := natsbus.Connect(within(t), first.URL(), natsbus.Config{As: as("default", bus.Client, "shop"), Token: ofClient, Logger: to})
	must(t, err)
	defer func() { must(t, other.Close()) }()

	start := func(name, addr string, routes []string, conf *tls.Config) *embedded.Server {
		t.Helper()
		s, err := embedded.Start(embedded.Config{Name: name, Cluster: embedded.Cluster{Addr: addr, Routes: routes, TLS: conf}})
		must(t, err)
		t.Cleanup(func() { must(t, s.Stop()) })
		return s
	}
	// The staying server connects to the one that goes, and that one to the first.
	stays, goes := start("N1", addrs[1], []string{addrs[0], addrs[2]}, between.tls("N1")), start("N2", addrs[2], addrs[:1], between.trusting("N2"))
	beside, err := natsbus.Connect(within(t), "", natsbus.Config{As: bus.Principal{Role: bus.Node, Name: "n1"}, InProcess: stays})
	must(t, err)
	defer func() { must(t, beside.Close()) }()
	must(t, beside.Serve(t.Context(), "beside", func(context.Context, bus.Principal, []byte) ([]byte, error) { return nil, nil }))
	if !reaches(t, stays, "n1", bus.ServiceStore, time.Minute) || !reaches(t, goes, "n2", bus.ServiceStore, time.Minute) || !reaches(t, goes, "n2", "beside", time.Minute) {
		t.Fatal("a server of the others is not reached")
	}
	between.remove("N2")
	for _, service := range []string{bus.ServiceStore, "beside"} {
		for began := time.Now(); reaches(t, goes, "n2", service, 10*time.Millisecond); {
			if time.Since(began) > time.Minute {
				t.Fatalf("a server that was removed reaches %s", service)
			}
		}
	}
	var all sync.WaitGroup
	for name, conf := range map[string]*tls.Config{"N3": between.trusting("N2"), "N4": newCircle(t).trusting("N4"), "N5": nil} {
		s := start(name, freeport.Address(t), addrs[:2], conf)
		all.Go(func() {
			if reaches(t, s, "n3", bus.ServiceStore, time.Second) {
				t.Errorf("%s, which is none of the others, is reached", name)
			}
		})
	}
	all.Wait()
	if !reaches(t, stays, "n1", bus.ServiceStore, time.Minute) {
		t.Error("a server that stays is not reached")
	}
	_, err = other.Call(within(t), bus.ServiceStore, nil)
	must(t, err)
	if n := strings.Count(log.String(), "bus connected"); n != 2 || strings.Contains(log.String(), "bus disconnected") {
		t.Errorf("a client has lost its connection: %s", log.String())
	}
}

// The first server of a cluster needs no second one to keep a queue, and later ones join while it runs: three then
// survive its death, and it is one of them when it comes back.
func TestGrowFromOne(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	var addrs []string
	for range 3 {
		addrs = append(addrs, freeport.Address(t))
	}
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	between := newCircle(t)
	begin := func(i int) (*embedded.Server, *natsbus.Bus) {
		t.Helper()
		name := fmt.Sprintf("N%d", i)
		s, err := embedded.Start(embedded.Config{Name: name, Dir: dirs[i], Cluster: embedded.Cluster{Addr: addrs[i], Routes: addrs[:i+1], TLS: between.tls(name), First: i == 0}})
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
	// The servers need a moment to know each other; then the first may die.
	must(t, first.Stop())
	works("without the first", b1, 4, second, third)
	again, b0 := begin(0)
	works("with the first again", b0, 5, again, second, third)
}
