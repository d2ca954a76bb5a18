package controlplane

import (
	"context"
	"errors"
	"time"
)

const (
	// unreachable is how long it may be unreachable before another node is to lead.
	unreachable = 5 * time.Second
)

// forgiven is how long after a failure here the next one counts as this node's own again. A failure on all nodes would
// otherwise make leadership go round at full speed.
const forgiven = 10 * time.Second

// giveUp has another node lead after a duty failed here: its disk may be intact, and its bus available. With a database
// the error itself does so, because it ends the lease; a log's majority would keep this node.
func (cp *ControlPlane) giveUp(ctx context.Context, err error) {
	if _, can := cp.cfg.Elector.(Yielder); !can || err == nil || ctx.Err() != nil || !cp.accompanied() || time.Since(cp.gaveUp) < forgiven {
		return
	}
	cp.gaveUp = time.Now()
	cp.log.Error("a duty of the leader failed: another node is asked to lead", "err", err)
	cp.yield("a duty failed: " + err.Error())
}

var errUnreachable = errors.New("the leader cannot be reached over the bus, and another node may be")

// stepDown has another node lead when this one cannot be reached: it could fire, and no worker would learn of it. It
// does so once, and only if there was another node while it could be reached: where the bus is unavailable to all,
// changing leaders changes nothing.
func (cp *ControlPlane) stepDown(ctx context.Context, term uint64) error {
	ticker := time.NewTicker(cp.cfg.Watch)
	defer ticker.Stop()
	company := false    // another node was there when the bus last answered
	var since time.Time // since when it does not answer
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		asked := time.Now()
		switch {
		case cp.reachable(ctx, term):
			since, company = time.Time{}, cp.accompanied()
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case since.IsZero():
			since = asked
		}
		if !company || time.Since(since) < unreachable {
			continue
		}
		company = false
		cp.log.Error("this node leads and cannot be reached over the bus: another node is asked to lead", "took", time.Since(since))
		if _, can := cp.cfg.Elector.(Yielder); !can {
			return errUnreachable
		}
		cp.yield("it could not be reached over the bus")
	}
}

// accompanied reports whether another node is there.
func (cp *ControlPlane) accompanied() bool {
	for _, n := range cp.Nodes() {
		if n.Online && !n.Here {
			return true
		}
	}
	return false
}
