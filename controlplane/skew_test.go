package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// stays is an elector without another candidate.
type stays struct{ controlplane.Elector }

func (stays) Yield() error { return errors.New("no other node can lead") }

// idle is an elector that never leads.
type idle struct{}

func (idle) Confirmed(uint64) time.Time { return time.Time{} }

func (idle) Lead(ctx context.Context, _ func(context.Context, uint64) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// The clock of the leader is not that of the two others: another node leads. If none can, nothing fires by the wrong
// clock. Of two clocks it is unknown which is wrong, and a quarter of a second is nothing.
func TestALeaderWhoseClockIsWrong(t *testing.T) {
	for _, c := range []struct {
		ahead     time.Duration
		nodes     int
		stuck     bool // no other node can lead
		handsOver bool
		silent    bool // nothing fires
	}{
		{ahead: 2 * time.Second, nodes: 3, handsOver: true},
		{ahead: -2 * time.Second, nodes: 3, handsOver: true},
		{ahead: 2 * time.Second, nodes: 3, stuck: true, silent: true},
		{ahead: 2 * time.Second, nodes: 2},
		{ahead: 250 * time.Millisecond, nodes: 3},
	} {
		t.Run(fmt.Sprintf("%v of %d stuck %v", c.ahead, c.nodes, c.stuck), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFixture(t)
				defer h.close()
				h.stop()
				pass := make(chan struct{})
				wrong := &metastore.Clock{Wall: func() time.Time { return time.Now().Add(c.ahead) }}
				stamps := wrong // of a store that would take what n1 fires early
				if c.ahead < 0 {
					stamps = h.clock
				}
				h.full = &metastore.Local{Engine: memstore.New(memstore.Config{}), Now: stamps.Now}
				for i := range c.nodes {
					name := fmt.Sprint("n", i+1)
					b := &baton{store: h.full, pass: pass, yield: make(chan struct{})}
					conf := controlplane.Config{Node: name, Store: h.full, Elector: b, Bus: h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: name}),
						Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
					switch {
					case i == 0:
						conf.Clock = wrong
						if c.stuck {
							conf.Elector = stays{controlplane.Always{Store: h.full}}
						}
					case c.stuck || !c.handsOver:
						conf.Elector = idle{}
					}
					cp, err := controlplane.New(conf)
					if err != nil {
						t.Fatal(err)
					}
					h.spawn(cp.Run)
					if i == 0 {
						h.use(cp)
						if !c.stuck {
							pass <- struct{}{}
						}
					}
					synctest.Wait()
				}
				var n atomic.Int64
				h.worker(worker.Config{}, job("tick", jobs.Options{Every: time.Second, MaxConcurrency: jobs.None}, &n))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if s, _ := h.full.State(h.ctx); (s.Leader == "n1") == c.handsOver {
					t.Errorf("%s leads", s.Leader)
				}
				if off := h.cp.ClockOff(); c.nodes == 3 && off.Round(100*time.Millisecond) != c.ahead.Round(100*time.Millisecond) || c.nodes == 2 && off != 0 {
					t.Errorf("n1 reports being %v ahead", off)
				}
				if nodes := h.cp.Nodes(); nodes[1].Skew.Round(100*time.Millisecond) != -c.ahead.Round(100*time.Millisecond) {
					t.Errorf("n2 is reported %v ahead of n1", nodes[1].Skew)
				}
				list := h.cp.Elections()
				if c.handsOver && (len(list) < 2 || list[0].Node == "n1" || list[0].Since.IsZero() || !list[0].Until.IsZero() ||
					list[1].Node != "n1" || list[1].Until.IsZero() || list[1].Why != "its clock is not that of the others") || !c.handsOver && (len(list) != 1 || list[0].Why != "") {
					t.Errorf("the elections were %+v", list)
				}
				before := n.Load()
				time.Sleep(20 * time.Second)
				synctest.Wait()
				if fired := n.Load() - before; c.silent && fired != 0 || !c.silent && fired < 15 {
					t.Errorf("%d due times fired in twenty seconds", fired)
				}
			})
		})
	}
}
