package ops

import (
	"context"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Held is what happens to the runs that a debug mode holds back, once it is switched off.
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

// HeldBack counts the runs that the debug modes of these kinds of jobs hold back.
func (o *Ops) HeldBack(ctx context.Context, who Who, kinds ...kernel.Kind) (int, error) {
	held, err := o.heldBack(ctx, who, kinds)
	return len(held), err
}

// Configure changes the settings of all jobs of the tenant. Switching a debug mode off is refused while it holds runs,
// unless held is set: the leader carries that out.
func (o *Ops) Configure(ctx context.Context, who Who, k kernel.Configure, held Held) (Configured, error) {
	if err := kernel.CheckCommand(k); err != nil {
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
	n, err := o.HeldBack(ctx, who, off...)
	if err != nil {
		return Configured{}, err
	}
	if held == "" && n > 0 {
		return Configured{}, kernel.Refuse(jobs.Conflict, "debug mode holds %d runs back: choose to release or to discard them", n)
	}
	k.Discard = held == HeldDiscard && len(off) > 0
	effect, err := o.apply(ctx, who, k)
	if err != nil {
		return Configured{}, err
	}
	done := Configured{Global: effect.Global}
	if k.Discard {
		done.Discarded = n
	} else {
		done.Released = n
	}
	return done, nil
}

// switchesOff returns the kinds of jobs whose debug modes a change switches off.
func (o *Ops) switchesOff(ctx context.Context, who Who, k kernel.Configure) (kinds []kernel.Kind, err error) {
	g, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return nil, err
	}
	file := &g.File
	if k.File != nil {
		file = k.File
	}
	for _, m := range []struct {
		kind         kernel.Kind
		field        string
		wanted, file *bool
	}{
		{kernel.Recurring, kernel.FieldRecurringDebug, k.RecurringDebug, file.RecurringDebug},
		{kernel.Triggered, kernel.FieldTriggeredDebug, k.TriggeredDebug, file.TriggeredDebug},
	} {
		on := m.wanted
		if on == nil && (slices.Contains(k.Reset, m.field) || k.File != nil && g.Setter("", m.field) == nil) {
			on = new(m.file != nil && *m.file)
		}
		if on != nil && !*on {
			kinds = append(kinds, m.kind)
		}
	}
	return kinds, nil
}

// CheckDefaults checks defaults of jobs, and whether their time zone exists.
func CheckDefaults(s kernel.Settings) error {
	if err := kernel.CheckCommand(kernel.Configure{Defaults: &s}); err != nil || s.Zone == nil {
		return err
	}
	if _, err := schedule.Parse(schedule.Spec{Expr: "@daily", Zone: *s.Zone}); err != nil {
		return kernel.Invalid("default zone: %v", err)
	}
	return nil
}

// heldBack lists the runs that the debug modes of these kinds of jobs hold back, oldest first.
func (o *Ops) heldBack(ctx context.Context, who Who, kinds []kernel.Kind) ([]*kernel.Run, error) {
	if len(kinds) == 0 {
		return nil, nil
	}
	rows, err := o.heldBy(ctx, who, kernel.ByDebug, "")
	return slices.DeleteFunc(rows, func(run *kernel.Run) bool { return !slices.Contains(kinds, run.Kind) }), err
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
