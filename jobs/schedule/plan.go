package schedule

import (
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Calendars are the calendars of a tenant by name. Nil has none.
type Calendars struct {
	// Revision is Global.Calendars as they were read.
	Revision uint64
	byName   map[string]*Calendar
}

// CalendarsOf compiles the calendars of the store.
func CalendarsOf(revision uint64, rows []*kernel.Calendar) *Calendars {
	c := &Calendars{Revision: revision, byName: make(map[string]*Calendar, len(rows))}
	for _, row := range rows {
		c.byName[row.Name] = CalendarOf(row)
	}
	return c
}

// Named returns the existing calendars of these names, and the names without a calendar.
func (c *Calendars) Named(names []string) (list []*Calendar, missing []string) {
	for _, name := range names {
		if c == nil || c.byName[name] == nil {
			missing = append(missing, name)
			continue
		}
		list = append(list, c.byName[name])
	}
	return list, missing
}

// Plan is a schedule with the calendars of its job: when the job is due, and which due times are excluded.
type Plan struct {
	*Schedule
	calendars []*Calendar
	// Missing are the names of calendars that do not exist.
	Missing []string
}

// PlanOf returns the plan of a job in the store, or nil if it has no schedule.
func PlanOf(d *kernel.Definition, c *Calendars) (*Plan, error) {
	s, err := Of(d)
	if s == nil || err != nil {
		return nil, err
	}
	p := &Plan{Schedule: s}
	p.calendars, p.Missing = c.Named(d.Policy.Calendars)
	return p, nil
}

// Excludes returns which calendar excludes a time, and by which rule.
func (p *Plan) Excludes(at time.Time) (calendar, rule string, is bool) {
	for _, c := range p.calendars {
		if rule, _, is := c.Excludes(at); is {
			return c.name, rule, true
		}
	}
	return "", "", false
}

// mostExcluded limits how many excluded ranges Next skips: enough for 28 years of days.
const mostExcluded = 28 * 366

// Next returns the first due time strictly after the given one that no calendar
// excludes; false means that there is none, or none in 28 years of days without
// one.
func (p *Plan) Next(after time.Time) (time.Time, bool) {
	for range mostExcluded {
		due, ok := p.Schedule.Next(after)
		if !ok {
			return due, false
		}
		free := true
		for _, c := range p.calendars {
			if _, until, is := c.Excludes(due); is {
				free = false
				if after = due; until.After(due) {
					after = until.Add(-1) // a due time right at the end is not excluded
				}
				break
			}
		}
		if free {
			return due, true
		}
	}
	return time.Time{}, false
}
