package schedule

import "time"

// In shows an instant on the clocks of the schedule's zone.
func (s *Schedule) In(at time.Time) time.Time { return at.In(s.zone.location) }

// Remark describes what a change of the clocks did to a due time, such as "clocks go forward: 02:30 does not exist". It
// is empty for most due times. It covers due times that moved out of a gap, several that became one there, and those
// in an hour that clocks repeat. A skipped match has no due time and no remark.
func (s *Schedule) Remark(due time.Time) string { return s.RemarkIn("en", due) }

// RemarkIn is Remark in a language, as [Schedule.WordsIn] understands it.
func (s *Schedule) RemarkIn(lang string, due time.Time) string {
	switch rule := s.rule.(type) {
	case *cron:
		return rule.remark(languageOf(lang), due.Unix())
	case period:
		return rule.remark(languageOf(lang), due)
	}
	return ""
}

// skipped are wall times that clocks skip, and that became one due time.
type skipped struct {
	first, last string // as clocks show them
	count       int
	with        string // the due time by itself, if it is a match like them; else ""
}

func (c *cron) remark(l language, due int64) string {
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
	if moved := c.movedFrom(low, high, local); moved.count > 0 {
		return l.forward(moved)
	}
	return c.zone.pass(l, i, local)
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

// movedFrom finds the wall times between low and high that became the due time
// that clocks show as local.
func (c *cron) movedFrom(low, high, local int64) skipped {
	first, last, count := c.matches(low, high)
	moved := skipped{first: clockOf(first, local), last: clockOf(last, local), count: count}
	if c.match(local) == local {
		moved.with = clockOf(local, local)
	}
	return moved
}

// pass returns on which pass of an overlap a local time of span i is, if on any.
func (z *zone) pass(l language, i int, local int64) string {
	if i > 0 && local < z.spans[i].start+z.spans[i-1].offset {
		return l.back(clockOf(local, local), 2)
	}
	if next := z.spans[i+1]; local >= next.start+next.offset {
		return l.back(clockOf(local, local), 1)
	}
	return ""
}

// remark reports whether the calendar part of a period met a change of the clocks. With a clock part after it, the due
// time has no expected wall time.
func (p period) remark(l language, due time.Time) string {
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
			return l.forward(skipped{first: clockOf(local, p.zone.local(unix)), count: 1})
		default:
			return p.zone.pass(l, i, local)
		}
	}
	return ""
}

// clockOf formats a local time as a time of day, with its date if that differs from beside's, and with seconds if it
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
