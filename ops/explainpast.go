package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// auditLook is how many pages of a job's audit are searched for a pause.
const auditLook = 10

// pastPause is a pause that held at a past time.
type pastPause struct {
	kernel.Held
	Ended   time.Time // zero = it has not ended
	Resumed string    // who ended it; "" = it ended at its until
}

// pauseAt returns the pause of a job that held at a past time, nil if none is recorded. The definition has only the
// last pause; the audit has the earlier ones.
func (o *Ops) pauseAt(ctx context.Context, d *kernel.Definition, at time.Time) (*pastPause, error) {
	if h := d.Paused; h != nil && h.At.Before(at) {
		return ended(&pastPause{Held: *h}, at, o.Now()), nil
	}
	var after *kernel.Audit // the first pause or resume after that time
	q := metastore.AuditQuery{Tenant: d.Tenant, Target: "job " + string(d.Key), Limit: metastore.MaxPage}
	for range auditLook {
		page, err := o.store.Audits(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, a := range page {
			pause := a.Verb == kernel.VerbPause.String()
			switch {
			case a.At.Before(d.Created): // of a deleted job with this key
				return nil, nil
			case !pause && a.Verb != kernel.VerbResume.String():
			case !a.At.Before(at):
				after = a
			case !pause:
				return nil, nil
			default:
				p := &pastPause{Held: heldBy(a)}
				if after != nil {
					p.Ended = after.At
					if after.Verb != a.Verb {
						p.Resumed = after.Actor
					}
				}
				return ended(p, at, o.Now()), nil
			}
		}
		if len(page) < q.Limit {
			break
		}
		q.Before = page[len(page)-1].N
	}
	return nil, nil
}

// heldBy reads a pause from its audit.
func heldBy(a *kernel.Audit) kernel.Held {
	var f struct {
		Reason string
		Until  time.Time
		Failed int
		Run    jobs.ID
	}
	_ = json.Unmarshal(a.After, &f) // what cannot be read stays zero
	return kernel.Held{Reason: f.Reason, By: a.Actor, At: a.At, Until: f.Until, Failed: f.Failed, Run: f.Run}
}

// ended applies the until of a pause; nil if the pause ended by the time.
func ended(p *pastPause, at, now time.Time) *pastPause {
	if u := p.Until; !u.IsZero() && !u.After(now) && (p.Ended.IsZero() || u.Before(p.Ended)) {
		p.Ended, p.Resumed = u, ""
	}
	if !p.Ended.IsZero() && !p.Ended.After(at) {
		return nil
	}
	return p
}

// heldThen explains what kept the job from running at a past time, then what does now.
func (e *Explanation) heldThen(then *pastPause, g *kernel.Global, at, now time.Time) {
	if then != nil {
		e.add("It was paused at that time%s%s.", spell(then), reason(&then.Held))
	}
	debug := g.DebugOf(e.Job.Kind)
	if debug.On && debug.At.Before(at) {
		e.add("Debug mode of %s jobs was on at that time, by %s since %s.", e.Job.Kind, named(debug.By), clock(debug.At))
	}
	if e.Job.Policy.Disabled {
		e.add("It is disabled now.")
	}
	if p := e.Job.Paused; p != nil && paused(e.Job.Definition, now) && !p.At.Before(at) {
		e.add("It is paused now, by %s since %s, after that time%s.", named(p.By), clock(p.At), reason(p))
	}
	if debug.On && !debug.At.Before(at) {
		e.add("Debug mode of %s jobs is on now, by %s since %s, after that time.", e.Job.Kind, named(debug.By), clock(debug.At))
	}
}

// spell returns when a pause began and ended, and who did both.
func spell(p *pastPause) string {
	text := fmt.Sprintf(", by %s since %s", named(p.By), clock(p.At))
	switch {
	case p.Ended.IsZero():
		return " and still is" + text
	case p.Resumed == "":
		return fmt.Sprintf("%s, until %s", text, clock(p.Ended))
	}
	return fmt.Sprintf("%s, until %s resumed it at %s", text, cmp.Or(named(p.Resumed), "an unknown actor"), clock(p.Ended))
}
