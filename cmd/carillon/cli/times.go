package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// span formats a duration by its two largest units, or one if it is long.
func span(d time.Duration) string {
	d = max(d, -d)
	switch {
	case d < time.Millisecond:
		return "<1ms"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return units(int(d.Minutes()), "m", int(d.Seconds())%60, "s")
	case d < 24*time.Hour:
		return units(int(d.Hours()), "h", int(d.Minutes())%60, "m")
	case d < 7*24*time.Hour:
		return units(int(d.Hours())/24, "d", int(d.Hours())%24, "h")
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

func units(a int, of string, b int, small string) string {
	if b == 0 {
		return fmt.Sprintf("%d%s", a, of)
	}
	return fmt.Sprintf("%d%s%d%s", a, of, b, small)
}

// ago formats t relative to now.
func (p *page) ago(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	d := t.Sub(p.now)
	switch {
	case d > -time.Second && d < time.Second:
		return "now"
	case d < 0:
		return span(d) + " ago"
	}
	return "in " + span(d)
}

// moment formats a time in full and relative to now.
func (p *page) moment(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s)", t.Local().Format("Mon 2006-01-02 15:04:05 -07:00"), p.ago(t))
}

// in formats a time in a job's time zone, with a remark on clock changes. It does not need the machine's zone data.
func in(t time.Time, j *api.Job) string {
	spec := schedule.Spec{Expr: value(j.Schedule), Zone: value(j.Zone), Anchor: j.Created, Key: "default/" + string(j.Key)}
	err := errors.Join(spec.Gap.UnmarshalText([]byte(value(j.Gap))), spec.Overlap.UnmarshalText([]byte(value(j.Twice))))
	when, parseErr := schedule.Parse(spec)
	if err != nil || parseErr != nil {
		return t.UTC().Format("Mon 2006-01-02 15:04:05 -07:00")
	}
	text := when.In(t).Format("Mon 2006-01-02 15:04:05 -07:00")
	if remark := when.Remark(t); remark != "" {
		text += "   " + remark
	}
	return text
}

// value returns what p points to, or the zero value.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

var (
	daysAhead = regexp.MustCompile(`^(\d{1,4})(d|w)$`)
	withT     = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T`)
	clockTime = regexp.MustCompile(`^([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?$`)
)

// momentHelp lists the forms of a future time.
const momentHelp = "2h, 3d, 18:00, tomorrow, monday, 'monday 09:30', 2026-12-01, '2026-12-01 09:00' (all in local time), or RFC 3339"

// readMoment parses a future time. A day without a time of day begins at midnight; the name of a weekday is its next
// one after today.
func readMoment(flag, text string, now time.Time) (time.Time, error) {
	wrong := func() (time.Time, error) {
		return time.Time{}, kernel.Invalid("invalid %s %.40q: want %s", flag, text, momentHelp)
	}
	t, _, ok := momentOf(strings.Join(strings.Fields(text), " "), now)
	if !ok {
		return wrong()
	}
	if !t.After(now) {
		return time.Time{}, kernel.Invalid("%s %s: that was %s, %s ago", flag, text, t.Format("Mon 2006-01-02 15:04:05 -07:00"), span(now.Sub(t)))
	}
	return t, nil
}

// momentOf parses a time. wall is set if the text has no offset from UTC and is no duration.
func momentOf(text string, now time.Time) (t time.Time, wall, ok bool) {
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(d), false, d > 0
	}
	if m := daysAhead.FindStringSubmatch(strings.ToLower(text)); m != nil {
		n, _ := strconv.Atoi(m[1])
		if m[2] == "w" {
			n *= 7
		}
		return now.AddDate(0, 0, n), false, n > 0
	}
	// Strict: time.Parse accepts too much.
	if t.UnmarshalText([]byte(text)) == nil {
		return t, false, true
	}
	if withT.MatchString(text) {
		text = strings.Replace(text, "T", " ", 1)
	}
	day, clock, timed := strings.Cut(text, " ")
	if clockTime.MatchString(day) && !timed { // today, or tomorrow if that has passed
		t := at(now, 0, day)
		if !t.After(now) {
			t = at(now, 1, day)
		}
		return t, true, true
	}
	if timed && !clockTime.MatchString(clock) {
		return t, false, false
	}
	if !timed {
		clock = "00:00"
	}
	if date, err := time.ParseInLocation(time.DateOnly, day, now.Location()); err == nil {
		return at(date, 0, clock), true, true
	}
	switch day = strings.ToLower(day); day {
	case "today":
		return at(now, 0, clock), true, timed
	case "tomorrow":
		return at(now, 1, clock), true, true
	}
	for n := 1; n <= 7; n++ {
		if name := strings.ToLower(now.AddDate(0, 0, n).Weekday().String()); day == name || day == name[:3] {
			return at(now, n, clock), true, true
		}
	}
	return t, false, false
}

// at returns a time of day, days after the day of t.
func at(t time.Time, days int, clock string) time.Time {
	m := clockTime.FindStringSubmatch(clock)
	hour, _ := strconv.Atoi(m[1])
	minute, _ := strconv.Atoi(m[2])
	second, _ := strconv.Atoi(m[3])
	on := func(in *time.Location) time.Time {
		return time.Date(t.Year(), t.Month(), t.Day()+days, hour, minute, second, 0, in)
	}
	return onClocks(on(t.Location()), on(time.UTC))
}

// onClocks returns the instant of a time on clocks, which t was made for: the first of two, or if clocks skip it, the
// first one after the gap, as for schedules. want is that time in UTC.
func onClocks(t, want time.Time) time.Time {
	begin, end := t.ZoneBounds()
	switch shown := clockOf(t, time.UTC); {
	case shown.Before(want):
		return end
	case shown.After(want):
		return begin
	}
	_, before := begin.Add(-1).Zone()
	_, after := t.Zone()
	if back := time.Duration(before-after) * time.Second; !begin.IsZero() && t.Sub(begin) < back {
		return t.Add(-back)
	}
	return t
}

// clockOf returns the instant at which clocks in a location show what those of t show.
func clockOf(t time.Time, in *time.Location) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, in)
}

// other returns the second instant at which clocks show the time of t, if clocks that go back show it twice.
func other(t time.Time) (second time.Time, twice bool) {
	_, end := t.ZoneBounds()
	if end.IsZero() {
		return t, false
	}
	_, before := t.Zone()
	_, after := end.Zone()
	back := time.Duration(before-after) * time.Second
	return t.Add(back), back > 0 && end.Sub(t) <= back
}

// wallText writes a time without an offset for a setting: on the clocks of the job's zone, which have other gaps than
// the local ones. The server knows what a day without a time of day means.
func wallText(text string, now time.Time) string {
	t, _, _ := momentOf(text, clockOf(now, time.UTC))
	if !strings.Contains(text, ":") {
		return t.Format(time.DateOnly)
	}
	return t.Format("2006-01-02T15:04:05")
}

// futureMoment is readMoment, with a remark if the time occurs twice.
func (a *asker) futureMoment(flag, text string) (time.Time, error) {
	t, err := readMoment(flag, text, a.Now())
	if _, wall, _ := momentOf(text, a.Now()); err != nil || !wall {
		return t, err
	}
	if second, twice := other(t); twice {
		a.remark("%s %s occurs twice: the first time, %s, is taken; for the second, give %s", flag, text, t.Format(time.RFC3339), second.Format(time.RFC3339))
	}
	return t, nil
}

// readSpan parses a duration; a day has 24 hours, a week 7 days.
func readSpan(flag, text string) (time.Duration, error) {
	if m := daysAhead.FindStringSubmatch(strings.ToLower(text)); m != nil {
		n, _ := strconv.Atoi(m[1])
		if m[2] == "w" {
			n *= 7
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, kernel.Invalid("invalid %s %.40q: want a duration such as 90s, 1h30m or 7d", flag, text)
	}
	return d, nil
}
