// Package bus defines what a bus promises, which is little: it hints, the store decides. A lost message is swept up, a
// duplicate loses the claim. Offers go to one worker, signals to all listeners, calls to the server of a service.
// Implementations: membus (one process) and natsbus; bustest tests both.
//
// It is not promised to programs outside this module.
package bus

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Bus is the whole bus, as one principal sees it. Consumers take the part they use.
type Bus interface {
	Offers
	Taker
	Signals
	Calls
	// Close ends the connection. Everything that waits on it returns.
	Close() error
}

// Principal is the identity at the other end, taken from the connection, never from the message.
type Principal struct {
	Tenant jobs.Tenant
	Role   Role
	Name   string // of the worker, the client or the node
	App    string // of a worker: whose runs it takes; "" for all others
}

// Actor returns the principal's name in envelopes.
func (p Principal) Actor() string { return string(p.Role) + ":" + p.Name }

// SpeaksFor reports whether a worker's name is the principal's own: the same, or with a dash and a suffix for each of
// its starts, in which there is no dash.
func (p Principal) SpeaksFor(worker string) bool {
	name, start := CutWorker(worker)
	return worker == p.Name || start != "" && name == p.Name
}

// CutWorker splits the name of a worker: that of its principal, and the suffix of its start ("" without one).
func CutWorker(worker string) (name, start string) {
	if i := strings.LastIndexByte(worker, '-'); i > 0 && i < len(worker)-1 {
		return worker[:i], worker[i+1:]
	}
	return worker, ""
}

// Role is what a principal may do.
type Role string

// The roles.
const (
	Node   Role = "node"   // a control plane
	Worker Role = "worker" // runs jobs of its app
	Client Role = "client" // enqueues, cancels, waits
)

// Lane is the destination of offers: the shared lane of an app, or, with Worker, one worker's personal lane.
type Lane struct {
	Tenant jobs.Tenant
	App    string
	Worker string
}

// Offer is a hint that this run can be claimed, as this attempt. The claim decides.
type Offer struct {
	ID      jobs.ID
	Attempt uint32
	Key     jobs.Key
	Handler jobs.Key // the job whose code runs it; "" = Key
}

// HandlerKey returns the key of the job whose code runs it.
func (o *Offer) HandlerKey() jobs.Key { return cmp.Or(o.Handler, o.Key) }

// MaxList is the most offers in one message.
const MaxList = 64

// The errors of a bus.
var (
	// ErrNoReceiver: no receiver at the other end; nothing was done.
	ErrNoReceiver = errors.New("bus: no receiver")
	// ErrClosed: this end was closed.
	ErrClosed = errors.New("bus: closed")
)

// Offers is the leader's side of the lanes.
type Offers interface {
	// Open makes the shared queue of a leader's term ready, and deletes older ones. It returns the queue's name, which
	// workers get with the answers to their heartbeats. It returns when the queue takes offers, or an error with what
	// is missing or configured otherwise (no JetStream, a stream with another retention, ...).
	Open(ctx context.Context, term uint64) (queue string, err error)
	// Offer puts lists (1 to MaxList offers each) on an app's shared lane; each becomes one message, to one worker. It
	// does not wait for a disk. The queue of an app that has none yet is made on the way; with no lists, that is all it
	// does. ErrNoReceiver: the queue is missing: a newer term has its own, or it is to be opened again.
	Offer(ctx context.Context, queue string, lane Lane, lists ...[]Offer) error
	// Hand sends a list to one worker and waits until the worker has it (at most 1 s). ErrNoReceiver: the worker is not
	// there.
	Hand(ctx context.Context, lane Lane, list []Offer) error
}

// Taker is the worker's side of the lanes.
type Taker interface {
	// Take waits for offers on a shared lane and returns what is there: at least one list, and as few as hold want
	// offers. done is called once the offers were claimed or returned: the message is then forgotten. ErrNoReceiver:
	// the queue, or the app's part of it, is missing: find out which queue it is and take again, at once: Take has
	// paced itself.
	Take(ctx context.Context, queue string, lane Lane, want int) (list []Offer, done func(), err error)
	// Receive calls fn for each list on the worker's personal lane, until ctx ends. It returns once it listens.
	Receive(ctx context.Context, lane Lane, fn func(list []Offer)) error
}

// Topic is what a signal is about.
type Topic string

// The topics. The type in brackets is the form of a signal's data.
const (
	TopicCancel  Topic = "cancel"  // to one worker: end these attempts (Stops)
	TopicChanged Topic = "changed" // definitions or settings changed (Changes): reload before use
	TopicBack    Topic = "back"    // a worker returns offers it has no slot for (offers)
	TopicCommit  Topic = "commit"  // a process other than the leader committed: read again
	TopicLog     Topic = "log"     // log lines (metastore.LogLine)
	TopicLive    Topic = "live"    // rows changed: dashboards refetch (Changes)
	TopicNode    Topic = "node"    // among control planes: this one lives (NodeHeartbeat)
)

// topics are the roles that may send and receive each topic. Nodes may do both.
var topics = map[Topic]struct{ send, receive []Role }{
	TopicCancel:  {nil, []Role{Worker, Client}},
	TopicChanged: {nil, []Role{Worker, Client}},
	TopicBack:    {[]Role{Worker}, nil},
	TopicCommit:  {nil, nil},
	TopicLog:     {[]Role{Worker}, nil},
	TopicLive:    {nil, []Role{Worker, Client}},
	TopicNode:    {nil, nil},
}

// Topics lists all topics.
func Topics() []Topic { return slices.Sorted(maps.Keys(topics)) }

// MaySend reports whether a role may send signals of the topic.
func (t Topic) MaySend(r Role) bool { return r == Node || slices.Contains(topics[t].send, r) }

// MayReceive reports whether a role may listen to the topic.
func (t Topic) MayReceive(r Role) bool { return r == Node || slices.Contains(topics[t].receive, r) }

// CheckListen refuses a principal that may not listen to the topic.
func (t Topic) CheckListen(as Principal) error {
	if !t.MayReceive(as.Role) {
		return kernel.Refuse(jobs.Forbidden, "%s may not listen to %s", as.Actor(), t)
	}
	return nil
}

// Signal is a short message to all listeners of its topic.
type Signal struct {
	Topic  Topic
	Tenant jobs.Tenant // "" = the sender's
	To     string      // the worker it is meant for; "" = all
	From   Principal   // set by the bus
	Data   []byte      // at least one byte
}

// Check refuses a signal that a principal may not send, or that no bus carries; limit is the most bytes it may have.
func (s *Signal) Check(as Principal, limit int) error {
	switch n := len(s.Data); {
	case !s.Topic.MaySend(as.Role):
		return kernel.Refuse(jobs.Forbidden, "%s may not signal %s", as.Actor(), s.Topic)
	case n == 0 || n > limit:
		return kernel.Invalid("signal %s of %d bytes: it has 1 to %d", s.Topic, n, limit)
	}
	return nil
}

// Signals reach those who listen at that moment. Nothing may depend on them but speed.
type Signals interface {
	// Signal sends s. It does not wait for receivers. A role that may not send the topic is refused.
	Signal(ctx context.Context, s Signal) error
	// Listen calls fn, one signal after the other, until ctx ends. Tenant "*" means all tenants (for nodes). To: only
	// signals to this name or to all; "" = to any name. It returns once it listens. A role that may not receive the
	// topic is refused.
	Listen(ctx context.Context, tenant jobs.Tenant, topic Topic, to string, fn func(Signal)) error
}

// Calls are requests to the server of a service: mostly the leader.
type Calls interface {
	// Call asks a service and waits for the answer until ctx ends. An error made with kernel.Refuse arrives as such.
	// ErrNoReceiver: nothing serves it now, and nothing was done. Any other error: the outcome is unknown.
	Call(ctx context.Context, service string, request []byte) ([]byte, error)
	// Serve answers calls of a service, each in its own goroutine, until ctx ends. It returns once it serves. Only
	// nodes may serve. If several serve the same, one of them gets each call.
	Serve(ctx context.Context, service string, fn Handler) error
	// Limit is the most bytes a request or an answer may have.
	Limit() int
}

// Handler answers calls. from is the caller, as authenticated by the bus.
type Handler func(ctx context.Context, from Principal, request []byte) ([]byte, error)

// The services.
const (
	ServiceStore     = "store"     // busstore: apply and read
	ServiceHeartbeat = "heartbeat" // the leader: Heartbeat -> HeartbeatAnswer
	ServiceLive      = "live"      // the leader, to nodes: what only it knows
	// The leader, to nodes: requests about the cluster.
	ServiceCluster = "cluster"
)

// ServiceNode is the service by which the node of a name answers other nodes, with its NodeHeartbeat.
func ServiceNode(name string) string { return "node." + name }
