package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Prune removes what a bundle no longer declares: the fields that it set of the declared jobs, and the jobs and
// calendars named here. They are named one by one, so that a declaration that lacks some by mistake deletes nothing.
// What is not in the bundle, or no longer exists, is left alone.
type Prune struct {
	Jobs      []jobs.Key // deleted if the bundle created them; released if a worker has registered them
	Calendars []string   // deleted if no job uses them
	Live      LiveRuns   // of the deleted jobs
}

func (h *How) check() error {
	if h.Bundle != "" {
		if err := kernel.CheckName("bundle", h.Bundle); err != nil {
			return err
		}
	}
	switch {
	case h.Bundle == "" && h.TakeOver:
		return kernel.Invalid("taking over needs a bundle: name it")
	case h.Prune == nil:
		return nil
	case h.Bundle == "":
		return kernel.Invalid("pruning needs a bundle: name it")
	case len(h.Prune.Jobs) > MaxWanted || len(h.Prune.Calendars) > MaxWanted:
		return kernel.Invalid("too many jobs or calendars to prune: %d and %d, at most %d in one request", len(h.Prune.Jobs), len(h.Prune.Calendars), MaxWanted)
	}
	return h.Prune.Live.check()
}

// pruning is the plan of a prune.
type pruning struct {
	jobs      []Planned
	calendars []PlannedCalendar
	batch     []kernel.Command // releases
}

// planPrune plans a prune. plans are the declared jobs as they will be.
func (o *Ops) planPrune(ctx context.Context, who Who, g *kernel.Global, how How, plans []Planned, declared []kernel.SetCalendar) (pruning, error) {
	var p pruning
	if how.Prune == nil {
		return p, nil
	}
	seen := map[jobs.Key]bool{}
	for i := range plans {
		seen[plans[i].Job.Key] = true
	}
	for _, key := range how.Prune.Jobs {
		if seen[key] {
			return p, kernel.Invalid("job %s is both declared and pruned, or given twice", key)
		}
		seen[key] = true
		one := Planned{Does: DoesNothing, Job: Job{Definition: &kernel.Definition{Tenant: who.tenant(), Key: key}}}
		d, err := o.definition(ctx, who, key)
		switch {
		case jobs.CodeOf(err) == jobs.NotFound:
		case err != nil:
			return p, fmt.Errorf("job %s: %w", key, err)
		case d.Bundle != how.Bundle:
			one.Job = o.job(d, g, planNext)
		case d.Registered:
			one.Does, one.NextBefore = DoesRelease, o.job(d, g, planNext).Next
			leave := kernel.Edit{Key: key, Bundle: how.Bundle, Leave: true, IfRevision: d.Revision}
			if err := o.planEdit(ctx, who, g, d, leave, nil, &one); err != nil {
				return p, fmt.Errorf("job %s: %w", key, err)
			}
			p.batch = append(p.batch, leave)
		default:
			one.Does, one.Job = DoesDelete, o.job(d, g, planNext)
			one.NextBefore = one.Job.Next
			if one.Runs, err = o.living(ctx, who, key); err != nil {
				return p, err
			}
		}
		p.jobs = append(p.jobs, one)
	}
	err := o.planPruneCalendars(ctx, who, how, plans, declared, &p)
	return p, err
}

// planPruneCalendars keeps calendars that jobs will use: without them, the jobs would be due at excluded times.
func (o *Ops) planPruneCalendars(ctx context.Context, who Who, how How, plans []Planned, declared []kernel.SetCalendar, p *pruning) error {
	if len(how.Prune.Calendars) == 0 {
		return nil
	}
	rows, err := o.Calendars(ctx, who)
	if err != nil {
		return err
	}
	defs, err := o.store.Definitions(ctx, metastore.DefinitionQuery{Tenant: who.tenant()})
	if err != nil {
		return err
	}
	will := map[jobs.Key]*kernel.Definition{} // nil = it is deleted
	for _, d := range defs {
		will[d.Key] = d
	}
	for _, one := range slices.Concat(plans, p.jobs) {
		if will[one.Job.Key] = one.Job.Definition; one.Does == DoesDelete {
			will[one.Job.Key] = nil
		}
	}
	seen := map[string]bool{}
	for _, k := range declared {
		seen[k.Name] = true
	}
	for _, name := range how.Prune.Calendars {
		if seen[name] {
			return kernel.Invalid("calendar %s is both declared and pruned, or given twice", name)
		}
		seen[name] = true
		one := PlannedCalendar{Name: name, Does: DoesNothing}
		if slices.ContainsFunc(rows, func(c *kernel.Calendar) bool { return c.Name == name && c.Bundle == how.Bundle }) {
			one.Does = DoesDelete
			for key, d := range will {
				if d != nil && slices.Contains(d.Policy.Calendars, name) {
					one.Does, one.Jobs = DoesKeep, append(one.Jobs, key)
				}
			}
			slices.Sort(one.Jobs)
		}
		p.calendars = append(p.calendars, one)
	}
	return nil
}

// refuseLive refuses to delete jobs with live runs if their fate was not chosen.
func (p *pruning) refuseLive(how How) error {
	total, busy := 0, []string{}
	for _, one := range p.jobs {
		if one.Runs > 0 {
			total, busy = total+one.Runs, append(busy, string(one.Job.Key))
		}
	}
	if total == 0 || how.Prune.Live != "" {
		return nil
	}
	return kernel.Refuse(jobs.Conflict, "the jobs to delete have %d live runs (of %s): choose to cancel them or to let them finish", total, strings.Join(busy, ", "))
}

// prune deletes, after the declaration and the releases were written. The store checks again that each job and calendar
// may be deleted.
func (o *Ops) prune(ctx context.Context, who Who, how How, p *pruning, written bool) error {
	partly := func(what string, err error) error {
		err = fmt.Errorf("%s: %w", what, err)
		if written {
			err = partial(err)
		}
		return err
	}
	for _, one := range p.jobs {
		if one.Does != DoesDelete {
			continue
		}
		_, err := o.Delete(ctx, who, kernel.Delete{Key: one.Job.Key, Bundle: how.Bundle}, how.Prune.Live)
		if err != nil && !errors.Is(err, jobs.NotFound) {
			return partly("delete "+string(one.Job.Key), err)
		}
		written = true
	}
	for _, one := range p.calendars {
		if one.Does != DoesDelete {
			continue
		}
		if _, err := o.apply(ctx, who, kernel.DropCalendar{Name: one.Name, Bundle: how.Bundle}); err != nil {
			return partly("delete calendar "+one.Name, err)
		}
		written = true
	}
	return nil
}
