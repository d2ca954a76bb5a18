package ops

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// ScheduleError is the refusal of a schedule, and, if At is not nil, the place in its text.
type ScheduleError struct {
	Expr string
	At   *schedule.Error
}

func (e *ScheduleError) Error() string { return fmt.Sprintf("schedule %.80q: %v", e.Expr, e.At) }

// Unwrap returns jobs.BadInput, and the place.
func (e *ScheduleError) Unwrap() []error { return []error{jobs.BadInput, e.At} }

// Edit sets fields of a job, or lets them follow the code again. The schedule is checked here, before a command is
// created: one that is invalid, or never fires, is refused as a *ScheduleError.
func (o *Ops) Edit(ctx context.Context, who Who, k kernel.Edit) (Job, error) {
	if err := kernel.CheckCommand(k); err != nil {
		return Job{}, err
	}
	d, err := o.definition(ctx, who, k.Key)
	if err != nil {
		return Job{}, err
	}
	global, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return Job{}, err
	}
	o.inZone(d, global, &k)
	if err := o.checkHandler(ctx, who, o.edited(d, global, k), &k.Set); err != nil {
		return Job{}, err
	}
	if err := o.checkWork(d.Key, d.App, &k.Set); err != nil {
		return Job{}, err
	}
	if err := o.checkSchedule(ctx, who, d, k); err != nil {
		return Job{}, err
	}
	return o.change(ctx, who, k)
}

// Preview returns the job after an edit, with its next due times. Nothing is stored.
func (o *Ops) Preview(ctx context.Context, who Who, k kernel.Edit, next int) (Job, error) {
	if err := errors.Join(kernel.CheckCommand(k), checkNext(next)); err != nil {
		return Job{}, err
	}
	d, err := o.definition(ctx, who, k.Key)
	if err != nil {
		return Job{}, err
	}
	global, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return Job{}, err
	}
	if _, err := k.Apply(d); err != nil {
		return Job{}, err
	}
	o.inZone(d, global, &k)
	if err := o.checkWork(d.Key, d.App, &k.Set); err != nil {
		return Job{}, err
	}
	if err := o.checkSchedule(ctx, who, d, k); err != nil {
		return Job{}, err
	}
	job := o.job(o.edited(d, global, k), global, next)
	return job, errors.Join(o.warnHandler(ctx, who, &job), o.warnFamily(ctx, &job))
}

// inZone reads the times that the edit has without an offset on the clocks of the zone that the job then has.
func (o *Ops) inZone(d *kernel.Definition, g *kernel.Global, k *kernel.Edit) {
	for _, at := range []**time.Time{&k.Set.Start, &k.Set.End, &k.Set.First} {
		if *at == nil || (*at).Location() != kernel.WallClock {
			continue
		}
		// An unknown zone is refused with the schedule.
		wall := (*at).Format("2006-01-02T15:04:05")
		if s, err := schedule.Parse(schedule.Spec{Expr: wall, Zone: o.edited(d, g, *k).Policy.Zone}); err == nil {
			if t, ok := s.Next((*at).AddDate(0, 0, -3)); ok {
				*at = new(kernel.Instant(t))
			}
		}
	}
}

// Zone returns the zone of a job, or of one of this app that has none of its own and does not exist yet.
func (o *Ops) Zone(ctx context.Context, who Who, key jobs.Key, app string) (string, error) {
	d, err := o.definition(ctx, who, key)
	if err == nil {
		return d.Policy.Zone, nil
	}
	if !errors.Is(err, jobs.NotFound) {
		return "", err
	}
	g, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return "", err
	}
	return (&kernel.Definition{App: app}).Resolve(g).Zone, nil
}

// edited returns the definition after an edit. An edit that would be refused changes nothing.
func (o *Ops) edited(d *kernel.Definition, g *kernel.Global, k kernel.Edit) *kernel.Definition {
	next, err := k.Apply(d)
	if err != nil {
		next = d
	}
	after := *next
	after.Policy = after.Resolve(g)
	if !after.Policy.SameTimes(&d.Policy) {
		after.Reschedule(d, o.Now())
	}
	if k.Restart {
		after.Restart(o.Now())
	}
	return &after
}

// checkSchedule checks the schedule after an edit, if the edit changes it.
func (o *Ops) checkSchedule(ctx context.Context, who Who, d *kernel.Definition, k kernel.Edit) error {
	global, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return err
	}
	after := o.edited(d, global, k)
	p := &after.Policy
	if p.SameTimes(&d.Policy) || d.Kind == kernel.Triggered {
		return nil
	}
	err = timetable.Check(after)
	if at, ok := errors.AsType[*schedule.Error](err); ok {
		return &ScheduleError{Expr: p.Schedule, At: at}
	}
	return err
}

// Pause pauses a job: due times are recorded in the ledger, and runs that would begin are held back. Runs that an
// earlier pause of the job holds follow this one: the leader has them wake when it ends.
func (o *Ops) Pause(ctx context.Context, who Who, k kernel.Pause) (Job, error) {
	if _, err := o.definition(ctx, who, k.Key); err != nil {
		return Job{}, err
	}
	return o.change(ctx, who, k)
}

// change sends a command that returns a definition.
func (o *Ops) change(ctx context.Context, who Who, c kernel.Command) (Job, error) {
	global, err := o.store.Global(ctx, who.tenant()) // before, so that a command that succeeded is not reported as failed
	if err != nil {
		return Job{}, err
	}
	standing, err := o.conditioner(ctx, who, global)
	if err != nil {
		return Job{}, err
	}
	effect, err := o.apply(ctx, who, c)
	if err != nil {
		return Job{}, err
	}
	job := o.job(effect.Definition(), global, 1)
	job.Conditions, job.Known = standing.of(job.Definition), true
	return job, after(o.warnFamily(ctx, &job))
}
