package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Calendar is a checked set of times at which jobs are not due. It is immutable and safe for concurrent use.
//
// A rule is one line: days, times of day, or both; what follows a # is a note.
//
//	2026-12-24                a day
//	2026-12-24..2027-01-06    days, the last one included
//	12-25                     a day of every year
//	12-24..01-06              days of every year
//	easter-2                  a day of every year, by its distance from Easter Sunday
//	SAT,SUN  MON-FRI          days of the week
//	22:00-06:00               times of day, the last one not included
//	SAT 00:00-12:00           times of these days; 22:00-06:00 ends on the day after
type Calendar struct {
	name    string
	now     ruleSet
	earlier []formerly
}

type ruleSet struct {
	zone  *zone
	rules []exclusion
}

// formerly is the rules of a calendar up to an edit.
type formerly struct {
	ruleSet
	until time.Time
}

// exclusion is one rule: days, and from when to when on them.
type exclusion struct {
	text      string
	days      dayKind
	from, to  int // days since 1970, or month*32+day, or from Easter
	week      uint8
	low, high int // seconds of the day; high <= low: until high on the day after
}

type dayKind uint8

const (
	anyDay dayKind = iota
	dates
	yearly
	easter
	weekdays
)

// ParseCalendar checks rules as users write them. It reports errors as an *[Error], whose field is "rule 3" or "zone".
func ParseCalendar(name, zone string, rules []string) (*Calendar, error) {
	set, err := readRules(zone, rules)
	if err != nil {
		return nil, err
	}
	return &Calendar{name: name, now: set}, nil
}

// WithEarlier returns the calendar with the rules that it had until an edit, which are those of another calendar.
func (c *Calendar) WithEarlier(until time.Time, earlier *Calendar) *Calendar {
	return &Calendar{name: c.name, now: c.now, earlier: append(slices.Clone(c.earlier), formerly{earlier.now, until})}
}

// Name returns the name that jobs use.
func (c *Calendar) Name() string { return c.name }

// Excludes returns the rule that excludes a time, if any, and until when at least everything is excluded. A time before
// an edit of the calendar is also excluded if the earlier rules excluded it: it was no due time then, and an edit does
// not make it one.
func (c *Calendar) Excludes(at time.Time) (rule string, until time.Time, is bool) {
	if rule, until, is = c.now.excludes(at); is {
		return rule, until, true
	}
	for _, e := range c.earlier {
		if !at.After(e.until) {
			if rule, _, is = e.excludes(at); is {
				return rule, at, true
			}
		}
	}
	return "", time.Time{}, false
}

func (s *ruleSet) excludes(at time.Time) (rule string, until time.Time, is bool) {
	if len(s.rules) == 0 {
		return "", time.Time{}, false
	}
	local := s.zone.local(at.Unix())
	day, clock := int(local/daySeconds), int(local%daySeconds)
	for i := range s.rules {
		r := &s.rules[i]
		if end := r.end(day, clock); end > 0 {
			return r.text, time.Unix(s.zone.resolve(int64(day)*daySeconds+int64(end)), 0).UTC(), true
		}
	}
	return "", time.Time{}, false
}

// end returns the second of the day at which the current range of the rule ends, or 0 outside of its range. It may be
// on the next day.
func (r *exclusion) end(day, clock int) int {
	if r.high > r.low {
		if clock >= r.low && clock < r.high && r.on(day) {
			return r.high
		}
		return 0
	}
	switch {
	case clock >= r.low && r.on(day):
		return r.high + daySeconds
	case clock < r.high && r.on(day-1):
		return r.high
	}
	return 0
}

// on reports whether the rule's days include a day, counted from 1970.
func (r *exclusion) on(day int) bool {
	switch r.days {
	case dates:
		return day >= r.from && day <= r.to
	case weekdays:
		return r.week>>((day+4)%7)&1 != 0
	case yearly:
		_, m, d := dateOf(day)
		n := int(m)*32 + d
		if r.from <= r.to {
			return n >= r.from && n <= r.to
		}
		return n >= r.from || n <= r.to
	case easter:
		year, _, _ := dateOf(day - r.from)
		return day-r.from == easterSunday(year)
	}
	return true
}

func dateOf(day int) (int, time.Month, int) {
	return time.Unix(int64(day)*daySeconds, 0).UTC().Date()
}

func dayOf(t time.Time) int { return int(t.Unix() / daySeconds) }

// easterSunday returns the day of Easter in a year of the Gregorian calendar, counted from 1970, by the method of
// Meeus, Jones and Butcher (Nature, 1876).
func easterSunday(year int) int {
	a, b, c := year%19, year/100, year%100
	d, e := b/4, b%4
	g := (8*b + 13) / 25
	h := (19*a + b - d - g + 15) % 30
	i, k := c/4, c%4
	l := (32 + 2*e + 2*i - h - k) % 7
	m := (a + 11*h + 19*l) / 433
	month := (h + l - 7*m + 90) / 25
	day := (h + l - 7*m + 33*month + 19) % 32
	return dayOf(time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC))
}

// readRules reads the lines of a calendar.
func readRules(zone string, rules []string) (ruleSet, error) {
	z, err := loadZone(zone)
	if err != nil {
		return ruleSet{}, err
	}
	s := ruleSet{zone: z}
	for i, text := range rules {
		r, err := readRule(text)
		if err != nil {
			err.Field = "rule " + strconv.Itoa(i+1)
			return ruleSet{}, err
		}
		s.rules = append(s.rules, r)
	}
	return s, nil
}

func readRule(text string) (exclusion, *Error) {
	r := exclusion{text: strings.TrimSpace(text), high: daySeconds}
	said, _, _ := strings.Cut(text, "#")
	words := strings.Fields(said)
	at := func(word string) source { return source{word, strings.Index(text, word)} }
	switch {
	case len(words) == 0:
		return r, source{text, 0}.refuse("the rule is empty: write a day such as 2026-12-24, 12-25 or SAT, or times such as 22:00-06:00")
	case len(words) > 2:
		return r, at(words[2]).refuse("%s: want days, times of day, or days and times", quote(words[2]))
	}
	if !strings.Contains(words[0], ":") {
		if err := r.readDays(at(words[0])); err != nil {
			return r, err
		}
		words = words[1:]
	}
	if len(words) == 0 {
		return r, nil
	}
	if len(words) == 2 {
		return r, at(words[1]).refuse("%s: write days before times", quote(words[1]))
	}
	return r, r.readTimes(at(words[0]))
}

// readTimes reads "22:00-06:00".
func (r *exclusion) readTimes(s source) *Error {
	low, high, ok := strings.Cut(s.text, "-")
	var err *Error
	if !ok {
		return s.refuse("%s is not times of day such as 22:00-06:00", quote(s.text))
	}
	if r.low, err = clockTime(source{low, s.offset}); err != nil {
		return err
	}
	if r.high, err = clockTime(source{high, s.offset + len(low) + 1}); err != nil {
		return err
	}
	if r.low == r.high || r.low == daySeconds {
		return s.refuse("%s is an empty range of times", quote(s.text))
	}
	return nil
}

func clockTime(s source) (int, *Error) {
	h, m, ok := strings.Cut(s.text, ":")
	hour, minute := digits(h, 2), digits(m, 2)
	if !ok || hour < 0 || minute < 0 || minute > 59 || hour > 24 || hour == 24 && minute > 0 {
		return 0, s.refuse("%s is not a time of day from 00:00 to 24:00", quote(s.text))
	}
	return hour*3600 + minute*60, nil
}

// digits reads a number of exactly n digits; -1 if it is not one.
func digits(text string, n int) int {
	if len(text) != n || strings.Trim(text, "0123456789") != "" {
		return -1
	}
	v, _ := strconv.Atoi(text)
	return v
}

func (r *exclusion) readDays(s source) *Error {
	lower := strings.ToLower(s.text)
	if rest, is := strings.CutPrefix(lower, "easter"); is {
		r.days = easter
		if rest == "" {
			return nil
		}
		n := digits(strings.TrimLeft(rest, "+-"), max(1, len(rest)-1))
		if n < 0 || n > 99 || rest[0] != '+' && rest[0] != '-' {
			return s.refuse("invalid day %s: want easter+1 or easter-2", quote(s.text))
		}
		if r.from = n; rest[0] == '-' {
			r.from = -n
		}
		return nil
	}
	if s.text[0] >= '0' && s.text[0] <= '9' {
		return r.readDates(s)
	}
	f, err := daysOfWeek(s.text)
	if err != nil {
		return s.refuse("invalid day %s: want 2026-12-24, 2026-12-24..2027-01-06, 12-25, 12-24..01-06, easter+1, SAT,SUN or MON-FRI", quote(s.text))
	}
	r.days, r.week = weekdays, f
	return nil
}

// daysOfWeek reads "SAT,SUN" or "FRI-MON" as a set of days.
func daysOfWeek(text string) (set uint8, err error) {
	index := func(name string) int {
		for i, n := range dayNames {
			if strings.EqualFold(n, name) {
				return i
			}
		}
		return -1
	}
	for item := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(item, "-")
		if !isRange {
			last = first
		}
		i, j := index(first), index(last)
		if i < 0 || j < 0 {
			return 0, fmt.Errorf("no day %q", item)
		}
		for ; i != j; i = (i + 1) % 7 {
			set |= 1 << i
		}
		set |= 1 << j
	}
	return set, nil
}

// readDates reads a day or days, of a year or of every year.
func (r *exclusion) readDates(s source) *Error {
	first, last, isRange := strings.Cut(s.text, "..")
	if !isRange {
		last = first
	}
	if len(first) != len(last) {
		return s.refuse("%s: give both ends a year, or none", quote(s.text))
	}
	var err *Error
	if r.from, r.days, err = date(source{first, s.offset}); err != nil {
		return err
	}
	if r.to, _, err = date(source{last, s.offset + len(s.text) - len(last)}); err != nil {
		return err
	}
	if r.days == dates && r.to < r.from {
		return s.refuse("%s runs backwards", quote(s.text))
	}
	return nil
}

// date reads 2026-12-24 as a day counted from 1970, or 12-25 as month*32+day.
func date(s source) (int, dayKind, *Error) {
	parts := strings.Split(s.text, "-")
	year := 2000 // has a 29 February
	if len(parts) == 3 {
		year, parts = digits(parts[0], 4), parts[1:]
	}
	if len(parts) != 2 || year < firstYear || year > lastYear {
		return 0, 0, s.refuse("%s is not a day such as 2026-12-24 or 12-25", quote(s.text))
	}
	month, day := digits(parts[0], 2), digits(parts[1], 2)
	if month < 1 || month > 12 || day < 1 || day > monthLength(year, month) {
		return 0, 0, s.refuse("%s is not a day of the calendar", quote(s.text))
	}
	if len(s.text) < len("2026-12-24") {
		return month*32 + day, yearly, nil
	}
	return dayOf(time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)), dates, nil
}
