// Package timetable compiles the schedules and calendars of stored jobs: rows of internal/kernel become values of
// jobs/schedule. It is not promised.
package timetable

import (
	"errors"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// Schedule returns the schedule of a stored job, or nil if it has none. A schedule that has ended since it was set is
// no error: it is finished.
func Schedule(d *kernel.Definition) (*schedule.Schedule, error) {
	if d.Policy.Schedule == "" {
		return nil, nil
	}
	spec, err := specOf(d)
	if err != nil {
		return nil, err
	}
	return schedule.Reopen(spec)
}

// Check validates the schedule of a job that is about to be set at d.Anchor.
func Check(d *kernel.Definition) error {
	if d.Policy.Schedule == "" {
		return nil
	}
	spec, err := specOf(d)
	if err != nil {
		return err
	}
	_, err = schedule.Parse(spec)
	return err
}

func specOf(d *kernel.Definition) (schedule.Spec, error) {
	p := &d.Policy
	s := schedule.Spec{Expr: p.Schedule, Zone: p.Zone, Start: p.Start, End: p.End, Anchor: d.Anchor, Key: string(d.Tenant) + "/" + string(d.Key), Due: p.First, Ended: d.Ended}
	began := p.Start
	if began.Before(d.TTLFrom) {
		began = d.TTLFrom
	}
	if p.TTL > 0 && !began.IsZero() {
		if end := began.Add(p.TTL); s.End.IsZero() || end.Before(s.End) {
			s.End = end
		}
	}
	return s, errors.Join(s.Gap.UnmarshalText([]byte(p.Gap)), s.Overlap.UnmarshalText([]byte(p.Twice)))
}

// Plan returns the plan of a stored job, or nil if it has no schedule.
func Plan(d *kernel.Definition, c *schedule.Calendars) (*schedule.Plan, error) {
	s, err := Schedule(d)
	if s == nil || err != nil {
		return nil, err
	}
	return c.Plan(s, d.Policy.Calendars), nil
}

// Calendar compiles a stored calendar. Invalid rules exclude nothing; they were checked before they were stored.
func Calendar(row *kernel.Calendar) *schedule.Calendar {
	c, err := schedule.ParseCalendar(row.Name, row.Zone, row.Rules)
	if err != nil {
		c, _ = schedule.ParseCalendar(row.Name, "", nil)
	}
	for _, e := range row.Earlier {
		if before, err := schedule.ParseCalendar(row.Name, e.Zone, e.Rules); err == nil {
			c = c.WithEarlier(e.Until, before)
		}
	}
	return c
}

// Calendars compiles the calendars of a tenant. revision is Global.Calendars as they were read.
func Calendars(revision uint64, rows []*kernel.Calendar) *schedule.Calendars {
	list := make([]*schedule.Calendar, len(rows))
	for i, row := range rows {
		list[i] = Calendar(row)
	}
	return schedule.NewCalendars(revision, list...)
}

// Settings returns the settings of a job with a schedule. Fields that spec leaves out stay unset.
func Settings(spec schedule.Spec) kernel.Settings {
	s := kernel.Settings{Schedule: &spec.Expr}
	if spec.Zone != "" {
		s.Zone = &spec.Zone
	}
	if !spec.Due.IsZero() {
		s.First = new(kernel.Instant(spec.Due))
	}
	if !spec.End.IsZero() {
		s.End = new(kernel.Instant(spec.End))
	}
	return s
}
