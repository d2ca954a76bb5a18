package controlplane_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

// lame is a store of which a node can do all but one thing, once that is broken.
type lame struct {
	metastore.Full
	what   string
	broken atomic.Bool
	hangs  bool // instead of an error nothing comes
}

var errLame = kernel.Refuse(jobs.Unavailable, "the disk cannot be read")

func (l *lame) fails(ctx context.Context, what string) error {
	if !l.broken.Load() || what != l.what {
		return nil
	}
	if l.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return errLame
}

func (l *lame) Waking(ctx context.Context, now time.Time, limit int) ([]metastore.Named, time.Time, error) {
	if err := l.fails(ctx, "wake"); err != nil {
		return nil, time.Time{}, err
	}
	return l.Full.Waking(ctx, now, limit)
}

func (l *lame) ReadyApps(ctx context.Context) ([]metastore.ReadyApp, error) {
	if err := l.fails(ctx, "sweep"); err != nil {
		return nil, err
	}
	return l.Full.ReadyApps(ctx)
}

func (l *lame) Expired(ctx context.Context, now time.Time, limit int) ([]kernel.Ref, error) {
	if err := l.fails(ctx, "prune"); err != nil {
		return nil, err
	}
	return l.Full.Expired(ctx, now, limit)
}

func (l *lame) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	for _, e := range batch {
		what := ""
		switch e.Command.(type) {
		case kernel.Fire:
			what = "fire"
		case kernel.Release:
			what = "release"
		case kernel.Expire:
			what = "expire"
		}
		if err := l.fails(ctx, what); err != nil {
			return metastore.Refused(batch, err)
		}
	}
	return l.Full.Apply(ctx, batch)
}

// limping are two nodes of which the first leads; it, or both, cannot do one thing from some moment on.
type limping struct {
	*fixture
	nodes  [2]*baton
	stores [2]*lame
	ended  [2]atomic.Int64 // how often a control plane broke
}

func newLimping(t *testing.T, what string, hangs, alone bool) *limping {
	l := &limping{fixture: newFixture(t)}
	l.stop()
	pass := make(chan struct{})
	for i, name := range []string{"n1", "n2"} {
		if alone && i == 1 {
			break
		}
		l.nodes[i] = &baton{store: l.full, pass: pass, yield: make(chan struct{})}
		l.stores[i] = &lame{Full: l.full, what: what, hangs: hangs}
		cp, err := controlplane.New(controlplane.Config{Node: name, Store: l.stores[i], Elector: l.nodes[i],
			Bus: l.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: name}), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		l.spawn(func(ctx context.Context) error { // as embed does
			for ctx.Err() == nil {
				if cp.Run(ctx) != nil && ctx.Err() == nil {
					l.ended[i].Add(1)
					time.Sleep(time.Second)
				}
			}
			return nil
		})
		if i == 0 {
			l.use(cp)
			pass <- struct{}{}
		}
		synctest.Wait()
	}
	return l
}

// A leader that cannot do one of its duties has another node lead after a while, which can; one that is alone keeps
// trying, and a duty that fails on all nodes does not make leadership go round.
func TestALeaderWhoseDutyFailsStepsDown(t *testing.T) {
	tests.Long(t)
	for _, c := range []struct {
		what  string
		hangs bool
		after time.Duration // it has stepped down by then
	}{
		{"fire", false, 15 * time.Second}, {"release", false, 15 * time.Second}, {"wake", false, 15 * time.Second}, {"sweep", false, 15 * time.Second},
		{"expire", false, 45 * time.Second}, {"prune", false, 5 * time.Minute}, {"fire", true, 150 * time.Second}, {"sweep", true, 150 * time.Second},
	} {
		name := c.what
		if c.hangs {
			name += " hangs"
		}
		for _, who := range []string{"one of two", "both", "alone"} {
			t.Run(name+", "+who, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLimping(t, c.what, c.hangs, who == "alone")
					defer l.close()
					var n atomic.Int64
					stays := jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(ctx context.Context, _ struct{}) error { <-ctx.Done(); return ctx.Err() }), jobs.Options{Key: "stays"})
					wire := l.cabled(worker.Config{Name: "w"}, job("tick", jobs.Options{Every: time.Second, MaxConcurrency: jobs.None}, &n), stays)
					l.enqueue("stays")
					time.Sleep(10 * time.Second) // until they know each other
					for _, s := range l.stores {
						if s != nil && (who != "one of two" || s == l.stores[0]) {
							s.broken.Store(true)
						}
					}
					l.enqueue("stays", jobs.After(time.Second))
					if c.what == "expire" {
						wire.cut.Store(true)
					}
					time.Sleep(5 * time.Second)
					if s, _ := l.full.State(l.ctx); s.Leader != "n1" {
						t.Errorf("%s leads after five seconds", s.Leader)
					}
					time.Sleep(c.after)
					synctest.Wait()
					s, err := l.full.State(l.ctx)
					if err != nil {
						t.Fatal(err)
					}
					led := l.nodes[0].led.Load()
					switch who {
					case "one of two":
						if s.Leader != "n2" || l.nodes[1].led.Load() != 1 || led != 1 {
							t.Errorf("%s leads, n1 did %d times and n2 %d", s.Leader, led, l.nodes[1].led.Load())
						}
					case "both":
						time.Sleep(6 * time.Minute) // shorter than a node waits before it gives up again
						if led, other := l.nodes[0].led.Load(), l.nodes[1].led.Load(); other == 0 || led+other > 3 {
							t.Errorf("n1 led %d times and n2 %d", led, other)
						}
					case "alone":
						if s.Leader != "n1" || led != 1 || l.ended[0].Load() != 0 {
							t.Errorf("%s leads, n1 did %d times, and ended %d times", s.Leader, led, l.ended[0].Load())
						}
					}
				})
			})
		}
	}
}
