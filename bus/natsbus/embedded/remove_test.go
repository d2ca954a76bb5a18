package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/jobs"
)

// decide waits until a server knows of so many that decide.
func decide(t *testing.T, s *embedded.Server, want int) {
	t.Helper()
	for began := time.Now(); s.Peers() != want; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("%d servers decide, want %d", s.Peers(), want)
		}
	}
}

// A server that died for good is taken out and another one comes in its place: again one of three may die. Otherwise
// there were four, of which two are no majority.
func TestRemove(t *testing.T) {
	var addrs []string
	for range 4 {
		addrs = append(addrs, freeport.Address(t))
	}
	nobody := func(context.Context, string) (bus.Principal, string, error) {
		return bus.Principal{}, "", jobs.Refuse(jobs.Forbidden, "nobody comes in")
	}
	var servers [4]*embedded.Server
	var nodes [4]*natsbus.Bus
	begin := func(i int) {
		t.Helper()
		cfg := embedded.Config{Name: fmt.Sprintf("N%d", i), Cluster: embedded.Cluster{Addr: addrs[i], Routes: addrs[:max(3, i+1)], Secret: between}}
		if i < 2 {
			cfg.Admit = nobody // the others let everybody in
		}
		var err error
		servers[i], err = embedded.Start(cfg)
		must(t, err)
		t.Cleanup(func() { must(t, servers[i].Stop()) })
		nodes[i], err = natsbus.Connect(within(t), "", natsbus.Config{As: bus.Principal{Role: bus.Node, Name: cfg.Name}, InProcess: servers[i]})
		must(t, err)
		t.Cleanup(func() { must(t, nodes[i].Close()) })
	}
	for i := range 3 {
		begin(i)
	}
	for _, s := range servers[:3] {
		decide(t, s, 3)
	}
	open(t, nodes[0], 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := servers[0].Remove(ctx, "N0"); !errors.Is(err, jobs.Conflict) {
		t.Errorf("it takes itself out: %v", err)
	}
	if err := servers[0].Remove(ctx, "never seen"); !errors.Is(err, jobs.NotFound) {
		t.Errorf("one that never was is taken out: %v", err)
	}
	decide(t, servers[0], 3)

	must(t, servers[1].Stop())
	must(t, servers[0].Remove(ctx, "N1"))
	decide(t, servers[0], 2)
	decide(t, servers[2], 2)
	if err := servers[0].Remove(ctx, "N1"); !errors.Is(err, jobs.NotFound) {
		t.Errorf("it is taken out twice: %v", err)
	}
	begin(3)
	for _, i := range []int{0, 2, 3} {
		decide(t, servers[i], 3)
	}
	must(t, servers[0].Stop())
	open(t, nodes[3], 2)
	must(t, servers[3].Remove(ctx, "N0"))
	decide(t, servers[2], 2)
	decide(t, servers[3], 2)
}

// With nobody there who could agree, it says why, and that it was not done.
func TestRemoveWithoutAMajority(t *testing.T) {
	h := newThree(t)
	decide(t, h.servers[0], 3)
	open(t, h.nodes[0], 1)
	must(t, h.servers[1].Stop())
	must(t, h.servers[2].Stop())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := h.servers[0].Remove(ctx, "N2"); err == nil {
		t.Errorf("one of three has taken another one out")
	}
}
