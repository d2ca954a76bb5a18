package judge

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The judge's own reading of schedules. It is slow and short on purpose: a due time is a second of which every field
// matches, found by looking at each second.

// dueTimes are those of a job in [from, to], in order.
func dueTimes(s *Spec, from, to time.Time) ([]time.Time, error) {
	if s.Schedule == "" {
		return nil, nil
	}
	if !s.End.IsZero() && to.After(s.End) {
		to = s.End
	}
	if text, ok := strings.CutPrefix(s.Schedule, "@every "); ok {
		return everyTimes(text, s.Start, from, to)
	}
	if from.Before(s.Start) {
		from = s.Start
	}
	return cronTimes(s.Schedule, s.Zone, from, to)
}

// everyTimes counts steps from the start, which is not one of them.
func everyTimes(text string, start, from, to time.Time) (dues []time.Time, err error) {
	step, err := time.ParseDuration(text)
	if err != nil || step < time.Second {
		return nil, fmt.Errorf("interval %q: want whole seconds, such as 5s", text)
	}
	if start.IsZero() {
		return nil, fmt.Errorf("interval %q has no start to count from", text)
	}
	for due := start.Add(step); !due.After(to); due = due.Add(step) {
		if !due.Before(from) {
			dues = append(dues, due)
		}
	}
	return dues, nil
}

func cronTimes(text, zone string, from, to time.Time) (dues []time.Time, err error) {
	parts := strings.Fields(text)
	if len(parts) == 5 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 6 {
		return nil, fmt.Errorf("cron %q has %d fields, the judge reads 5 or 6", text, len(parts))
	}
	open := func(w string) bool { return w == "*" || w == "?" }
	if !open(parts[3]) && !open(parts[5]) {
		return nil, fmt.Errorf("cron %q names days of the month and of the week: dialects differ in what that means", text)
	}
	bounds := [6][2]int{{0, 59}, {0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}}
	var fields [6]map[int]bool
	for i, w := range parts {
		if fields[i], err = field(w, bounds[i][0], bounds[i][1]); err != nil {
			return nil, fmt.Errorf("cron %q: %w", text, err)
		}
	}
	if zone == "" {
		zone = "UTC"
	}
	place, err := time.LoadLocation(zone)
	if err != nil {
		return nil, err
	}
	_, before := from.In(place).Zone()
	if _, after := to.In(place).Zone(); before != after {
		return nil, fmt.Errorf("the clocks of %s are set between %v and %v: the judge does not know what was meant", zone, from, to)
	}
	at := from.Truncate(time.Second)
	if at.Before(from) {
		at = at.Add(time.Second)
	}
	for ; !at.After(to); at = at.Add(time.Second) {
		l := at.In(place)
		if fields[0][l.Second()] && fields[1][l.Minute()] && fields[2][l.Hour()] && fields[3][l.Day()] && fields[4][int(l.Month())] && fields[5][int(l.Weekday())] {
			dues = append(dues, at.UTC())
		}
	}
	return dues, nil
}

// field reads one field: *, numbers, ranges, steps and lists of these.
func field(text string, low, high int) (map[int]bool, error) {
	in := map[int]bool{}
	for _, part := range strings.Split(text, ",") {
		span, by, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			n, err := strconv.Atoi(by)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("%q is no step", part)
			}
			step = n
		}
		from, to := low, high
		if span != "*" && span != "?" {
			a, b, ranged := strings.Cut(span, "-")
			n, err := strconv.Atoi(a)
			if err != nil {
				return nil, fmt.Errorf("%q is no number", span)
			}
			if from = n; !stepped {
				to = n
			}
			if ranged {
				if to, err = strconv.Atoi(b); err != nil {
					return nil, fmt.Errorf("%q is no range", span)
				}
			}
		}
		if from < low || to > high || from > to {
			return nil, fmt.Errorf("%q is not within %d-%d", part, low, high)
		}
		for n := from; n <= to; n += step {
			in[n] = true
		}
	}
	return in, nil
}
