package ops

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Live is what only the running parts know: who works, how far they are, who leads. A control plane satisfies it.
// Nothing here is stored, and all of it may be a few seconds old.
type Live interface {
	// Workers lists the workers that have been heard of lately, by app and name. Tenant "" means the default one.
	Workers(tenant jobs.Tenant) []Worker
	// Progress is how far a run that is under way said it is.
	Progress(run jobs.ID) (bus.Progress, bool)
	// Leader is the node that fires and offers.
	Leader() Leader
	// Watch calls fn with what changes from now on, until ctx ends. Changes that come while fn works are told together
	// afterwards. It is a reason to look again, not the news itself.
	Watch(ctx context.Context, tenant jobs.Tenant, fn func(bus.Changes))
}

// Worker is a worker as its beats describe it.
type Worker struct {
	Info     bus.WorkerInfo
	Running  []bus.Held // attempts it holds, as of its last beat
	Seen     time.Time  // of its last beat
	Draining bool       // takes nothing new: it is stopping
}

// Leader is the node that fires and offers.
type Leader struct {
	Node  string
	Epoch uint64
	Here  bool      // it is this one
	Since time.Time // zero = not known
}

// Known says that there is a leader.
func (l Leader) Known() bool { return l.Node != "" }

// nobody is the Live of a process in which no control plane runs.
type nobody struct{}

func (nobody) Workers(jobs.Tenant) []Worker                                  { return nil }
func (nobody) Progress(jobs.ID) (bus.Progress, bool)                         { return bus.Progress{}, false }
func (nobody) Leader() Leader                                                { return Leader{} }
func (nobody) Watch(ctx context.Context, _ jobs.Tenant, _ func(bus.Changes)) { <-ctx.Done() }

// Workers lists the workers that have been heard of lately.
func (o *Ops) Workers(_ context.Context, who Who) []Worker { return o.live.Workers(who.tenant()) }

// Watch calls fn with what changes from now on, until ctx ends.
func (o *Ops) Watch(ctx context.Context, who Who, fn func(bus.Changes)) {
	o.live.Watch(ctx, who.tenant(), fn)
}
