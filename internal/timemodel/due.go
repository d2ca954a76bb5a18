package timemodel

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Spec is the settings of a job that shape its due times and decide about them, defaults included.
type Spec struct {
	Schedule, Zone    string
	Start, End, First time.Time
	TTL               time.Duration
	Gap, Twice        string
	Calendars         []string

	Misfire     string
	Early       time.Duration
	Disabled    bool
	StartWithin time.Duration
}

// sameTimes reports whether two specs have the same due times.
func (s *Spec) sameTimes(o *Spec) bool {
	return s.Schedule == o.Schedule && s.Zone == o.Zone && s.Start.Equal(o.Start) && s.End.Equal(o.End) && s.First.Equal(o.First) &&
		s.TTL == o.TTL && s.Gap == o.Gap && s.Twice == o.Twice && strings.Join(s.Calendars, " ") == strings.Join(o.Calendars, " ")
}

// plan is a schedule that was set at a time, with what it counts from.
type plan struct {
	Spec
	anchor, ttlFrom time.Time
	ended           time.Time // when the last run ended, of a schedule that counts from that
}

// dues returns the due times in (after, until], in order.
func (p *plan) dues(after, until time.Time) (list []time.Time) {
	for _, due := range p.unlimited(after, until) {
		end := p.End
		if lives := latest(p.Start, p.ttlFrom).Add(p.TTL); p.TTL > 0 && (end.IsZero() || lives.Before(end)) {
			end = lives
		}
		if due.After(after) && !due.After(until) && !due.Before(p.Start) && (end.IsZero() || !due.After(end)) {
			list = append(list, due.UTC())
		}
	}
	return list
}

func (p *plan) unlimited(after, until time.Time) []time.Time {
	text := p.Schedule
	switch {
	case text == "":
		return nil
	case text == "@hourly":
		return p.cron("0 0 * * * *", after, until)
	case strings.Count(text, " ") == 4, strings.Count(text, " ") == 5:
		return p.cron(text, after, until)
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return []time.Time{at}
	}
	if wall, err := time.Parse(time.DateTime, text); err == nil {
		return []time.Time{shown(wall, place(p.Zone))}
	}
	return p.interval(text, until)
}

// shown is when the clocks of a zone first show a wall time, or a later one.
func shown(wall time.Time, zone *time.Location) time.Time {
	for at := wall.Add(-24 * time.Hour); ; at = at.Add(time.Second) {
		if _, offset := at.In(zone).Zone(); !at.Add(time.Duration(offset) * time.Second).Before(wall) {
			return at
		}
	}
}

// interval counts from the first due time, which is due, or else from the start, else from when the schedule was set.
func (p *plan) interval(text string, until time.Time) (list []time.Time) {
	from, k, times := latest(p.anchor, time.Time{}), 1, 1<<30
	switch {
	case p.afterEnd() && !p.ended.IsZero():
		from = p.ended
	case !p.First.IsZero():
		from, k = p.First, 0
	case !p.Start.IsZero():
		from = p.Start
	}
	text = strings.TrimPrefix(strings.TrimSuffix(text, " after end"), "@every ")
	if count, period, is := strings.Cut(text, "/"); is {
		n, err := strconv.Atoi(strings.TrimPrefix(count, "R"))
		must(err)
		text, times = period, n
	}
	local := from.In(place(p.Zone))
	for n := 0; n < times; n++ {
		due := from
		if days, is := strings.CutPrefix(text, "P"); k+n == 0 {
		} else if is && strings.HasSuffix(days, "D") {
			step, err := strconv.Atoi(strings.TrimSuffix(days, "D"))
			must(err)
			due = local.AddDate(0, 0, (k+n)*step)
		} else {
			step, err := time.ParseDuration(strings.ToLower(strings.TrimPrefix(text, "PT")))
			must(err)
			due = from.Add(time.Duration(k+n) * step)
		}
		if due.After(until) {
			break
		}
		list = append(list, due)
	}
	return list
}

func (p *plan) afterEnd() bool { return strings.HasSuffix(p.Schedule, " after end") }

// cron looks at each second.
func (p *plan) cron(text string, after, until time.Time) (list []time.Time) {
	if strings.Count(text, " ") == 4 {
		text = "0 " + text
	}
	e, zone := readCron(text), place(p.Zone)
	for at := after.Truncate(time.Second); !at.After(until); at = at.Add(time.Second) {
		local := at.In(zone)
		due := e.matches(local)
		if e.fixed {
			due = due && p.ofPass(local) || p.ofGap(e, local)
		}
		if due {
			list = append(list, at)
		}
	}
	return list
}

// ofPass reports whether a fixed time that comes twice, because clocks are set back, is due this time.
func (p *plan) ofPass(local time.Time) bool {
	_, offset := local.Zone()
	for _, near := range []time.Duration{-3 * time.Hour, 3 * time.Hour} {
		_, other := local.Add(near).Zone()
		again := local.Add(time.Duration(offset-other) * time.Second)
		if _, o := again.Zone(); other == offset || o != other {
			continue // it comes once
		}
		switch first := local.Before(again); p.Twice {
		case "both":
		case "second":
			return !first
		default:
			return first
		}
	}
	return true
}

// ofGap reports whether a fixed time that does not exist, because clocks are set forward, is due at this time instead.
func (p *plan) ofGap(e *expression, local time.Time) bool {
	end := local // the first second after the gap
	switch p.Gap {
	case "skip":
		return false
	case "before":
		end = local.Add(time.Second)
	}
	_, after := end.Zone()
	_, before := end.Add(-time.Second).Zone()
	for n := range after - before {
		if e.matches(end.Add(time.Duration(-1-n) * time.Second).In(time.FixedZone("", after))) {
			return true
		}
	}
	return false
}

// expression is cron of six fields: numbers, ranges, steps and lists.
type expression struct {
	fields [6]map[int]bool
	fixed  bool // its hour and its minute are plain numbers
}

func (e *expression) matches(at time.Time) bool {
	for i, n := range []int{at.Second(), at.Minute(), at.Hour(), at.Day(), int(at.Month()), int(at.Weekday())} {
		if !e.fields[i][n] {
			return false
		}
	}
	return true
}

func readCron(text string) *expression {
	e := &expression{fixed: true}
	for i, field := range strings.Fields(text) {
		low, high := []int{0, 0, 0, 1, 1, 0}[i], []int{59, 59, 23, 31, 12, 6}[i]
		e.fields[i] = map[int]bool{}
		if (i == 1 || i == 2) && strings.ContainsAny(field, "*-/") {
			e.fixed = false
		}
		for _, item := range strings.Split(field, ",") {
			span, by, stepped := strings.Cut(item, "/")
			step, from, to := 1, low, high
			if stepped {
				step = number(by)
			}
			if span != "*" {
				a, b, ranged := strings.Cut(span, "-")
				if from = number(a); ranged {
					to = number(b)
				} else if !stepped {
					to = from
				}
			}
			for n := from; n <= to; n += step {
				e.fields[i][n] = true
			}
		}
	}
	return e
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	must(err)
	return n
}

// must ends a test whose life has a schedule that the model does not read.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("the model reads no such schedule: %v", err))
	}
}

func place(zone string) *time.Location {
	l, err := time.LoadLocation(zone)
	must(err)
	return l
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
