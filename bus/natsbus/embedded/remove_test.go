package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// decide waits until a server counts so many members.
func decide(t *testing.T, s *embedded.Server, want int) {
	t.Helper()
	for began := time.Now(); s.Peers() != want; time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("%d servers decide, want %d", s.Peers(), want)
		}
	}
}

// notThere wants the refusal that a server is not a member. It asks again after a success: on a busy
// machine an answer may be lost, and then that is right.
func notThere(t *testing.T, s *embedded.Server, name string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := s.Remove(within(t), name)
		if errors.Is(err, jobs.NotFound) {
			return
		}
		if err != nil || time.Since(began) > time.Minute {
			t.Fatalf("%s is taken out, and is not a member: %v", name, err)
		}
	}
}

// The answer depends on whether one was lost before: that request may have been done.
func TestRemoveInsists(t *testing.T) {
	leaderless := kernel.Refuse(jobs.Unavailable, "no leader")
	none := kernel.Refuse(jobs.NotFound, "it is not a member")
	lost := context.DeadlineExceeded
	for what, c := range map[string]struct {
		answers []error
		want    error
	}{
		"it is done":           {[]error{nil}, nil},
		"it is none":           {[]error{none}, jobs.NotFound},
		"no leader at first":   {[]error{leaderless, leaderless, nil}, nil},
		"and then it is none":  {[]error{leaderless, none}, jobs.NotFound},
		"it was done, unheard": {[]error{lost, none}, nil},
		"and then no leader":   {[]error{lost, leaderless, none}, nil},
		"no leader, then lost": {[]error{leaderless, lost, none}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := embedded.Insist(t.Context(), func(context.Context) error {
					answer := c.answers[0]
					c.answers = c.answers[1:]
					return answer
				})
				if !errors.Is(err, c.want) || len(c.answers) > 0 {
					t.Errorf("it returns %v, %d answers are left", err, len(c.answers))
				}
			})
		})
	}
}

// A server that died for good is removed and another one joins in its place: again one of three may die. Otherwise
// there were four, of which two are no majority.
func TestRemove(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	var addrs []string
	for range 4 {
		addrs = append(addrs, freeport.Address(t))
	}
	none := func(context.Context, string) (bus.Principal, string, error) {
		return bus.Principal{}, "", kernel.Refuse(jobs.Forbidden, "no token is valid")
	}
	var servers [4]*embedded.Server
	var nodes [4]*natsbus.Bus
	between := newCircle(t)
	begin := func(i int) {
		t.Helper()
		name := fmt.Sprintf("N%d", i)
		cfg := embedded.Config{Name: name, Cluster: embedded.Cluster{Addr: addrs[i], Routes: addrs[:max(3, i+1)], TLS: between.tls(name)}}
		if i < 2 {
			cfg.Admit = none // the others admit all
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
	if err := servers[0].Remove(within(t), "N0"); !errors.Is(err, jobs.Conflict) {
		t.Errorf("it takes itself out: %v", err)
	}
	notThere(t, servers[0], "never seen")
	decide(t, servers[0], 3)

	must(t, servers[1].Stop())
	must(t, servers[0].Remove(within(t), "N1"))
	decide(t, servers[0], 2)
	decide(t, servers[2], 2)
	notThere(t, servers[0], "N1") // it is not taken out twice
	begin(3)
	for _, i := range []int{0, 2, 3} {
		decide(t, servers[i], 3)
	}
	must(t, servers[0].Stop())
	open(t, nodes[3], 2)
	must(t, servers[3].Remove(within(t), "N0"))
	decide(t, servers[2], 2)
	decide(t, servers[3], 2)
}

// Without a majority, it returns the reason, and that it was not done.
func TestRemoveWithoutAMajority(t *testing.T) {
	tests.Long(t)
	t.Parallel()
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
