// Package bus defines what a bus promises, which is little: the store decides, and what is lost or doubled on the bus is
// repaired. Pushes go to one worker, signals to all listeners, calls to the server of a service. Implementations: membus
// (one process) and natsbus; bustest tests both.
//
// It is not promised to programs outside this module.
package bus

import (
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
	Pusher
	Acceptor
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

// Address is a worker as a bus reaches it.
type Address struct {
	Tenant jobs.Tenant
	App    string
	Worker string // its name, with that of its start
}

// The errors of a bus.
var (
	// ErrNoReceiver: no receiver at the other end; nothing was done.
	ErrNoReceiver = errors.New("bus: no receiver")
	// ErrClosed: this end was closed.
	ErrClosed = errors.New("bus: closed")
)

// Pusher is the leader's side of pushes.
type Pusher interface {
	// Push sends a push to one worker and returns the answer, or an error when ctx ends. Only nodes may push.
	// ErrNoReceiver: the worker is not there, and no process has received the push. Any other error, such as that of this
	// end's own lost connection: it may have been received.
	Push(ctx context.Context, to Address, push []byte) (answer []byte, err error)
}

// Acceptor is the worker's side of pushes.
type Acceptor interface {
	// Accept calls fn for each push to a worker, one after the other, until ctx ends. When the answer has left this
	// process, then is called, unless it is nil: the leader gets the answer even if the process ends by what then does.
	// Accept returns once it listens.
	Accept(ctx context.Context, at Address, fn func(push []byte) (answer []byte, then func())) error
}

// Topic is what a signal is about.
type Topic string

// The topics. The type in brackets is the form of a signal's data.
const (
	TopicCancel  Topic = "cancel"  // to one worker: end these attempts (Stops)
	TopicChanged Topic = "changed" // definitions or settings changed (Changes): reload before use
	TopicLog     Topic = "log"     // log lines (metastore.LogLine)
	TopicLive    Topic = "live"    // rows changed: dashboards refetch (Changes)
	TopicNode    Topic = "node"    // among control planes: this one lives (NodeHeartbeat)
)

// topics are the roles that may send and receive each topic. Nodes may do both.
var topics = map[Topic]struct{ send, receive []Role }{
	TopicCancel:  {nil, []Role{Worker, Client}},
	TopicChanged: {nil, []Role{Worker, Client}},
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

// MaxRequest is the most bytes that one caller sends to a node in a message. The requests of all callers arrive at one
// connection, the leader's: each is small beside what a server stores for a connection before it closes it. Senders cut
// what is larger.
const MaxRequest = 1<<20 - 1<<10

// Calls are requests to the server of a service: mostly the leader.
type Calls interface {
	// Call asks a service and waits for the answer until ctx ends. An error made with kernel.Refuse arrives as such.
	// ErrNoReceiver: nothing serves it now, and nothing was done. Any other error: the outcome is unknown.
	Call(ctx context.Context, service string, request []byte) ([]byte, error)
	// Serve answers calls of a service, each in its own goroutine, until ctx ends. It returns once it serves. Only
	// nodes may serve. If several serve the same, one of them gets each call.
	Serve(ctx context.Context, service string, fn Handler) error
	// Limit is the most bytes a push, or the answer to a call, may have.
	Limit() int
	// RequestLimit is the most bytes a request may have, or the answer to a push: at most MaxRequest.
	RequestLimit() int
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
