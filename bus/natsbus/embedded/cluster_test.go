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

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/internal/tests"
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

// reach pushes to a worker until it answers: a server that has just come may not know of it yet, and a worker whose server
// died connects to another one.
func reach(t *testing.T, leader *natsbus.Bus, to bus.Address) {
	t.Helper()
	for ctx := within(t); ; time.Sleep(5 * time.Millisecond) {
		limited, cancel := context.WithTimeout(ctx, 2*time.Second) // what is pushed while a server dies gets no answer
		_, err := leader.Push(limited, to, []byte("a run"))
		cancel()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// worker is a worker that accepts pushes, at the first of these servers that it can reach.
func worker(t *testing.T, name, urls string) bus.Address {
	t.Helper()
	b, err := natsbus.Connect(within(t), urls, natsbus.Config{As: bus.Principal{Tenant: "default", Role: bus.Worker, Name: name, App: "bells"}})
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	at := bus.Address{Tenant: "default", App: "bells", Worker: name}
	must(t, b.Accept(t.Context(), at, same))
	return at
}

// Three servers are one bus: a leader at any of them reaches workers at each, and when a server dies all continue at the
// others.
func TestCluster(t *testing.T) {
	t.Parallel()
	h := newThree(t)
	var workers []bus.Address
	for i := range h.servers {
		workers = append(workers, worker(t, fmt.Sprintf("w%d", i), h.urls(i)))
	}
	for _, to := range workers {
		reach(t, h.nodes[1], to)
	}
	must(t, h.servers[1].Stop())
	died := time.Now()
	for _, to := range workers {
		reach(t, h.nodes[2], to)
	}
	t.Logf("all workers are reached %v after a server died", time.Since(died))
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

// The first server of a cluster works alone, and others join while it runs: they continue without it, and with it again
// when it comes back.
func TestGrowFromOne(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	var addrs []string
	for range 3 {
		addrs = append(addrs, freeport.Address(t))
	}
	between := newCircle(t)
	begin := func(i int) (*embedded.Server, *natsbus.Bus) {
		t.Helper()
		name := fmt.Sprintf("N%d", i)
		s, err := embedded.Start(embedded.Config{Name: name, Cluster: embedded.Cluster{Addr: addrs[i], Routes: addrs[:i], TLS: between.tls(name)}})
		must(t, err)
		t.Cleanup(func() { must(t, s.Stop()) })
		b, err := natsbus.Connect(within(t), "", natsbus.Config{As: bus.Principal{Role: bus.Node, Name: name}, InProcess: s})
		must(t, err)
		t.Cleanup(func() { must(t, b.Close()) })
		return s, b
	}
	count := 0
	works := func(leader *natsbus.Bus, at ...*embedded.Server) {
		t.Helper()
		for _, s := range at {
			count++
			reach(t, leader, worker(t, fmt.Sprintf("w%d", count), s.URL()))
		}
	}
	first, b0 := begin(0)
	works(b0, first)
	second, b1 := begin(1)
	works(b0, first, second)
	third, b2 := begin(2)
	works(b2, first, second, third)
	must(t, first.Stop())
	works(b1, second, third)
	again, b0 := begin(0)
	works(b0, again)
}
