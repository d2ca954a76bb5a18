package controlplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// A duty that fails is tried again: a short outage of the store ends soon, and where all nodes have it, another leader
// could do no more. But another node may succeed where only this one fails. So a duty that has failed for a while, or
// that hangs, ends the term.

const (
	// dutyPatience is for how long a duty may fail, and dutyTries how often at least, before another node is to lead.
	dutyPatience = 10 * time.Second
	dutyTries    = 3
	// hanging is how long one pass of a duty may take. A pass after a long outage makes many runs at once.
	hanging = 2 * time.Minute
	// dutyRest is how long a node that has given up for that reason does not do so again: a failure on all nodes would
	// make leadership go round.
	dutyRest = 10 * time.Minute
)

// duty is the state of one of the leader's duties, in one term.
type duty struct {
	name string
	cp   *ControlPlane

	mu    sync.Mutex
	began time.Time // of the current pass; zero = none
	since time.Time // when it began to fail; zero = the last pass was fine
	tries int       // that failed since
}

// duties are those of the term.
type duties struct {
	mu       sync.Mutex
	all      []*duty
	resigned time.Time // when this node last ended a term because of a duty
}

// duty returns a duty that watchDuties watches.
func (cp *ControlPlane) duty(name string) *duty {
	d := &duty{name: name, cp: cp}
	cp.duties.mu.Lock()
	defer cp.duties.mu.Unlock()
	cp.duties.all = append(cp.duties.all, d)
	return d
}

// begin records that a pass begins.
func (d *duty) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.began = time.Now()
}

// end records the result of a pass. It returns the error with which the term ends, nil as long as it continues.
func (d *duty) end(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.began = time.Time{}
	if !broken(err) {
		d.since, d.tries = time.Time{}, 0
		return nil
	}
	if d.tries++; d.since.IsZero() {
		d.since = time.Now()
	}
	took := time.Since(d.since)
	if took < dutyPatience || d.tries < dutyTries || !d.cp.mayResign() {
		return nil
	}
	return fmt.Errorf("%s has failed for %v: %w", d.name, took.Round(time.Second), err)
}

// broken reports whether a failure is a fault, and not just a refusal because the row has changed meanwhile.
func broken(err error) bool {
	if err == nil {
		return false
	}
	code := jobs.CodeOf(err)
	return code == jobs.Unavailable || code == jobs.Unknown
}

// mayResign reports whether ending the term can help, and then counts it: another node is there, or may be, where a
// database elects the leader and nodes need not see each other.
func (cp *ControlPlane) mayResign() bool {
	switch cp.cfg.Elector.(type) {
	case Always:
		return false
	case Yielder:
		if !cp.accompanied() {
			return false
		}
	}
	cp.duties.mu.Lock()
	defer cp.duties.mu.Unlock()
	if now := time.Now(); cp.duties.resigned.IsZero() || now.Sub(cp.duties.resigned) >= dutyRest {
		cp.duties.resigned = now
		return true
	}
	return false
}

// watchDuties ends the term when a pass of a duty hangs. A call that does not even heed its context keeps the term from
// ending here: so another node is asked to lead before.
func (cp *ControlPlane) watchDuties(ctx context.Context) error {
	ticker := time.NewTicker(cp.cfg.Watch)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		cp.duties.mu.Lock()
		all := cp.duties.all
		cp.duties.mu.Unlock()
		for _, d := range all {
			d.mu.Lock()
			began := d.began
			d.mu.Unlock()
			if began.IsZero() || time.Since(began) < hanging || !cp.mayResign() {
				continue
			}
			err := fmt.Errorf("%s hangs since %v", d.name, time.Since(began).Round(time.Second))
			cp.giveUp(ctx, err)
			return err
		}
	}
}
