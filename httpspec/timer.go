package httpspec

import (
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// A job's settings have times where a timer may have durations from now. What they lose is stored in tags, which are
// believed as long as they still lead to the job's schedule.

// timerParts are the names of a timer's texts, which are also those of their tags.
var timerParts = []struct {
	name string
	of   func(*schedule.Timer) *string
}{
	{"dueTime", func(t *schedule.Timer) *string { return &t.DueTime }},
	{"period", func(t *schedule.Timer) *string { return &t.Period }},
	{"ttl", func(t *schedule.Timer) *string { return &t.TTL }},
}

// timerOf returns a timer for a schedule that was set at a time, with times in its zone. None is the zero timer: once,
// now.
func timerOf(p *kernel.Policy, set time.Time) (t schedule.Timer) {
	local := func(at time.Time) string {
		if s, err := schedule.Parse(schedule.Spec{Expr: "@daily", Zone: p.Zone}); err == nil {
			at = s.In(at)
		}
		return at.Format(time.DateTime)
	}
	now, _ := schedule.Timer{}.Spec(set, "") // it cannot be invalid
	at, err := time.Parse(time.RFC3339Nano, p.Schedule)
	switch {
	case p.Schedule == "":
		t.DueTime, t.Period = "0s", schedule.External
	case err == nil:
		t.DueTime, t.Period = local(at), "0s"
	case p.Schedule != now.Expr:
		t.DueTime, t.Period = "0s", p.Schedule
		if !p.First.IsZero() {
			t.DueTime = local(p.First)
		}
	}
	if !p.End.IsZero() {
		t.TTL = days(p.End.Sub(set).Round(time.Second))
	}
	return t
}

// days formats a duration in the words of the seed: 5d3s.
func days(d time.Duration) string {
	const day = 24 * time.Hour
	text := (d % day).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	if d < day {
		return text
	}
	return strings.TrimSuffix(strings.TrimSuffix((d/day*time.Hour).String(), "0m0s"), "h") + "d" + map[bool]string{false: text}[d%day == 0]
}

// given returns tags for the texts of a timer that its settings would not lead to.
func given(t, stored schedule.Timer) (tags []string) {
	for _, part := range timerParts {
		// A ttl is always stored: that of the settings counts from when the job is written, which is not yet known.
		if text := *part.of(&t); text != *part.of(&stored) || part.name == "ttl" && text != "" {
			tags = append(tags, part.name+"="+text)
		}
	}
	return tags
}

// timer returns the timer of a job, as it was given if that is still what it does.
func timer(d *kernel.Definition) schedule.Timer {
	stored := timerOf(&d.Policy, d.Anchor)
	text := stored
	for _, tag := range d.Policy.Tags {
		for _, part := range timerParts {
			if v, is := strings.CutPrefix(tag, part.name+"="); is {
				*part.of(&text) = v
			}
		}
	}
	spec, err := text.Spec(d.Anchor, d.Policy.Zone)
	if err != nil || !near(spec.Due, d.Policy.First) || !near(spec.End, d.Policy.End) {
		return stored
	}
	one, oneErr := time.Parse(time.RFC3339Nano, spec.Expr)
	other, otherErr := time.Parse(time.RFC3339Nano, d.Policy.Schedule)
	if spec.Expr != d.Policy.Schedule && (oneErr != nil || otherErr != nil || !near(one, other)) {
		return stored
	}
	return text
}

// near reports whether two times differ by no more than it takes to store a job, with a difference between clocks.
func near(a, b time.Time) bool { return a.Sub(b).Abs() < time.Minute }
