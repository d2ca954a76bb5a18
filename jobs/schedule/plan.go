package schedule

import "time"

// Calendars are the calendars of a tenant by name. Nil has none.
type Calendars struct {
	Revision uint64 // of the calendars as they were read
	byName   map[string]*Calendar
}

// NewCalendars returns calendars by their names.
func NewCalendars(revision uint64, list ...*Calendar) *Calendars {
	c := &Calendars{Revision: revision, byName: make(map[string]*Calendar, len(list))}
	for _, calendar := range list {
		c.byName[calendar.name] = calendar
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

// Plan returns the plan of a schedule with the calendars of these names.
func (c *Calendars) Plan(s *Schedule, names []string) *Plan {
	p := &Plan{Schedule: s}
	p.calendars, p.Missing = c.Named(names)
	return p
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
