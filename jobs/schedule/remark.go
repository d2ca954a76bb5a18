package schedule

import "time"

// In shows an instant on the clocks of the schedule's zone.
func (s *Schedule) In(at time.Time) time.Time { return at.In(s.zone.location) }

// Remark says what a change of the clocks did to a due time, such as
// "clocks go forward: 02:30 does not exist". It is empty for nearly every one.
// It tells of due times that moved out of a gap, of several that became one
// there, and of those that come on one pass of an overlap or on both. What was
// left out altogether has no due time to remark on.
func (s *Schedule) Remark(due time.Time) string {
	switch rule := s.rule.(type) {
	case *cron:
		return rule.remark(due.Unix())
	case period:
		return rule.remark(due)
	}
	return ""
}

func (c *cron) remark(due int64) string {
	i := c.zone.find(due)
	this, next := c.zone.spans[i], c.zone.spans[i+1]
	local := due + this.offset
	low, high := local, local // the missing wall times that this due time may stand for
	switch {
	case c.policies.flowing:
	case c.policies.gap == GapAfter && i > 0 && due == this.start:
		low = this.start + c.zone.spans[i-1].offset
	case c.policies.gap == GapBefore && due == next.start-1:
		low, high = local+1, next.start+next.offset
	}
	if text := c.movedFrom(low, high, local); text != "" {
		return text
	}
	return c.zone.pass(i, local)
}

// matches counts the matches in a stretch of local seconds and returns the
// first and the last.
func (c *cron) matches(low, high int64) (first, last int64, count int) {
	for local := c.match(low); local < high; local = c.match(local + 1) {
		if count++; count == 1 {
			first = local
		}
		last = local
	}
	return first, last, count
}

// movedFrom says which wall times between low and high became the due time that
// clocks show as local; nothing if there are none.
func (c *cron) movedFrom(low, high, local int64) string {
	first, last, count := c.matches(low, high)
	text, exist, fall := clockOf(first, local), " does not exist", " and falls"
	switch count {
	case 0:
		return ""
	case 1:
	case 2:
		text, exist, fall = text+" and "+clockOf(last, local), " do not exist", " and fall"
	default:
		text, exist, fall = text+" to "+clockOf(last, local), " do not exist", " and fall"
	}
	text = "clocks go forward: " + text + exist
	switch {
	case c.match(local) == local:
		return text + fall + " together with " + clockOf(local, local)
	case count > 1:
		return text + " and become one"
	}
	return text
}

// pass says on which pass of an overlap a local time of span i lies, if on any.
func (z *zone) pass(i int, local int64) string {
	which := ""
	if next := z.spans[i+1]; local >= next.start+next.offset {
		which = "first"
	}
	if i > 0 && local < z.spans[i].start+z.spans[i-1].offset {
		which = "second"
	}
	if which == "" {
		return ""
	}
	return "clocks go back: " + clockOf(local, local) + " comes twice, this is the " + which + " time"
}

// remark says whether the calendar part of a period met a change of the clocks. With a clock part after it, there is
// no wall time that the due time should have had.
func (p period) remark(due time.Time) string {
	if p.seconds != 0 {
		return ""
	}
	for k := max(p.first, (due.Unix()-p.anchor.Unix())/p.average-2); k <= p.last; k++ {
		local := p.local(k)
		unix := p.zone.resolve(local)
		switch i := p.zone.find(unix); {
		case unix < due.Unix():
		case unix > due.Unix():
			return ""
		case p.zone.local(unix) != local:
			return "clocks go forward: " + clockOf(local, p.zone.local(unix)) + " does not exist"
		default:
			return p.zone.pass(i, local)
		}
	}
	return ""
}

// clockOf writes a local time as a time of day, with its date if it is not that of beside, and with seconds if it
// has any.
func clockOf(local, beside int64) string {
	layout := "15:04"
	if local%60 != 0 {
		layout = "15:04:05"
	}
	if local/daySeconds != beside/daySeconds {
		layout = time.DateOnly + " " + layout
	}
	return time.Unix(local, 0).UTC().Format(layout)
}
