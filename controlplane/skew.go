package controlplane

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Due times come by the leader's clock, so a leader whose clock is wrong fires at the wrong moment. With every
// heartbeat each node asks the others for their time, and takes off half the round trip. Of three and more clocks the
// median is believed: a leader that is further from it than metastore.ClockSlack does not fire, and has another lead.
// Of two, it is unknown which is right: they are only shown.

// fewestClocks is how many clocks it takes to decide that one of them is wrong.
const fewestClocks = 3

// longestWay is how long an answer may take for its clock to be read off it.
const longestWay = metastore.ClockSlack

// offClock is by how much this node's clock is wrong, judged by the others.
type offClock struct {
	mu  sync.Mutex
	off time.Duration
}

// watchClocks asks the others for their time with each heartbeat, until ctx ends.
func (cp *ControlPlane) watchClocks(ctx context.Context) error {
	for {
		select {
		case <-cp.nodes.look:
			cp.askClocks(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// askClocks asks the nodes that are here for their time, all at once, for one heartbeat at most.
func (cp *ControlPlane) askClocks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 3*cp.cfg.Watch)
	defer cancel()
	var asking sync.WaitGroup
	for _, n := range cp.Nodes() {
		if n.Online && !n.Here {
			asking.Go(func() { cp.askClock(ctx, n.Name) })
		}
	}
	asking.Wait()
	cp.clock.mu.Lock()
	defer cp.clock.mu.Unlock()
	cp.clock.off = middle(cp.Nodes())
}

func (cp *ControlPlane) askClock(ctx context.Context, name string) {
	asked, ours := time.Now(), cp.cfg.Clock.Now()
	raw, err := cp.cfg.Bus.Call(ctx, bus.ServiceNode(name), nil)
	took := time.Since(asked)
	if err != nil || took > longestWay {
		return
	}
	b, err := bus.Decode[bus.NodeHeartbeat](raw)
	if err != nil || b.Name != name || b.Nonce == cp.nodes.nonce {
		return
	}
	cp.terms.merge(b.Terms)
	skew := b.Clock.Sub(ours.Add(took / 2)).Round(time.Millisecond)
	n := &cp.nodes
	n.mu.Lock()
	defer n.mu.Unlock()
	if k, known := n.known[name]; known {
		k.Skew, k.Asked = skew, time.Now()
		n.known[name] = k
	}
}

// middle returns by how much the clock of this node is ahead of the median, 0 with too few clocks. Of an even number,
// the nearer one in the middle counts.
func middle(all []Node) time.Duration {
	var skews []time.Duration
	for _, n := range all {
		if n.Here || n.Online && time.Since(n.Asked) < nodeSilent {
			skews = append(skews, n.Skew)
		}
	}
	if len(skews) < fewestClocks {
		return 0
	}
	slices.Sort(skews)
	low, high := skews[(len(skews)-1)/2], skews[len(skews)/2]
	switch {
	case low > 0:
		return -low
	case high < 0:
		return -high
	}
	return 0
}

// ClockOff returns by how much this node's clock is ahead (behind, if negative) of the median of three or more.
func (cp *ControlPlane) ClockOff() time.Duration {
	cp.clock.mu.Lock()
	defer cp.clock.mu.Unlock()
	return cp.clock.off
}

// OffOf returns by how much the clock of a node is ahead of the median, as far as this node knows.
func (cp *ControlPlane) OffOf(name string) time.Duration {
	all := cp.Nodes()
	for _, of := range all {
		if of.Name == name && !of.Here {
			for i := range all {
				all[i].Skew -= of.Skew
			}
			return middle(all)
		}
	}
	return middle(all)
}

// clockIsWrong reports whether nothing must be fired by this node's clock.
func (cp *ControlPlane) clockIsWrong() bool { return cp.ClockOff().Abs() > metastore.ClockSlack }

// yield has another node lead, if there is one that can.
func (cp *ControlPlane) yield(why string) {
	if y, ok := cp.cfg.Elector.(Yielder); ok {
		cp.Because(why)
		if err := y.Yield(); err != nil {
			cp.Because("")
			cp.episodes.Failed(slog.LevelWarn, "", "no other node can lead", "err", err)
		}
	}
}
