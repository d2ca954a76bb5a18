package controlplane

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/metastore"
)

// Yielder is an [Elector] that can have another node lead. The error is why no other node can.
type Yielder interface {
	Yield() error
}

// watchClock raises the alarm when the wall clock of the leader is set, and has another node lead, whose clock was not.
// If there is none, this one continues with the time that it had.
func (cp *ControlPlane) watchClock(ctx context.Context) error {
	if state, err := cp.cfg.Store.State(ctx); err == nil {
		if behind := state.At.Sub(cp.cfg.Clock.Now()); behind > metastore.ClockSlack {
			cp.log.Error("the clock is behind the last commit; nothing is due until it catches up", "behind", behind)
		}
	}
	ticker := time.NewTicker(cp.cfg.Watch)
	defer ticker.Stop()
	var step time.Duration // that was logged
	wrong := false         // as logged
	var asked time.Time    // another node to lead, because of that
	for {
		now := cp.cfg.Clock.Step()
		switch {
		case step != 0 && now == 0:
			cp.log.Warn("the clock is followed again", "now", cp.cfg.Clock.Now())
		case now != step:
			cp.log.Error("the clock was set, and is not followed until the step has lasted", "step", now, "patience", metastore.ClockPatience)
			cp.yield("its clock was set")
		}
		switch off := cp.ClockOff(); {
		case off.Abs() > metastore.ClockSlack && time.Since(asked) >= 3*cp.cfg.Watch:
			if !wrong {
				cp.log.Error("the clock of this node differs from the others: it fires nothing, and another node is asked to lead", "ahead", off)
			}
			wrong, asked = true, time.Now()
			cp.yield("its clock is not that of the others")
		case wrong && off.Abs() <= metastore.ClockSlack:
			cp.log.Warn("the clock of this node agrees with the others again")
			wrong = false
		}
		step = now
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ClockStep returns by how much this node's wall clock was set ahead (behind, if negative) and is not followed yet; 0
// normally.
func (cp *ControlPlane) ClockStep() time.Duration { return cp.cfg.Clock.Step() }
