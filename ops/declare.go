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

// Wanted is what a file, or a person, wants to hold for a job. A job that is not there is made.
type Wanted struct {
	Key  jobs.Key
	Kind kernel.Kind // of a job that is there: the same, or 0
	App  string      // the worker group that is to run it; of a job that is there: the same, or ""
	Set  kernel.Settings
}

// Planned is what becomes of a job that is wanted.
type Planned struct {
	Job                  Job    // as it is, or would be
	Does                 string // DoesCreate, DoesEdit or DoesNothing
	Differ               []Difference
	NextBefore, NextThen []time.Time // the next due times, with the job as it was and as it is wanted
}

// What a plan does to a job.
const (
	DoesCreate  = "create"
	DoesEdit    = "edit"
	DoesNothing = "nothing"
)

// How is how jobs are declared.
type How struct {
	Exact bool // fields that people had set and that are not wanted follow the code again
	Dry   bool // say what would be done, and do nothing
	Fresh bool // only jobs that are not there yet: others are refused as Conflict
}

// MaxWanted is how many jobs are declared at once.
const MaxWanted = 1000

// planNext is how many due times a plan shows.
const planNext = 3

// Declare makes jobs, and edits those that are there, so that what is wanted holds. All of it is looked at before
// anything is done; then it is done in one commit. A job that is changed by somebody else meanwhile is refused as
// Stale, or, where others of them are done, as Unknown.
func (o *Ops) Declare(ctx context.Context, who Who, wanted []Wanted, how How) ([]Planned, error) {
	_, plans, err := o.DeclareAll(ctx, who, nil, wanted, how)
	return plans, err
}

// DeclareAll is Declare with calendars, which come first: jobs may name them. Next due times are told as they would be
// with these.
func (o *Ops) DeclareAll(ctx context.Context, who Who, calendars []kernel.SetCalendar, wanted []Wanted, how How) ([]PlannedCalendar, []Planned, error) {
	if len(wanted) > MaxWanted {
		return nil, nil, kernel.Invalid("%d jobs are given, at most %d are taken at once", len(wanted), MaxWanted)
	}
	s, err := o.planCalendars(ctx, who, calendars)
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
		for _, k := range commands {
			batch = append(batch, o.envelope(who, k))
		}
	}
	if how.Dry || len(batch) == 0 {
		return s.plans, plans, nil
	}
	results := o.store.Apply(ctx, batch)
	for i, r := range results {
		if r.Err != nil {
			err = fmt.Errorf("%s: %w", about(batch[i].Command), r.Err)
			if slices.ContainsFunc(results, func(other metastore.Result) bool { return other.Err == nil }) {
				err = kernel.Refuse(jobs.Unknown, "a part of it was written, and another was not: %v", err)
			}
			break
		}
		if d := r.Definition(); d != nil {
			for n := range plans {
				if plans[n].Job.Key == d.Key {
					plans[n].Job = o.job(d, global, planNext)
				}
			}
		}
	}
	return s.plans, plans, err
}

// plan says what a wanted job needs.
func (o *Ops) plan(ctx context.Context, who Who, g *kernel.Global, w Wanted, how How, calendars *schedule.Calendars, p *Planned) ([]kernel.Command, error) {
	edit := kernel.Edit{Key: w.Key, Set: w.Set}
	if err := edit.Check(); err != nil {
		return nil, err
	}
	d, err := o.definition(ctx, who, w.Key)
	var commands []kernel.Command
	switch {
	case jobs.CodeOf(err) == jobs.NotFound:
		register := kernel.Register{App: w.App, Worker: kernel.Nobody, Start: true, Job: kernel.Declaration{Key: w.Key, Kind: w.Kind}}
		switch {
		case w.Kind == 0:
			return nil, kernel.Invalid("there is no job %s yet: to make it, say its kind, recurring or triggered", w.Key)
		case w.App == "":
			return nil, kernel.Invalid("there is no job %s yet: to make it, say the app whose workers are to run it", w.Key)
		}
		if err := register.Check(); err != nil {
			return nil, err
		}
		d = &kernel.Definition{Tenant: who.tenant(), Key: w.Key, Kind: w.Kind, App: w.App, Created: o.Now(), Anchor: o.Now(), Cursor: o.Now()}
		d.Policy = d.Resolve(g)
		commands = append(commands, register)
		p.Does = DoesCreate
	case err != nil:
		return nil, err
	case how.Fresh:
		return nil, kernel.Refuse(jobs.Conflict, "there is a job %s already", w.Key)
	case w.Kind != 0 && w.Kind != d.Kind:
		return nil, kernel.Refuse(jobs.Conflict, "job %s is %s, and a key never changes its kind: choose another key", w.Key, d.Kind)
	case w.App != "" && w.App != d.App:
		return nil, kernel.Refuse(jobs.Conflict, "job %s belongs to app %s, and only its code can move it to another", w.Key, d.App)
	default:
		edit.IfRevision = d.Revision
		p.NextBefore = o.job(d, g, planNext).Next
		if how.Exact {
			for _, name := range d.Edits.Given() {
				if !slices.Contains(w.Set.Given(), name) {
					edit.Clear = append(edit.Clear, name)
				}
			}
		}
	}
	if w.Set.Args != nil {
		if err := o.args.Check(d.Schema, *w.Set.Args); err != nil {
			return nil, err
		}
	}
	if err := o.checkHTTP(d.App, &w.Set); err != nil {
		return nil, err
	}
	if err := o.checkSchedule(ctx, who, d, edit); err != nil {
		return nil, err
	}
	after := o.edited(d, g, edit)
	p.Job = o.job(after, g, planNext)
	p.NextThen, p.Differ = p.Job.Next, differences(&d.Policy, &after.Policy)
	if err := o.excluding(after, p, calendars); err != nil {
		return nil, err
	}
	if !after.Edits.Equal(&d.Edits) {
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

// Create makes a job that no worker has brought. It waits for workers of its app that have the key; what they say in
// their code then holds where nothing was said here.
func (o *Ops) Create(ctx context.Context, who Who, w Wanted) (Job, error) {
	plans, err := o.Declare(ctx, who, []Wanted{w}, How{Fresh: true})
	if err != nil {
		return Job{}, err
	}
	return plans[0].Job, nil
}
