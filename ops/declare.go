package ops

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Wanted is the desired state of a job. A job that does not exist is created.
type Wanted struct {
	Key  jobs.Key
	Kind kernel.Kind // of an existing job: the same, or 0
	App  string      // the worker group that runs it; of an existing job: the same, or ""
	Set  kernel.Settings

	Pause  string // why the job is paused from now on; "" = it is left as it is
	Resume bool   // its pause ends before it changes, in the same commit: no due time of the change falls into the pause
}

// Planned is the planned change of a job.
type Planned struct {
	Job                  Job    // as it is, or would be
	Does                 string // DoesCreate, DoesEdit, DoesNothing, DoesDelete or DoesRelease
	Differ               []Difference
	NextBefore, NextThen []time.Time // next due times, before and after
	Runs                 int         // DoesDelete: its live runs
}

// The changes of a plan.
const (
	DoesCreate  = "create"
	DoesEdit    = "edit"
	DoesNothing = "nothing"
	DoesDelete  = "delete"
	DoesRelease = "release" // a job stays, the fields that its bundle set follow the code
	DoesKeep    = "keep"    // a calendar stays, because jobs use it
)

// How is the options of a declaration.
type How struct {
	Exact bool // edited fields that are not in the declaration follow the code again
	Dry   bool // only report the changes
	Fresh bool // only new jobs: existing ones are refused as Conflict
	// Restart begins the schedules of existing jobs anew, also of jobs that do not change.
	Restart bool

	Bundle   string // the bundle that declares; "" = none
	TakeOver bool   // also what belongs to another bundle, or to none
	Prune    *Prune // nil = nothing is pruned
}

// MaxWanted is the most jobs of a declaration.
const MaxWanted = 1000

// planNext is how many due times a plan shows.
const planNext = 3

// Declare creates and edits jobs, so that they have the desired state. All are checked first, by the rules of the store
// too, then applied in one commit. A job that changes concurrently is refused as Stale; the others are applied then.
func (o *Ops) Declare(ctx context.Context, who Who, wanted []Wanted, how How) ([]Planned, error) {
	_, plans, err := o.DeclareAll(ctx, who, nil, wanted, how)
	return plans, err
}

// DeclareAll is Declare with calendars, which are applied first: jobs may name them. Next due times are computed with
// these calendars. What how.Prune names follows in both lists.
func (o *Ops) DeclareAll(ctx context.Context, who Who, calendars []kernel.SetCalendar, wanted []Wanted, how How) ([]PlannedCalendar, []Planned, error) {
	if len(wanted) > MaxWanted {
		return nil, nil, kernel.Invalid("too many jobs: %d, at most %d in one request", len(wanted), MaxWanted)
	}
	if err := how.check(); err != nil {
		return nil, nil, err
	}
	s, err := o.planCalendars(ctx, who, calendars, how)
	if err != nil {
		return nil, nil, err
	}
	global, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return nil, nil, err
	}
	plans := make([]Planned, len(wanted))
	var batch []kernel.Envelope
	for _, k := range s.batch {
		batch = append(batch, o.envelope(who, k))
	}
	seen := map[jobs.Key]bool{}
	for i, w := range wanted {
		if seen[w.Key] {
			return nil, nil, kernel.Invalid("job %s is given twice", w.Key)
		}
		seen[w.Key] = true
		commands, err := o.plan(ctx, who, global, w, how, s.all, &plans[i])
		if err != nil {
			return nil, nil, fmt.Errorf("job %s: %w", w.Key, err)
		}
		if w.Pause != "" {
			commands = append(commands, kernel.Pause{Key: w.Key, Reason: w.Pause})
		}
		for _, k := range commands {
			batch = append(batch, o.envelope(who, k))
		}
	}
	if err := o.checkPlans(ctx, who, plans[:len(wanted)]); err != nil {
		return nil, nil, err
	}
	pruned, err := o.planPrune(ctx, who, global, how, plans, calendars)
	if err != nil {
		return nil, nil, err
	}
	for _, k := range pruned.batch {
		batch = append(batch, o.envelope(who, k))
	}
	s.plans, plans = append(s.plans, pruned.calendars...), append(plans, pruned.jobs...)
	if how.Dry {
		return s.plans, plans, nil
	}
	if err := pruned.refuseLive(how); err != nil {
		return nil, nil, err
	}
	var results []metastore.Result
	if len(batch) > 0 {
		results = o.gate.commit(ctx, who, batch)
	}
	for i, r := range results {
		if r.Err != nil {
			err = fmt.Errorf("%s: %w", about(batch[i].Command), r.Err)
			if slices.ContainsFunc(results, func(other metastore.Result) bool { return other.Err == nil }) {
				err = partial(err)
			}
			break
		}
		if d := r.Definition(); d != nil {
			for n := range plans {
				if plans[n].Job.Key == d.Key {
					plans[n].Job = o.job(d, global, planNext)
					_ = o.warnHandler(ctx, who, &plans[n].Job) // a warning that cannot be found out now is left out
				}
			}
		}
	}
	if err == nil {
		err = o.prune(ctx, who, how, &pruned, len(batch) > 0)
	}
	return s.plans, plans, err
}

// checkPlans checks planned jobs as the store does: each with those before it.
func (o *Ops) checkPlans(ctx context.Context, who Who, plans []Planned) (err error) {
	all := new(metastore.Planning)
	if slices.ContainsFunc(plans, func(p Planned) bool { return p.Does != DoesNothing && follows(&p.Job.Policy) }) {
		if all, err = metastore.NewPlanning(ctx, o.store, who.tenant()); err != nil {
			return err
		}
	}
	for i := range plans {
		if plans[i].Does == DoesNothing {
			continue
		}
		if err := all.Add(plans[i].Job.Definition); err != nil {
			return err
		}
	}
	return nil
}

func follows(p *kernel.Policy) bool {
	return len(p.After)+len(p.OnSuccess)+len(p.OnFailure) > 0 || p.Parent != ""
}

// partial is the error about a change that was not made after others of the request were. A refusal leaves a known
// outcome: it keeps its code, or is a Conflict if that means that nothing was stored.
func partial(err error) error {
	code := jobs.CodeOf(err)
	switch code {
	case jobs.Unavailable:
		code = jobs.Unknown
	case jobs.BadInput:
		code = jobs.Conflict
	}
	return kernel.Refuse(code, "some changes were written, others were not: %v", err)
}

// plan returns the change that a desired state needs.
func (o *Ops) plan(ctx context.Context, who Who, g *kernel.Global, w Wanted, how How, calendars *schedule.Calendars, p *Planned) ([]kernel.Command, error) {
	edit := kernel.Edit{Key: w.Key, Set: w.Set, Bundle: how.Bundle, TakeOver: how.TakeOver}
	if err := kernel.CheckCommand(edit); err != nil {
		return nil, err
	}
	d, err := o.definition(ctx, who, w.Key)
	var commands []kernel.Command
	var create *kernel.Register
	switch {
	case jobs.CodeOf(err) == jobs.NotFound:
		create = &kernel.Register{App: w.App, Worker: kernel.NoWorker, Start: true, Job: kernel.Declaration{Key: w.Key, Kind: w.Kind}, Bundle: how.Bundle}
		switch {
		case w.Kind == 0:
			return nil, kernel.Invalid("there is no job %s yet: to create it, set its kind, recurring or triggered", w.Key)
		case w.App == "":
			return nil, kernel.Invalid("there is no job %s yet: to create it, set the app whose workers run it", w.Key)
		}
		if err := kernel.CheckCommand(*create); err != nil {
			return nil, err
		}
		d = &kernel.Definition{Tenant: who.tenant(), Key: w.Key, Kind: w.Kind, App: w.App, Bundle: how.Bundle}
		now := o.Now()
		d.Created, d.Cursor = now, now
		d.Restart(now)
		d.Policy = d.Resolve(g)
		p.Does = DoesCreate
	case err != nil:
		return nil, err
	case how.Fresh:
		return nil, kernel.Refuse(jobs.Conflict, "job %s already exists", w.Key)
	case w.Kind != 0 && w.Kind != d.Kind:
		return nil, kernel.Refuse(jobs.Conflict, "job %s is %s, and a key never changes its kind: choose another key", w.Key, d.Kind)
	case w.App != "" && w.App != d.App:
		return nil, kernel.Refuse(jobs.Conflict, "job %s belongs to app %s, and only its code can move it to another", w.Key, d.App)
	default:
		edit.IfRevision, edit.Restart = d.Revision, how.Restart
		if w.Resume && d.Paused != nil {
			commands = append(commands, kernel.Resume{Key: w.Key})
			edit.IfRevision++
		}
		p.NextBefore = o.job(d, g, planNext).Next
		var clears []string
		if how.Prune != nil && (d.Bundle == how.Bundle || how.TakeOver) {
			clears = d.BundleFields
		}
		if how.Exact {
			clears = d.Edits.Given()
		}
		for _, name := range clears {
			if !slices.Contains(w.Set.Given(), name) {
				edit.Clear = append(edit.Clear, name)
			}
		}
	}
	if _, err := edit.Apply(d); err != nil {
		return nil, err
	}
	o.inZone(d, g, &edit)
	if err := o.planEdit(ctx, who, g, d, edit, calendars, p); err != nil {
		return nil, err
	}
	if create != nil { // with its settings, so that it never stands there without them
		create.Set = edit.Set
		return append(commands, *create), nil
	}
	after := p.Job.Definition
	if !after.Edits.Equal(&d.Edits) || !after.SameBundle(d) || edit.Restart {
		commands = append(commands, edit)
	}
	if p.Does == "" {
		p.Does = DoesNothing
		if len(commands) > 0 {
			p.Does = DoesEdit
		}
	}
	return commands, nil
}

// planEdit checks an edit, and sets the job of a plan as it would be.
func (o *Ops) planEdit(ctx context.Context, who Who, g *kernel.Global, d *kernel.Definition, edit kernel.Edit, calendars *schedule.Calendars, p *Planned) error {
	after := o.edited(d, g, edit)
	if err := o.checkHandler(ctx, who, after, &edit.Set); err != nil {
		return err
	}
	if err := o.checkWork(d.Key, d.App, &edit.Set); err != nil {
		return err
	}
	if err := o.checkSchedule(ctx, who, d, edit); err != nil {
		return err
	}
	p.Job = o.job(after, g, planNext)
	if err := o.warnHandler(ctx, who, &p.Job); err != nil {
		return err
	}
	p.NextThen, p.Differ = p.Job.Next, differences(&d.Policy, &after.Policy)
	if d.Bundle != after.Bundle {
		p.Differ = append(p.Differ, Difference{Field: "bundle", Old: d.Bundle, New: after.Bundle})
	}
	return o.excluding(after, p, calendars)
}

// Create creates a job that no worker has registered. Workers of its app that have the key run it; their code sets the
// fields that are not set here.
func (o *Ops) Create(ctx context.Context, who Who, w Wanted) (Job, error) {
	plans, err := o.Declare(ctx, who, []Wanted{w}, How{Fresh: true})
	if err != nil {
		return Job{}, err
	}
	return plans[0].Job, nil
}
