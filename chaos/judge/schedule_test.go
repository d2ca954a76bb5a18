package judge

import (
	"strings"
	"testing"
	"time"
)

// Due times as a person would write them down from a calendar: Friday, the first of January 2027 is in it.
func TestDueTimes(t *testing.T) {
	begin := time.Date(2026, 12, 31, 23, 59, 57, 500, time.UTC)
	for _, tt := range []struct {
		spec Spec
		span time.Duration
		want string // times of day, in UTC
	}{
		{Spec{Schedule: "* * * * * *"}, 3 * time.Second, "23:59:58 23:59:59 00:00:00"},
		{Spec{Schedule: "*/2 * * * * *"}, 5 * time.Second, "23:59:58 00:00:00 00:00:02"},
		{Spec{Schedule: "0 0 1 1 *"}, time.Minute, "00:00:00"},
		{Spec{Schedule: "0 0 1 2 *"}, time.Minute, ""},
		{Spec{Schedule: "10-30/10,45 * * * * 5"}, time.Minute, "00:00:10 00:00:20 00:00:30 00:00:45"},
		{Spec{Schedule: "50/3 59 23 * * *"}, time.Minute, "23:59:59"},
		{Spec{Schedule: "0 * * * * 4"}, time.Hour, ""},
		{Spec{Schedule: "0 30 1 * * *", Zone: "Europe/Berlin"}, time.Hour, "00:30:00"},
		{Spec{Schedule: "* * * * * *", Start: begin.Add(2 * time.Second).Truncate(time.Second), End: begin.Add(3 * time.Second)}, time.Hour, "23:59:59 00:00:00"},
		{Spec{Schedule: "@every 20s", Start: begin.Add(-30 * time.Second).Truncate(time.Second)}, time.Minute, "00:00:07 00:00:27 00:00:47"},
		{Spec{}, time.Hour, ""},
	} {
		times, err := dueTimes(&tt.spec, begin, begin.Add(tt.span))
		var got []string
		for _, d := range times {
			got = append(got, d.Format(time.TimeOnly))
		}
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("%q in %q: %v, %v; want %s", tt.spec.Schedule, tt.spec.Zone, got, err, tt.want)
		}
	}
	for _, text := range []string{"* * * *", "60 * * * * *", "a * * * * *", "5-1 * * * * *", "*/0 * * * * *", "0 0 0 1 * 1", "@every 1h", "@every 1ms", "0 0 0 L * ?"} {
		if _, err := dueTimes(&Spec{Schedule: text}, begin, begin.Add(time.Minute)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
	// Clock changes of a zone are out of scope here.
	summer := time.Date(2027, 3, 28, 0, 0, 0, 0, time.UTC)
	if _, err := dueTimes(&Spec{Schedule: "* * * * *", Zone: "Europe/Berlin"}, summer, summer.Add(2*time.Hour)); err == nil {
		t.Error("the judge thinks that it knows what a gap means")
	}
}

// What may hold at a time, while operations are under way, refused, or of unknown outcome.
func TestTimeline(t *testing.T) {
	l := lived(1)
	old, changed, later := &Spec{Key: "a", Schedule: "1"}, &Spec{Key: "a", Schedule: "2"}, &Spec{Key: "a", Schedule: "3"}
	op := func(what, outcome string, from, to int, s *Spec) *Op {
		return &Op{What: what, Outcome: outcome, Invoked: l.at(time.Duration(from) * time.Second), Returned: l.at(time.Duration(to) * time.Second), Spec: s}
	}
	holds := func(tl *timeline, second int) (all string) {
		at := l.at(time.Duration(second) * time.Second).Wall
		for _, s := range tl.may(at, 0) {
			all += s.Schedule
		}
		surely, pause, _ := tl.silent(at, 0)
		switch {
		case surely:
			all += " paused"
		case pause:
			all += " perhaps paused"
		}
		return all
	}
	for _, tt := range []struct {
		ops  []*Op
		want string // at 1, 5, 15, 25 and 35
	}{
		{nil, "1|1|1|1|1"},
		{[]*Op{op(Edit, OK, 3, 7, changed)}, "1|12|2|2|2"},
		{[]*Op{op(Edit, Refused, 3, 7, changed)}, "1|1|1|1|1"},
		{[]*Op{op(Edit, Unknown, 3, 7, changed)}, "1|12|12|12|12"},
		{[]*Op{op(Edit, Unknown, 3, 7, changed), op(Edit, OK, 20, 30, later)}, "1|12|12|123|23"},
		{[]*Op{op(Edit, OK, 3, 7, changed), op(Edit, OK, 20, 30, later)}, "1|12|2|23|3"},
		{[]*Op{op(Edit, Unknown, -90, -80, changed), op(Edit, OK, 3, 7, later)}, "12|123|3|3|3"},
		{[]*Op{op(Edit, OK, 3, 7, changed), op(Edit, OK, 4, 6, later)}, "1|123|23|23|23"},
		{[]*Op{op(Pause, OK, 3, 7, nil), op(Resume, OK, 4, 6, nil)}, "1|1 perhaps paused|1 perhaps paused|1 perhaps paused|1 perhaps paused"},
		{[]*Op{op(Pause, OK, 3, 7, nil)}, "1|1 perhaps paused|1 paused|1 paused|1 paused"},
		{[]*Op{op(Pause, OK, 3, 7, nil), op(Resume, OK, 20, 30, nil)}, "1|1 perhaps paused|1 paused|1 perhaps paused|1"},
		{[]*Op{op(Pause, Unknown, 3, 7, nil)}, "1|1 perhaps paused|1 perhaps paused|1 perhaps paused|1 perhaps paused"},
		{[]*Op{op(Pause, OK, 3, 7, nil), op(Resume, Unknown, 20, 22, nil)}, "1|1 perhaps paused|1 paused|1 perhaps paused|1 perhaps paused"},
	} {
		tl := &timeline{key: "a", first: old, ops: tt.ops}
		tl.settle()
		var got []string
		for _, second := range []int{1, 5, 15, 25, 35} {
			got = append(got, holds(tl, second))
		}
		if s := strings.Join(got, "|"); s != tt.want {
			t.Errorf("%d operations: %s, want %s", len(tt.ops), s, tt.want)
		}
	}
}
