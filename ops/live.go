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
	// Attempt is what is known of a run that is under way.
	Attempt(run jobs.ID) (Attempt, bool)
	// Leader is the node that fires and offers.
	Leader() Leader
	// Watch calls fn with what changes from now on, until ctx ends. Changes that come while fn works are told together
	// afterwards. It is a reason to look again, not the news itself.
	Watch(ctx context.Context, tenant jobs.Tenant, fn func(bus.Changes))
}

// Worker is a worker as its beats describe it.
type Worker struct {
	bus.WorkerInfo
	Running int       // attempts it holds
	Seen    time.Time // of its last beat
	Leaving bool      // takes nothing new: it is stopping
}

// Attempt is what is known of an attempt beside what is stored.
type Attempt struct {
	Progress *bus.Progress // nil = nothing was said
	Stuck    bool          // it was told to stop, and its handler has not returned
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
func (nobody) Attempt(jobs.ID) (Attempt, bool)                               { return Attempt{}, false }
func (nobody) Leader() Leader                                                { return Leader{} }
func (nobody) Watch(ctx context.Context, _ jobs.Tenant, _ func(bus.Changes)) { <-ctx.Done() }

// Workers lists the workers that have been heard of lately.
func (o *Ops) Workers(_ context.Context, who Who) []Worker { return o.live.Workers(who.tenant()) }

// Watch calls fn with what changes from now on, until ctx ends.
func (o *Ops) Watch(ctx context.Context, who Who, fn func(bus.Changes)) {
	o.live.Watch(ctx, who.tenant(), fn)
}
