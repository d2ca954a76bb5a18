package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The oracle answers the same question as the package, slowly and obviously: it
// reads the text of an expression as it stands, and walks a clock on the wall.
// It shares no code with what it judges, not even the parser.
type oracle struct {
	location             *time.Location
	second, minute, hour map[int]bool
	month, year          map[int]bool
	dom, dow             string
	quartz, fixed        bool
	gap                  Gap
	overlap              Overlap
}

func newOracle(spec Spec) *oracle {
	location := locationOf(spec.Zone)
	f := strings.Fields(strings.ToUpper(spec.Expr))
	o := &oracle{location: location, gap: spec.Gap, overlap: spec.Overlap}
	o.quartz = len(f) == 7 || strings.Contains(spec.Expr, "?")
	if len(f) == 5 {
		f = append([]string{"0"}, f...)
	}
	if len(f) == 6 {
		f = append(f, "*")
	}
	o.second, o.minute, o.hour = numbers(f[0], 0, 59), numbers(f[1], 0, 59), numbers(f[2], 0, 23)
	o.month, o.year = numbers(f[4], 1, 12), numbers(f[6], 1970, 2199)
	o.dom, o.dow = f[3], f[5]
	o.fixed = strings.Trim(f[1]+f[2], "0123456789,") == ""
	return o
}

// locationOf is a zone of the database in this package: that of the machine may be of another edition.
func locationOf(name string) *time.Location {
	if name == "" {
		return time.UTC
	}
	location, err := readLocation(name, database()[name])
	if err != nil {
		panic(err)
	}
	return location
}

// numbers spells a list out. Months may be named.
func numbers(text string, low, high int) map[int]bool {
	for i, name := range strings.Fields("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC") {
		text = strings.ReplaceAll(text, name, strconv.Itoa(i+1))
	}
	set := map[int]bool{}
	for _, item := range strings.Split(text, ",") {
		base, by, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			step = atoi(by)
		}
		from, to := low, high
		if a, b, ranged := strings.Cut(base, "-"); ranged {
			from, to = atoi(a), atoi(b)
		} else if base != "*" && base != "" && base != "?" {
			from = atoi(base)
			if !stepped {
				to = from
			}
		}
		for v, n := from, 0; ; v, n = v+1, n+1 {
			if v > high && to < from {
				v = low
			}
			if n%step == 0 {
				set[v] = true
			}
			if v == to {
				break
			}
		}
	}
	return set
}

func atoi(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

// onDate judges the date of a wall time (which is kept as if it were UTC).
func (o *oracle) onDate(wall time.Time) bool {
	if !o.year[wall.Year()] || !o.month[int(wall.Month())] {
		return false
	}
	domOpen, dowOpen := o.dom == "*" || o.dom == "?", o.dow == "*" || o.dow == "?"
	inMonth := slices.ContainsFunc(strings.Split(o.dom, ","), func(item string) bool { return isDate(item, wall) })
	inWeek := slices.ContainsFunc(strings.Split(o.dow, ","), func(item string) bool { return o.isWeekday(item, wall) })
	if domOpen || dowOpen {
		return (domOpen || inMonth) && (dowOpen || inWeek)
	}
	return inMonth || inWeek
}

func (o *oracle) matches(wall time.Time) bool {
	h, m, s := wall.Clock()
	return o.hour[h] && o.minute[m] && o.second[s] && o.onDate(wall)
}

// isDate judges one item of the day-of-month.
func isDate(item string, day time.Time) bool {
	isLast := func(day time.Time) bool { return day.AddDate(0, 0, 1).Day() == 1 }
	switch {
	case item == "L":
		return isLast(day)
	case item == "LW":
		for d := day.AddDate(0, 0, 1); d.Month() == day.Month(); d = d.AddDate(0, 0, 1) {
			if isWorkday(d) {
				return false
			}
		}
		return isWorkday(day)
	case strings.HasPrefix(item, "L-"):
		later := day.AddDate(0, 0, atoi(item[2:]))
		return later.Month() == day.Month() && isLast(later)
	case strings.HasSuffix(item, "W"):
		want := atoi(strings.TrimSuffix(item, "W"))
		best, distance := 0, 99
		exists := false
		for d := day.AddDate(0, 0, 1-day.Day()); d.Month() == day.Month(); d = d.AddDate(0, 0, 1) {
			exists = exists || d.Day() == want
			if away := max(d.Day()-want, want-d.Day()); isWorkday(d) && away < distance {
				best, distance = d.Day(), away
			}
		}
		return exists && day.Day() == best
	}
	return numbers(item, 1, 31)[day.Day()]
}

func isWorkday(d time.Time) bool {
	return d.Weekday() != time.Saturday && d.Weekday() != time.Sunday
}

// isWeekday judges one item of the day-of-week.
func (o *oracle) isWeekday(item string, day time.Time) bool {
	sunday := 0 // what Sunday is called
	if o.quartz {
		sunday = 1
	}
	for i, name := range strings.Fields("SUN MON TUE WED THU FRI SAT") {
		item = strings.ReplaceAll(item, name, strconv.Itoa(i+sunday))
	}
	is := func(n int) bool { return (n-sunday)%7 == int(day.Weekday()) }
	switch {
	case strings.HasSuffix(item, "L"):
		return is(atoi(strings.TrimSuffix(item, "L"))) && day.AddDate(0, 0, 7).Month() != day.Month()
	case strings.Contains(item, "#"):
		n, k, _ := strings.Cut(item, "#")
		return is(atoi(n)) && (day.Day()-1)/7+1 == atoi(k)
	}
	base, by, stepped := strings.Cut(item, "/")
	step, count := 1, 7
	if stepped {
		step = atoi(by)
	}
	from := sunday
	if a, b, ranged := strings.Cut(base, "-"); ranged {
		from = atoi(a)
		count = atoi(b) - from + 1
		if atoi(b) < from { // around the end of the week
			count = ((atoi(b)-from)%7+7)%7 + 1
		}
	} else if base != "*" && base != "" && base != "?" {
		from = atoi(base)
		count = 1
		if stepped {
			count = 7 - (from-sunday)%7
		}
	}
	for i := 0; i < count; i += step {
		if is(from + i) {
			return true
		}
	}
	return false
}

// A tick is what the clock on the wall shows at an instant.
type tick struct {
	at   int64
	wall time.Time
}

// watch looks at the clock every so many seconds from one instant to another.
func watch(location *time.Location, from, to, every int64) []tick {
	var ticks []tick
	for at := from; at < to; at += every {
		local := time.Unix(at, 0).In(location)
		_, offset := local.Zone()
		ticks = append(ticks, tick{at, time.Unix(at+int64(offset), 0).UTC()})
	}
	return ticks
}

// edge is how much at either end of a view the oracle leaves aside, because it
// cannot see both passes of an overlap there.
const edge = 6 * 3600

// due lists the due times among ticks that are so many seconds apart.
func (o *oracle) due(ticks []tick, every int64) []int64 {
	set := map[int64]bool{}
	passes := map[int64][]int64{}
	for i, t := range ticks {
		if o.matches(t.wall) {
			passes[t.wall.Unix()] = append(passes[t.wall.Unix()], t.at)
		}
		if i == 0 || !o.fixed || o.gap == GapSkip {
			continue
		}
		for missing := ticks[i-1].wall.Unix() + every; missing < t.wall.Unix(); missing += every {
			if o.matches(time.Unix(missing, 0).UTC()) {
				if o.gap == GapAfter {
					set[t.at] = true
				} else {
					set[t.at-1] = true
				}
			}
		}
	}
	for _, ats := range passes {
		switch {
		case o.fixed && o.overlap == OverlapFirst:
			ats = ats[:1]
		case o.fixed && o.overlap == OverlapSecond:
			ats = ats[len(ats)-1:]
		}
		for _, at := range ats {
			set[at] = true
		}
	}
	var list []int64
	for at := range set {
		if at >= ticks[0].at+edge && at < ticks[len(ticks)-1].at-edge {
			list = append(list, at)
		}
	}
	slices.Sort(list)
	return list
}

// compare asks the schedule for the same due times and returns the first
// difference in words, or nothing.
func (o *oracle) compare(s *Schedule, ticks []tick, every int64) string {
	from, to := ticks[0].at+edge, ticks[len(ticks)-1].at-edge
	after := time.Unix(from-1, 0)
	for _, want := range o.due(ticks, every) {
		// From the due time before, and from as near as one can come.
		for _, after := range []time.Time{after, time.Unix(want-1, 0), time.Unix(want, -1)} {
			got, ok := s.Next(after)
			if !ok || got.Unix() != want || got.Nanosecond() != 0 {
				return fmt.Sprintf("after %v: got %v %v, want %v", after.In(o.location), got.In(o.location), ok, time.Unix(want, 0).In(o.location))
			}
		}
		after = time.Unix(want, 0)
	}
	if got, ok := s.Next(after); ok && got.Unix() < to {
		return fmt.Sprintf("after %v: got %v, want none before %v", after.In(o.location), got.In(o.location), time.Unix(to, 0).In(o.location))
	}
	return ""
}
