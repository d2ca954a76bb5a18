package schedule

import (
	"fmt"
	"strings"
)

type english struct{}

var (
	englishMonths = [...]string{1: "January", "February", "March", "April", "May", "June", "July",
		"August", "September", "October", "November", "December"}
	englishDays  = [...]string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}
	englishUnits = [...]string{"year", "month", "week", "day", "hour", "minute", "second"}
)

func (l english) sentence(what string, b bounds) string {
	text := what + ", " + b.zone
	if b.zone != "UTC" {
		text += " time"
	}
	if b.start != "" {
		text += ", from " + b.start
	}
	if b.end != "" {
		text += ", until " + b.end
	}
	for _, note := range b.notes {
		text += "; " + note
	}
	return text
}

func (l english) cron(e *expression) string {
	text := l.time(e) + ", " + l.days(e)
	if month := e.fields[4]; !month.open() {
		text += ", in " + l.list(month, func(v int) string { return englishMonths[v] })
	}
	if year := e.fields[6]; !year.open() {
		text += ", in " + l.years(year)
	}
	return text
}

// time describes the fields up to the hour, the smallest first: "every 5 minutes of hours 9 to 17", "at second 30 of
// every minute".
func (l english) time(e *expression) string {
	if clocks := e.clocks(); clocks != nil {
		return "at " + l.and(clocks)
	}
	fields := e.fields[:3]
	if fields[0].isZero() {
		fields = fields[1:]
	}
	var text strings.Builder
	chosen := false // the field before picks values, so "of every" must follow
	for i, f := range fields {
		name, step := f.unit.name, f.items[0].step
		switch f.shape() {
		case each:
			if i == 0 {
				text.WriteString("every " + name)
			} else if chosen {
				text.WriteString(" of every " + name)
			}
			chosen = false
		case stepping:
			if i == 0 {
				fmt.Fprintf(&text, "every %d %ss", step, name)
			} else {
				fmt.Fprintf(&text, " of every %s %s", ordinal(step), name)
			}
			chosen = false
		case listed:
			if i == 0 {
				text.WriteString("at ")
			} else {
				text.WriteString(" of ")
			}
			text.WriteString(l.numbers(f))
			chosen = true
		}
	}
	return text.String()
}

// numbers describes a listed field of the clock: "minutes 0, 15 and 30 to 40", "every 7th minute from 0 to 59".
func (l english) numbers(f *field) string {
	name := func(v int) string { return fmt.Sprint(v) }
	if it := f.items[0]; len(f.items) == 1 && it.count > it.step && it.step > 1 {
		return l.run(f, it, f.unit.name, "", name)
	}
	text := f.unit.name
	if len(f.values()) > 1 {
		text += "s"
	}
	return text + " " + l.list(f, name)
}

func (l english) days(e *expression) string {
	month, week := e.fields[3], e.fields[5]
	switch {
	case month.open() && week.open():
		return "every day"
	case week.open():
		return "on " + l.daysOfMonth(month)
	case month.open():
		return "on " + l.daysOfWeek(week)
	}
	return "on " + l.daysOfMonth(month) + " or on " + l.daysOfWeek(week) + " (either counts)"
}

func (l english) years(f *field) string {
	var list []string
	for _, it := range f.items {
		list = append(list, l.run(f, it, "", "", func(v int) string { return fmt.Sprint(v) }))
		if it.step > 1 && it.count > it.step {
			list[len(list)-1] = fmt.Sprintf("every %s year from %d to %d", ordinal(it.step), it.from, it.lastOf(f.unit))
		}
	}
	return l.and(list)
}

func (l english) daysOfMonth(f *field) string {
	var list []string
	for _, it := range f.items {
		switch it.kind {
		case lastDay:
			switch it.from {
			case 0:
				list = append(list, "the last day")
			case 1:
				list = append(list, "the last day but one")
			default:
				list = append(list, fmt.Sprintf("the %s day before the last", ordinal(it.from)))
			}
		case lastWorkday:
			list = append(list, "the last weekday")
		case nearWorkday:
			list = append(list, fmt.Sprintf("the weekday nearest to day %d", it.from))
		default:
			list = append(list, l.run(f, it, "day", "days", func(v int) string { return fmt.Sprint(v) }))
		}
	}
	return l.and(list) + " of the month"
}

func (l english) daysOfWeek(f *field) string {
	name := func(v int) string { return englishDays[v] }
	var list []string
	for _, it := range f.items {
		switch it.kind {
		case lastOfWeek:
			list = append(list, "the last "+name(it.from)+" of the month")
		case nthOfWeek:
			list = append(list, "the "+ordinal(it.nth)+" "+name(it.from)+" of the month")
		default:
			list = append(list, l.run(f, it, "", "", name))
		}
	}
	return l.and(list)
}

// list describes the runs of a field.
func (l english) list(f *field, name func(int) string) string {
	var list []string
	for _, it := range f.items {
		list = append(list, l.run(f, it, "", "", name))
	}
	return l.and(list)
}

// run describes one run; one and many go before a single number and a range.
func (l english) run(f *field, it item, one, many string, name func(int) string) string {
	spaced := func(noun, text string) string { return strings.TrimSpace(noun + " " + text) }
	to := it.to(f.unit)
	switch {
	case it.count <= it.step:
		return spaced(one, name(it.from))
	case it.step > 1 && f.unit.names != nil:
		var names []string // few enough to be named
		it.each(f.unit, func(v int) { names = append(names, name(v)) })
		return l.and(names)
	case it.step > 1:
		return fmt.Sprintf("every %s from %s to %s", spaced(ordinal(it.step), one), name(it.from), name(it.lastOf(f.unit)))
	}
	return spaced(many, name(it.from)+" to "+name(to))
}

func (l english) every(months, days, seconds int64) string {
	var list []string
	parts(months, days, seconds, func(i int, n int64) {
		if n == 1 {
			list = append(list, "1 "+englishUnits[i])
		} else {
			list = append(list, fmt.Sprintf("%d %ss", n, englishUnits[i]))
		}
	})
	if len(list) == 1 {
		return "every " + strings.TrimPrefix(list[0], "1 ")
	}
	return "every " + l.and(list)
}

func (l english) counted(every string, times int64, anchor string, anchorIsFirst bool) string {
	switch {
	case times == 1:
		every += ", once"
	case times > 1:
		every += fmt.Sprintf(", %d times", times)
	}
	if anchorIsFirst {
		return every + ", first at " + anchor
	}
	return every + ", counted from " + anchor
}

func (l english) afterEnd(every string) string {
	return every + ", counted from the end of the last run"
}

func (l english) once(at string) string { return "once, at " + at }

func (l english) policies(gap Gap, overlap Overlap) (notes []string) {
	switch gap {
	case GapBefore:
		notes = append(notes, "a time that clocks skip is due just before the gap")
	case GapSkip:
		notes = append(notes, "a time that clocks skip is not due")
	}
	switch overlap {
	case OverlapSecond:
		notes = append(notes, "a time that occurs twice is due the second time")
	case OverlapBoth:
		notes = append(notes, "a time that occurs twice is due both times")
	}
	return notes
}

func (l english) forward(s skipped) string {
	text, exist, fall := s.first, " does not exist", " and falls together with "
	switch {
	case s.count == 2:
		text += " and " + s.last
	case s.count > 2:
		text += " to " + s.last
	}
	if s.count > 1 {
		exist, fall = " do not exist", " and fall together with "
	}
	text = "clocks go forward: " + text + exist
	switch {
	case s.with != "":
		return text + fall + s.with
	case s.count > 1:
		return text + " and become one"
	}
	return text
}

func (l english) back(clock string, pass int) string {
	which := [...]string{1: "first", 2: "second"}
	return "clocks go back: " + clock + " occurs twice, this is the " + which[pass] + " time"
}

func (l english) dialects() string {
	return "day-of-week: in crontab, which this is, 1 is Monday; in Quartz, which writes ? in one day field, 1 is Sunday"
}

func (l english) and(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}

func ordinal(n int) string {
	suffix := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n, suffix)
}
