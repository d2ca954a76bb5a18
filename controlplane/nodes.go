package controlplane

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The processes of a control plane send each other heartbeats, with the leader's name. Nothing is decided by that: the
// elector decides who leads, and the store is authoritative. It is for people, and for clients that ask a node that
// does not lead.

const (
	nodeSilent  = 10 * time.Second // after so long without a heartbeat a node is offline
	nodeForget  = time.Hour        // and for so long, it is forgotten
	nodeAnswers = 2 * time.Second  // how long another of our name may take to answer
	mostNodes   = 64               // that are remembered
)

// ErrTwin means that another process has this node's name.
var ErrTwin = errors.New("another node of this name is running")

// Node is a process of the control plane, as this one knows it.
type Node struct {
	Name    string
	Address string // where its pages are, "" = unknown
	Route   string // where the bus of others comes to its own, "" = it has none
	Version string
	Here    bool          // it is this one
	Online  bool          // a heartbeat came within the last ten seconds
	Seen    time.Time     // when its last heartbeat came
	Up      time.Duration // how long it had run then
	Term    uint64        // that it leads, 0 = it does not
	Since   time.Time     // since when it leads
	Skew    time.Duration // its clock less this node's
	Asked   time.Time     // when its clock was read, with the way taken out; zero: the message's way is in Skew, and makes it less
	Step    time.Duration // by how much its clock was set, while it does not follow that
	NATS    string        // the state of its end of the bus, as text; "" = unknown
}

// nodes is what this process knows of all nodes.
type nodes struct {
	nonce   string
	started time.Time
	send    chan struct{} // a heartbeat now
	look    chan struct{} // at the clocks of the others
	twin    chan error    // there is another one of our name, and it is the older

	followed atomic.Bool // another node led

	mu    sync.Mutex
	known map[string]Node
}

func (n *nodes) init() {
	n.nonce, n.started = rand.Text(), time.Now()
	n.send, n.look, n.twin, n.known = make(chan struct{}, 1), make(chan struct{}, 1), make(chan error, 1), map[string]Node{}
}

// nodeHeartbeat is the heartbeat of this node.
func (cp *ControlPlane) nodeHeartbeat() bus.NodeHeartbeat {
	term, since := cp.Leading()
	b := bus.NodeHeartbeat{Name: cp.cfg.Node, Nonce: cp.nodes.nonce, Address: cp.cfg.Address, Route: cp.cfg.Route, Version: cp.cfg.Version,
		Up: time.Since(cp.nodes.started).Milliseconds(), Clock: kernel.Instant(cp.cfg.Clock.Now()), Step: cp.cfg.Clock.Step().Milliseconds(), Term: term}
	if term > 0 {
		b.Since = kernel.Instant(since)
	}
	if cp.cfg.NATS != nil {
		b.NATS = cp.cfg.NATS()
	}
	return b
}

// meet makes sure that no other node has our name, and follows the others from then on.
func (cp *ControlPlane) meet(ctx context.Context) error {
	service := bus.ServiceNode(cp.cfg.Node)
	asking, cancel := context.WithTimeout(ctx, nodeAnswers)
	defer cancel()
	if raw, err := cp.cfg.Bus.Call(asking, service, nil); err == nil {
		if b, err := bus.Decode[bus.NodeHeartbeat](raw); err == nil && b.Nonce != cp.nodes.nonce {
			return twin(b)
		}
	}
	err := cp.cfg.Bus.Serve(ctx, service, func(_ context.Context, from bus.Principal, _ []byte) ([]byte, error) {
		if from.Role != bus.Node {
			return nil, kernel.Refuse(jobs.Forbidden, "%s is no node", from.Actor())
		}
		b := cp.nodeHeartbeat()
		b.Terms = cp.terms.report()
		return bus.Encode(b), nil
	})
	if err != nil {
		return err
	}
	return cp.cfg.Bus.Listen(ctx, "", bus.TopicNode, "", func(s bus.Signal) {
		if b, err := bus.Decode[bus.NodeHeartbeat](s.Data); err == nil && s.From.Role == bus.Node && s.From.Name == b.Name {
			cp.met(b)
		}
	})
}

func twin(b bus.NodeHeartbeat) error {
	at := ""
	if b.Address != "" {
		at = " at " + b.Address
	}
	return fmt.Errorf("%w: %s%s, for %s: give each node a name of its own", ErrTwin, b.Name, at, (time.Duration(b.Up) * time.Millisecond).Round(time.Second))
}

// met records a node's heartbeat. Of two of one name the one that started later ends; the clocks of their machines do
// not matter.
func (cp *ControlPlane) met(b bus.NodeHeartbeat) {
	n := &cp.nodes
	if b.Name == cp.cfg.Node {
		if b.Nonce == n.nonce || b.Leaving {
			return
		}
		if c := cmp.Compare(b.Up, time.Since(n.started).Milliseconds()); c > 0 || c == 0 && b.Nonce < n.nonce {
			select {
			case n.twin <- twin(b):
			default:
			}
			return
		}
		poke(n.send) // it does not know us yet
		return
	}
	cp.terms.note(Term{Node: b.Name, Term: b.Term, Since: b.Since})
	if b.Term > 0 {
		n.followed.Store(true)
	}
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, k := range n.known {
		if now.Sub(k.Seen) > nodeForget {
			delete(n.known, name)
		}
	}
	old, known := n.known[b.Name]
	if !known && len(n.known) >= mostNodes {
		return
	}
	if online := known && now.Sub(old.Seen) < nodeSilent && old.Online; !online && !b.Leaving {
		poke(n.send) // so that it need not wait for our next heartbeat
		cp.log.Info("a node is online", "node", b.Name, "address", b.Address)
	}
	skew := b.Clock.Sub(cp.cfg.Clock.Now()).Round(time.Millisecond)
	if now.Sub(old.Asked) < nodeSilent {
		skew = old.Skew
	}
	n.known[b.Name] = Node{Name: b.Name, Address: b.Address, Route: b.Route, Version: b.Version, Online: !b.Leaving, Seen: now, Up: time.Duration(b.Up) * time.Millisecond,
		Term: b.Term, Since: b.Since, Skew: skew, Asked: old.Asked, Step: time.Duration(b.Step) * time.Millisecond, NATS: b.NATS}
}

// present sends this node's heartbeats until ctx ends, and then a goodbye.
func (cp *ControlPlane) present(ctx context.Context) error {
	tick := time.NewTicker(3 * cp.cfg.Watch)
	defer tick.Stop()
	for {
		cp.sendNode(ctx, cp.nodeHeartbeat())
		select {
		case <-tick.C:
			poke(cp.nodes.look)
		case <-cp.nodes.send:
		case err := <-cp.nodes.twin:
			return err
		case <-ctx.Done():
			b := cp.nodeHeartbeat()
			b.Leaving, b.Term = true, 0
			cp.sendNode(context.WithoutCancel(ctx), b)
			return ctx.Err()
		}
	}
}

func (cp *ControlPlane) sendNode(ctx context.Context, b bus.NodeHeartbeat) {
	if err := cp.cfg.Bus.Signal(ctx, bus.Signal{Topic: bus.TopicNode, Data: bus.Encode(b)}); err != nil {
		cp.log.Debug("a node heartbeat was not sent", "err", err)
	}
}

// Node returns the name of this process.
func (cp *ControlPlane) Node() string { return cp.cfg.Node }

// Nodes lists the processes of the control plane by name, this one among them.
func (cp *ControlPlane) Nodes() []Node {
	b := cp.nodeHeartbeat()
	list := []Node{{Name: b.Name, Address: b.Address, Route: b.Route, Version: b.Version, Here: true, Online: true, Seen: time.Now(), Up: time.Duration(b.Up) * time.Millisecond,
		Term: b.Term, Since: b.Since, Step: time.Duration(b.Step) * time.Millisecond, NATS: b.NATS}}
	cp.nodes.mu.Lock()
	defer cp.nodes.mu.Unlock()
	for _, k := range cp.nodes.known {
		k.Online = k.Online && time.Since(k.Seen) < nodeSilent
		if !k.Online {
			k.Term, k.Since = 0, time.Time{}
		}
		list = append(list, k)
	}
	newest := slices.MaxFunc(list, func(a, b Node) int { return cmp.Compare(a.Term, b.Term) }).Term
	for i := range list {
		if list[i].Term < newest { // it does not know yet, or died as the leader
			list[i].Term, list[i].Since = 0, time.Time{}
		}
	}
	slices.SortFunc(list, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Followed reports whether another node has led since this one began, even if it does not any more.
func (cp *ControlPlane) Followed() bool { return cp.nodes.followed.Load() }

// Leader returns the node that leads, as far as this one knows: the one with the newest term. Its Term is 0 if none
// does.
func (cp *ControlPlane) Leader() (leader Node) {
	for _, n := range cp.Nodes() {
		if n.Term > leader.Term {
			leader = n
		}
	}
	return leader
}
