package ops

import (
	"context"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Held says what becomes of the runs that triggered debug mode has held back, once it is switched off.
type Held string

// What can become of them. Nothing said is refused as long as there are any.
const (
	HeldRelease Held = "release" // they start, oldest first
	HeldDiscard Held = "discard" // they are cancelled
)

func (h Held) check() error {
	switch h {
	case "", HeldRelease, HeldDiscard:
		return nil
	}
	return kernel.Invalid("held is %.20q, it must be one of %q", string(h), []Held{HeldRelease, HeldDiscard})
}

// Configured is what a change of the settings did.
type Configured struct {
	*kernel.Global
	Let
}

// Settings are what holds for all jobs of the tenant.
func (o *Ops) Settings(ctx context.Context, who Who) (*kernel.Global, error) {
	return o.store.Global(ctx, who.tenant())
}

// HeldBack counts the runs that triggered debug mode holds back.
func (o *Ops) HeldBack(ctx context.Context, who Who) (int, error) {
	held, err := o.heldBack(ctx, who)
	return len(held), err
}

// Configure changes what holds for all jobs of the tenant. Who switches triggered debug mode off says what becomes
// of the runs it holds: without a word it is refused, with their number. Saying it again goes on where an earlier
// attempt was broken off.
func (o *Ops) Configure(ctx context.Context, who Who, k kernel.Configure, held Held) (Configured, error) {
	if err := k.Check(); err != nil {
		return Configured{}, err
	}
	if err := held.check(); err != nil {
		return Configured{}, err
	}
	off := k.TriggeredDebug != nil && !*k.TriggeredDebug
	if off && held == "" {
		n, err := o.HeldBack(ctx, who)
		if err != nil {
			return Configured{}, err
		}
		if n > 0 {
			return Configured{}, kernel.Refuse(jobs.Conflict, "debug mode holds %d runs back: say whether to release or to discard them", n)
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

// letGo releases or cancels runs that were held back, on behalf of who, and says how many. Those that are held by
// something else as well stay.
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
	n, err := o.send(ctx, batch)
	if held == HeldDiscard {
		return Let{Discarded: n}, err
	}
	return Let{Released: n}, err
}
