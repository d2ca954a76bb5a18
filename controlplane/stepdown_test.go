package controlplane_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// A leader that is cut off the bus has another node lead, which can be reached. One that is alone continues.
func TestALeaderThatCannotBeReachedStepsDown(t *testing.T) {
	for _, alone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newFixture(t)
			defer h.close()
			h.stop()
			pass := make(chan struct{}, 1)
			var nodes [2]*baton
			var cables [2]*cable
			for i := range nodes {
				if alone && i == 1 {
					continue
				}
				name := []string{"n1", "n2"}[i]
				nodes[i] = &baton{store: h.full, pass: pass, yield: make(chan struct{})}
				cables[i] = &cable{Bus: h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: name})}
				cp, err := controlplane.New(controlplane.Config{Node: name, Store: h.full, Elector: nodes[i], Bus: cables[i], Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
				if err != nil {
					t.Fatal(err)
				}
				h.spawn(cp.Run)
				if i == 0 {
					h.use(cp)
					pass <- struct{}{}
				}
				synctest.Wait()
			}
			time.Sleep(10 * time.Second)
			cables[0].cut.Store(true)
			time.Sleep(4 * time.Second) // a short outage is nothing
			if s, _ := h.full.State(h.ctx); s.Leader != "n1" {
				t.Fatalf("%s leads after an outage of four seconds", s.Leader)
			}
			time.Sleep(10 * time.Second)
			want := "n2"
			if alone {
				want = "n1"
			}
			if s, _ := h.full.State(h.ctx); s.Leader != want || nodes[0].led.Load() != 1 {
				t.Errorf("%s leads, and n1 has begun to lead %d times; %s should", s.Leader, nodes[0].led.Load(), want)
			}
		})
	}
}

// hurt is a store in which the node that is the first to lead cannot begin, or none can.
type hurt struct {
	metastore.Full
	node  string
	first *atomic.Pointer[string]
	all   bool
}

func (h *hurt) Leased(ctx context.Context) ([]*kernel.Run, error) {
	h.first.CompareAndSwap(nil, &h.node)
	if h.all || *h.first.Load() == h.node {
		return nil, errors.New("the disk cannot be read")
	}
	return h.Full.Leased(ctx)
}

// A leader that cannot begin its duties has another node lead, which can. Where no node can, leadership does not go
// round at full speed.
func TestALeaderThatCannotDoADutyStepsDown(t *testing.T) {
	for _, all := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newFixture(t)
			defer h.close()
			h.stop()
			pass := make(chan struct{})
			var first atomic.Pointer[string]
			var nodes [2]*baton
			var ended [2]error
			for i, name := range []string{"n1", "n2"} {
				nodes[i] = &baton{store: h.full, pass: pass, yield: make(chan struct{})}
				cp, err := controlplane.New(controlplane.Config{Node: name, Store: &hurt{h.full, name, &first, all}, Elector: nodes[i],
					Bus: h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: name}), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
				if err != nil {
					t.Fatal(err)
				}
				h.spawn(func(ctx context.Context) error { ended[i] = cp.Run(ctx); return nil })
			}
			time.Sleep(10 * time.Second) // until they know each other
			pass <- struct{}{}
			time.Sleep(time.Minute)
			synctest.Wait()
			led := nodes[0].led.Load() + nodes[1].led.Load()
			if !all {
				if s, _ := h.full.State(h.ctx); s.Leader == *first.Load() || led != 2 || ended != [2]error{} {
					t.Errorf("%s leads, %s should not; %d terms; the nodes have ended with %v", s.Leader, *first.Load(), led, ended)
				}
			} else if led != 3 || ended[0] == nil && ended[1] == nil {
				t.Errorf("%d terms; the nodes have ended with %v", led, ended)
			}
		})
	}
}
