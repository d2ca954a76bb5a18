package ops

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Calendar is a calendar with the jobs that use it, and the due times that it excludes.
type Calendar struct {
	*kernel.Calendar
	Jobs []jobs.Key // that use it
	Next []Excluded // the next due times of these jobs that it excludes, soonest first
}

// Excluded is a due time that a rule excludes.
type Excluded struct {
	Key  jobs.Key
	At   time.Time
	Rule string
}

// previewed is how many excluded due times are listed, and how far ahead.
const (
	previewed   = 10
	previewFor  = 366 * 24 * time.Hour
	previewLook = 20_000 // due times of a job
)

// Calendars lists the calendars of a tenant by name.
func (o *Ops) Calendars(ctx context.Context, who Who) ([]*kernel.Calendar, error) {
	return o.store.Calendars(ctx, who.tenant())
}

// Calendar returns a calendar with the jobs that use it.
func (o *Ops) Calendar(ctx context.Context, who Who, name string) (Calendar, error) {
	list, err := o.Calendars(ctx, who)
	if err != nil {
		return Calendar{}, err
	}
	i := slices.IndexFunc(list, func(c *kernel.Calendar) bool { return c.Name == name })
	if i < 0 {
		return Calendar{}, kernel.Refuse(jobs.NotFound, "there is no calendar %.60q", name)
	}
	return o.previewCalendar(ctx, who, list[i])
}

func (o *Ops) previewCalendar(ctx context.Context, who Who, row *kernel.Calendar) (Calendar, error) {
	defs, err := o.store.Definitions(ctx, metastore.DefinitionQuery{Tenant: who.tenant()})
	if err != nil {
		return Calendar{}, err
	}
	c, now := Calendar{Calendar: row}, o.Now()
	compiled := timetable.Calendar(row)
	for _, d := range defs {
		if !slices.Contains(d.Policy.Calendars, row.Name) {
			continue
		}
		c.Jobs = append(c.Jobs, d.Key)
		s, _ := timetable.Schedule(d)
		if s == nil || d.Waits() {
			continue
		}
		due, ok := s.Next(now)
		for n, looked := 0, 0; ok && n < previewed && looked < previewLook && due.Sub(now) < previewFor; looked++ {
			if rule, _, is := compiled.Excludes(due); is {
				c.Next = append(c.Next, Excluded{Key: d.Key, At: due, Rule: rule})
				n++
			}
			due, ok = s.Next(due)
		}
	}
	slices.SortStableFunc(c.Next, func(a, b Excluded) int { return a.At.Compare(b.At) })
	c.Next = c.Next[:min(len(c.Next), previewed)]
	return c, nil
}

// SetCalendar creates or replaces a calendar. Invalid rules are refused as a *ScheduleError.
func (o *Ops) SetCalendar(ctx context.Context, who Who, k kernel.SetCalendar) (Calendar, error) {
	if err := checkCalendar(k); err != nil {
		return Calendar{}, err
	}
	if _, err := o.apply(ctx, who, k); err != nil {
		return Calendar{}, err
	}
	c, err := o.Calendar(ctx, who, k.Name)
	return c, after(err)
}

// DropCalendar deletes a calendar that no job uses. A job that begins to use it at that very moment is due as if the
// calendar were empty, and shows a warning.
func (o *Ops) DropCalendar(ctx context.Context, who Who, k kernel.DropCalendar) error {
	if err := kernel.CheckCommand(k); err != nil {
		return err
	}
	if err := who.unlimited(); err != nil { // also if there is no such calendar
		return err
	}
	c, err := o.Calendar(ctx, who, k.Name)
	if err != nil {
		return err
	}
	if n := len(c.Jobs); n > 0 {
		return kernel.Refuse(jobs.Conflict, "calendar %s is used by %s, such as %s: remove it from their calendars first", k.Name, count(n, "job"), c.Jobs[0])
	}
	_, err = o.apply(ctx, who, k)
	return err
}

// closed caches the calendars of tenants, so that a list of ten thousand jobs reads them once.
type closed struct {
	mu    sync.Mutex
	known map[jobs.Tenant]*schedule.Calendars
}

// calendarsWithin is how long a page waits for the calendars; after it, due times are shown as if there were none.
const calendarsWithin = 2 * time.Second

// dueBy returns the schedule of a job with its calendars, or nil if it has none.
func (o *Ops) dueBy(d *kernel.Definition, g *kernel.Global) (*schedule.Plan, error) {
	if len(d.Policy.Calendars) == 0 {
		return timetable.Plan(d, nil)
	}
	o.closed.mu.Lock()
	defer o.closed.mu.Unlock()
	c := o.closed.known[d.Tenant]
	if c == nil || c.Revision != g.Calendars {
		ctx, cancel := context.WithTimeout(context.Background(), calendarsWithin)
		defer cancel()
		if rows, err := o.store.Calendars(ctx, d.Tenant); err == nil {
			if o.closed.known == nil {
				o.closed.known = map[jobs.Tenant]*schedule.Calendars{}
			}
			c = timetable.Calendars(g.Calendars, rows)
			o.closed.known[d.Tenant] = c
		}
	}
	return timetable.Plan(d, c)
}
