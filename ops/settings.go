package ops

import (
	"context"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Held is what happens to the runs that triggered debug mode holds back, once it is switched off.
type Held string

// The choices. Without one, the change is refused while there are held runs.
const (
	HeldRelease Held = "release" // they start, oldest first
	HeldDiscard Held = "discard" // they are cancelled
)

func (h Held) check() error {
	switch h {
	case "", HeldRelease, HeldDiscard:
		return nil
	}
	return kernel.Invalid("invalid held %.20q: want one of %q", string(h), []Held{HeldRelease, HeldDiscard})
}

// Configured is the result of a change of the settings.
type Configured struct {
	*kernel.Global
	Let
}

// Settings returns the settings of all jobs of the tenant.
func (o *Ops) Settings(ctx context.Context, who Who) (*kernel.Global, error) {
	return o.store.Global(ctx, who.tenant())
}

// HeldBack counts the runs that triggered debug mode holds back.
func (o *Ops) HeldBack(ctx context.Context, who Who) (int, error) {
	held, err := o.heldBack(ctx, who)
	return len(held), err
}

// Configure changes the settings of all jobs of the tenant. Switching triggered debug mode off is refused while it
// holds runs, unless held is set. Repeating it continues an interrupted one.
func (o *Ops) Configure(ctx context.Context, who Who, k kernel.Configure, held Held) (Configured, error) {
	if err := k.Check(); err != nil {
		return Configured{}, err
	}
	if err := held.check(); err != nil {
		return Configured{}, err
	}
	if k.Defaults != nil {
		if err := CheckDefaults(*k.Defaults); err != nil {
			return Configured{}, err
		}
	}
	if k.File != nil {
		if err := CheckDefaults(k.File.Defaults); err != nil {
			return Configured{}, err
		}
	}
	off, err := o.switchesOff(ctx, who, k)
	if err != nil {
		return Configured{}, err
	}
	if off && held == "" {
		n, err := o.HeldBack(ctx, who)
		if err != nil {
			return Configured{}, err
		}
		if n > 0 {
			return Configured{}, kernel.Refuse(jobs.Conflict, "debug mode holds %d runs back: choose to release or to discard them", n)
		}
	}
	effect, err := o.apply(ctx, who, k)
	if err != nil {
		return Configured{}, err
	}
	done := Configured{Global: effect.Global}
	if !off || held == "" {
		return done, nil
	}
	// The mode is off by now, so no further run is held while we walk.
	rows, err := o.heldBack(ctx, who)
	if err != nil {
		return done, after(err)
	}
	done.Let, err = o.letGo(ctx, who.onBehalf("settings"), rows, held)
	return done, after(err)
}

// switchesOff reports whether a change switches triggered debug mode off.
func (o *Ops) switchesOff(ctx context.Context, who Who, k kernel.Configure) (bool, error) {
	if k.TriggeredDebug != nil {
		return !*k.TriggeredDebug, nil
	}
	g, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return false, err
	}
	reset := slices.Contains(k.Reset, kernel.FieldTriggeredDebug)
	if k.File == nil && !reset || g.Setter("", kernel.FieldTriggeredDebug) != nil && !reset {
		return false, nil
	}
	file := &g.File
	if k.File != nil {
		file = k.File
	}
	return file.TriggeredDebug == nil || !*file.TriggeredDebug, nil
}

// CheckDefaults checks defaults of jobs, and whether their time zone exists.
func CheckDefaults(s kernel.Settings) error {
	if err := (kernel.Configure{Defaults: &s}).Check(); err != nil || s.Zone == nil {
		return err
	}
	if _, err := schedule.Parse(schedule.Spec{Expr: "@daily", Zone: *s.Zone}); err != nil {
		return kernel.Invalid("default zone: %v", err)
	}
	return nil
}

// heldBack lists the runs that triggered debug mode holds back, oldest first.
func (o *Ops) heldBack(ctx context.Context, who Who) ([]*kernel.Run, error) {
	return o.heldBy(ctx, who, kernel.ByDebug, "")
}

// heldBy lists the Scheduled runs that something holds back, of one job or of all, oldest first.
func (o *Ops) heldBy(ctx context.Context, who Who, what kernel.Cause, of jobs.Key) ([]*kernel.Run, error) {
	var held []*kernel.Run
	q := metastore.RunQuery{Tenant: who.tenant(), Job: of, State: jobs.Scheduled, Cause: what, Limit: metastore.MaxPage}
	for {
		page, err := o.store.Runs(ctx, q)
		if err != nil {
			return nil, err
		}
		held = append(held, page.Runs...)
		if page.Next == "" {
			break
		}
		q.Cursor = page.Next
	}
	slices.Reverse(held)
	return held, nil
}

// letGo releases or cancels held runs, on behalf of who, and returns their number. Runs that are also held for another
// reason stay.
func (o *Ops) letGo(ctx context.Context, who Who, rows []*kernel.Run, held Held) (Let, error) {
	now := o.Now()
	var batch []kernel.Envelope
	for _, run := range rows {
		switch {
		case held == HeldDiscard:
			batch = append(batch, o.envelope(who, kernel.Cancel{ID: run.ID}))
		case !run.Due.After(now):
			batch = append(batch, o.envelope(who, kernel.Release{ID: run.ID}))
		}
	}
	n, err := o.send(ctx, who, batch)
	if held == HeldDiscard {
		return Let{Discarded: n}, err
	}
	return Let{Released: n}, err
}
