package ops

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Live is the state that only the running parts know: workers, progress, the leader. A control plane implements it.
// Nothing here is stored, and all of it may be a few seconds old.
type Live interface {
	// Workers lists the workers with recent heartbeats, by app and name. Tenant "" means the default one, "*" all.
	Workers(tenant jobs.Tenant) []Worker
	// Attempt returns what workers reported about a live run beyond what is stored.
	Attempt(tenant jobs.Tenant, run jobs.ID) (Attempt, bool)
	// Leader is the node that fires due times and dispatches runs.
	Leader() Leader
	// Nodes lists the processes of the control plane by name, with those that sent a heartbeat within the last hour.
	Nodes() []Node
	// Shares lists the nodes that fire a share of the jobs each, by name; none if the leader fires all.
	Shares() []Share
	// Pulse is a tenant's activity as the leader saw it, minute by minute, oldest first, within the last hour; the last
	// minute is incomplete. It is memory: it begins when that node became the leader.
	Pulse(tenant jobs.Tenant) []Minute
	// Refusals lists the episodes in which bounds refused requests of a tenant, and the default tenant also those of the
	// server's bounds: under way, or over since a moment.
	Refusals(tenant jobs.Tenant) []Refusals
	// Watch calls fn with changes from now on, until ctx ends. Changes while fn works are merged into the next call. A
	// change is a reason to read again: it has no data.
	Watch(ctx context.Context, tenant jobs.Tenant, fn func(bus.Changes))
}

// Worker describes a worker, from its heartbeats.
type Worker struct {
	bus.WorkerInfo
	Running int       // attempts that it runs
	Seen    time.Time // of its last heartbeat
	Leaving bool      // takes no new runs: it is stopping
	Drained bool      // takes no new runs: a user drained it
}

// Attempt is what workers reported about an attempt beyond what is stored.
type Attempt struct {
	Progress *bus.Progress // nil = none was reported
	Stuck    bool          // it was asked to stop, and its handler has not returned
	// Unconfirmed: it was sent to the worker, which has not said yet that it began.
	Unconfirmed bool
}

// Leader is the node that fires due times and dispatches runs.
type Leader struct {
	Node  string
	Term  uint64
	Here  bool      // it is this one
	Since time.Time // zero = not known
	// Step is how far its wall clock was set ahead (behind, if negative), while the scheduler does not follow that yet.
	Step time.Duration
	// Off is how far its clock is ahead (behind, if negative) of the median of three or more nodes, as far as this node
	// knows.
	Off time.Duration
}

// Share is a node that fires a share of the jobs.
type Share struct {
	Node  string
	Here  bool      // it is this one
	Jobs  int       // recurring jobs in its share, of all tenants
	Fired uint64    // due times that it fired since it joined; a second old
	Since time.Time // since when it has a share
}

// Node is a process of the control plane.
type Node struct {
	Name    string
	Address string // address of its pages, "" = not known
	Route   string // address of its bus for others, "" = it has none
	Version string
	Here    bool          // it is this one
	Online  bool          // a heartbeat arrived within the last ten seconds
	Seen    time.Time     // when its last heartbeat arrived
	Up      time.Duration // its uptime then
	Term    uint64        // its term as the leader, 0 = it is not
	Since   time.Time     // since when it is the leader
	Skew    time.Duration // its clock less this node's
	Asked   time.Time     // when its clock was read, without travel time; zero: Skew is reduced by the travel time
	Step    time.Duration // how far its clock was set, while the scheduler does not follow that
	NATS    string        // state of its bus server, as text; "" = not known
}

// Minute is the activity of one minute.
type Minute struct {
	At         time.Time // its start
	Started    int       // attempts
	Succeeded  int
	Failed     int // attempts: errors, timeouts, losses
	Terminated int
	Cancelled  int
	Skipped    int
	// From due to start, of first attempts. The percentiles are rounded up, by a quarter at most.
	LateP50, LateP99, LateMax time.Duration
}

// Refusals are the requests of a tenant that a bound refused in one episode.
type Refusals struct {
	Bound       kernel.Bound
	N           int
	First, Last time.Time
	Why         string // text of the last refusal
}

// Known reports whether there is a leader.
func (l Leader) Known() bool { return l.Node != "" }

// noLive is the Live of a process without a control plane.
type noLive struct{}

func (noLive) Workers(jobs.Tenant) []Worker                                  { return nil }
func (noLive) Attempt(jobs.Tenant, jobs.ID) (Attempt, bool)                  { return Attempt{}, false }
func (noLive) Nodes() []Node                                                 { return nil }
func (noLive) Refusals(jobs.Tenant) []Refusals                               { return nil }
func (noLive) Shares() []Share                                               { return nil }
func (noLive) Pulse(jobs.Tenant) []Minute                                    { return nil }
func (noLive) Leader() Leader                                                { return Leader{} }
func (noLive) Watch(ctx context.Context, _ jobs.Tenant, _ func(bus.Changes)) { <-ctx.Done() }

// Workers lists the workers with recent heartbeats.
func (o *Ops) Workers(_ context.Context, who Who) []Worker { return o.live.Workers(who.tenant()) }

// Watch calls fn with changes from now on, until ctx ends.
func (o *Ops) Watch(ctx context.Context, who Who, fn func(bus.Changes)) {
	o.live.Watch(ctx, who.tenant(), fn)
}
