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
	// Attempt is what is known of a run that is under way, beside what is stored.
	Attempt(tenant jobs.Tenant, run jobs.ID) (Attempt, bool)
	// Leader is the node that fires and offers.
	Leader() Leader
	// Nodes lists the processes of the control plane by name, with those that were heard of within the last hour.
	Nodes() []Node
	// Shares lists the nodes that fire a share of the jobs each, by name; none if the one that leads fires all.
	Shares() []Share
	// Pulse is what the leading node has seen of a tenant, minute by minute, oldest first, within the last hour; the
	// last one is under way. It is memory: it begins when that node began to lead.
	Pulse(tenant jobs.Tenant) []Minute
	// Watch calls fn with what changes from now on, until ctx ends. Changes that come while fn works are told together
	// afterwards. It is a reason to look again, not the news itself.
	Watch(ctx context.Context, tenant jobs.Tenant, fn func(bus.Changes))
}

// Worker is a worker as its heartbeats describe it.
type Worker struct {
	bus.WorkerInfo
	Running int       // attempts it holds
	Seen    time.Time // of its last heartbeat
	Leaving bool      // takes nothing new: it is stopping
	Drained bool      // takes nothing new: somebody wants it so
}

// Attempt is what is known of an attempt beside what is stored.
type Attempt struct {
	Progress *bus.Progress // nil = nothing was said
	Stuck    bool          // it was told to stop, and its handler has not returned
}

// Leader is the node that fires and offers.
type Leader struct {
	Node  string
	Term  uint64
	Here  bool      // it is this one
	Since time.Time // zero = not known
	// Step is by how much somebody set its wall clock ahead (behind, if negative), while it does not follow that yet.
	Step time.Duration
	// Off is by how much its clock is ahead (behind, if negative) of the one in the middle of three or more, as far as
	// this node knows.
	Off time.Duration
}

// Share is a node that fires a share of the jobs.
type Share struct {
	Node  string
	Here  bool      // it is this one
	Jobs  int       // recurring jobs that are its share, of all tenants
	Fired uint64    // due times that it has made runs of since it is there; a second old
	Since time.Time // that it is there
}

// Node is a process of the control plane.
type Node struct {
	Name    string
	Address string // where its pages are, "" = it did not say
	Route   string // where the bus of others comes to its own, "" = it has none
	Version string
	Here    bool          // it is this one
	Online  bool          // it was heard of within the last ten seconds
	Seen    time.Time     // when it was heard of last
	Up      time.Duration // how long it had run then
	Term    uint64        // that it leads, 0 = it does not
	Since   time.Time     // that it leads
	Skew    time.Duration // its clock less this node's
	Asked   time.Time     // when its clock was read, with the way taken out; zero: the message's way is in Skew, and makes it less
	Step    time.Duration // by how much somebody set its clock, while it does not follow that
	NATS    string        // how its end of the bus is, in words; "" = it did not say
}

// Minute is what happened in one minute.
type Minute struct {
	At         time.Time // its beginning
	Started    int       // attempts
	Succeeded  int
	Failed     int // attempts: errors, timeouts, losses
	Terminated int
	Cancelled  int
	Skipped    int
	// From due to start, of first attempts. The percentiles are rounded up, by a quarter at most.
	LateP50, LateP99, LateMax time.Duration
}

// Known says that there is a leader.
func (l Leader) Known() bool { return l.Node != "" }

// nobody is the Live of a process in which no control plane runs.
type nobody struct{}

func (nobody) Workers(jobs.Tenant) []Worker                                  { return nil }
func (nobody) Attempt(jobs.Tenant, jobs.ID) (Attempt, bool)                  { return Attempt{}, false }
func (nobody) Nodes() []Node                                                 { return nil }
func (nobody) Shares() []Share                                               { return nil }
func (nobody) Pulse(jobs.Tenant) []Minute                                    { return nil }
func (nobody) Leader() Leader                                                { return Leader{} }
func (nobody) Watch(ctx context.Context, _ jobs.Tenant, _ func(bus.Changes)) { <-ctx.Done() }

// Workers lists the workers that have been heard of lately.
func (o *Ops) Workers(_ context.Context, who Who) []Worker { return o.live.Workers(who.tenant()) }

// Watch calls fn with what changes from now on, until ctx ends.
func (o *Ops) Watch(ctx context.Context, who Who, fn func(bus.Changes)) {
	o.live.Watch(ctx, who.tenant(), fn)
}
