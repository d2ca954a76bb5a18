package schedule

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// walk collects due times until there are enough of them, or no more.
func walk(s *Schedule, after time.Time, most int) (list []time.Time) {
	for len(list) < most {
		due, ok := s.Next(after)
		if !ok {
			break
		}
		list = append(list, due)
		after = due
	}
	return list
}

func TestIntervals(t *testing.T) {
	day := at(t, "2026-03-28T12:00:00.25Z")
	for _, c := range []struct {
		spec  Spec
		after time.Time
		want  []string // from the day's midnight on, at most three; fewer means finished
	}{
		// The anchor itself is not due; its fraction of a second stays.
		{Spec{Expr: "@every 6h", Anchor: day}, day, []string{"2026-03-28T18:00:00.25Z", "2026-03-29T00:00:00.25Z", "2026-03-29T06:00:00.25Z"}},
		{Spec{Expr: "@every 6h", Anchor: day}, time.Time{}, []string{"2026-03-28T18:00:00.25Z", "2026-03-29T00:00:00.25Z", "2026-03-29T06:00:00.25Z"}},
		{Spec{Expr: "6h", Anchor: day}, day.Add(6*time.Hour - 1), []string{"2026-03-28T18:00:00.25Z", "2026-03-29T00:00:00.25Z", "2026-03-29T06:00:00.25Z"}},
		{Spec{Expr: "6h", Anchor: day}, day.Add(6 * time.Hour), []string{"2026-03-29T00:00:00.25Z", "2026-03-29T06:00:00.25Z", "2026-03-29T12:00:00.25Z"}},
		// Start takes the place of the anchor, and is not due either.
		{Spec{Expr: "PT1H", Anchor: day, Start: at(t, "2026-03-29T00:00:00Z")}, day, []string{"2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z", "2026-03-29T03:00:00Z"}},
		// Due is.
		{Spec{Expr: "PT1H", Anchor: day, Due: at(t, "2026-03-29T00:00:00Z")}, day, []string{"2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"}},
		{Spec{Expr: "R2/PT1H", Anchor: day, Due: at(t, "2026-03-29T00:00:00Z")}, day, []string{"2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z"}},
		{Spec{Expr: "R2/P1M", Anchor: day, Due: at(t, "2026-03-31T00:00:00Z")}, day, []string{"2026-03-31T00:00:00Z", "2026-04-30T00:00:00Z"}},
		{Spec{Expr: "R1/P1D", Anchor: day}, day, []string{"2026-03-29T12:00:00.25Z"}},
		{Spec{Expr: "R3/PT1H", Anchor: day, End: day.Add(2 * time.Hour)}, day, []string{"2026-03-28T13:00:00.25Z", "2026-03-28T14:00:00.25Z"}},
		// A day of the clock against a day of the calendar, across the 29th.
		{Spec{Expr: "1d", Zone: "Europe/Berlin", Anchor: day}, day, []string{"2026-03-29T12:00:00.25Z", "2026-03-30T12:00:00.25Z", "2026-03-31T12:00:00.25Z"}},
		{Spec{Expr: "P1D", Zone: "Europe/Berlin", Anchor: day}, day, []string{"2026-03-29T11:00:00.25Z", "2026-03-30T11:00:00.25Z", "2026-03-31T11:00:00.25Z"}},
		{Spec{Expr: "P1W", Zone: "Europe/Berlin", Anchor: day}, day, []string{"2026-04-04T11:00:00.25Z", "2026-04-11T11:00:00.25Z", "2026-04-18T11:00:00.25Z"}},
		{Spec{Expr: "P1Y", Anchor: at(t, "2024-02-29T00:00:00Z")}, day, []string{"2027-02-28T00:00:00Z", "2028-02-29T00:00:00Z", "2029-02-28T00:00:00Z"}},
		{Spec{Expr: "P1MT36H", Anchor: at(t, "2026-01-31T00:00:00Z")}, day, []string{"2026-04-03T00:00:00Z", "2026-05-04T12:00:00Z", "2026-06-06T00:00:00Z"}},
		// The gap and the overlap of Berlin.
		{Spec{Expr: "P1D", Zone: "Europe/Berlin", Anchor: at(t, "2026-03-27T01:30:00Z")}, day, []string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"}},
		{Spec{Expr: "P1M", Zone: "Europe/Berlin", Anchor: at(t, "2026-08-25T00:30:00Z")}, day, []string{"2026-09-25T00:30:00Z", "2026-10-25T00:30:00Z", "2026-11-25T01:30:00Z"}},
		// Wall times at the very edges of both.
		{Spec{Expr: "R1/P1D", Zone: "Europe/Berlin", Anchor: at(t, "2026-03-28T01:00:00Z")}, day, []string{"2026-03-29T01:00:00Z"}},
		{Spec{Expr: "R1/P1D", Zone: "Europe/Berlin", Anchor: at(t, "2026-10-24T00:00:00Z")}, day, []string{"2026-10-25T00:00:00Z"}},
		{Spec{Expr: "R1/P1D", Zone: "Europe/Berlin", Anchor: at(t, "2026-10-24T01:00:00Z")}, day, []string{"2026-10-25T02:00:00Z"}},
		{Spec{Expr: "@every 999999h", Anchor: day}, day, []string{"2140-04-26T03:00:00.25Z"}},
		{Spec{Expr: "P100Y", Anchor: day}, day, []string{"2126-03-28T12:00:00.25Z"}},
		// Without anything to count from, intervals count from 1970.
		{Spec{Expr: "P1Y"}, day, []string{"2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z", "2029-01-01T00:00:00Z"}},
		{Spec{Expr: "2026-03-29T00:00:00.5Z", Anchor: day}, day, []string{"2026-03-29T00:00:00.5Z"}},
		// Bounds are inclusive for cron.
		{Spec{Expr: "0 0 * * *", Anchor: day, Start: at(t, "2026-03-30T00:00:00Z"), End: at(t, "2026-03-31T00:00:00Z")}, day, []string{"2026-03-30T00:00:00Z", "2026-03-31T00:00:00Z"}},
		{Spec{Expr: "0 0 * * *", Anchor: day, Start: at(t, "2026-03-30T00:00:00.000000001Z"), End: at(t, "2026-03-31T23:59:59Z")}, day, []string{"2026-03-31T00:00:00Z"}},
	} {
		s, err := Parse(c.spec)
		if err != nil {
			t.Errorf("%+v: %v", c.spec, err)
			continue
		}
		got := walk(s, c.after, 3)
		if len(got) != len(c.want) {
			t.Errorf("%+v: got %v, want %v", c.spec, got, c.want)
			continue
		}
		for i, want := range c.want {
			if got[i] != at(t, want) {
				t.Errorf("%+v: got %v, want %v", c.spec, got, c.want)
				break
			}
		}
	}
}

// TestPeriodsAgainstOracle counts periods with the arithmetic of the time
// package and finds their instants by looking at the clock minute by minute.
func TestPeriodsAgainstOracle(t *testing.T) {
	tests.WithoutRace(t)
	random := scribe{rand.New(rand.NewPCG(5, 77))}
	rounds := tests.Size(50, 300, 20_000)
	for range rounds {
		name := random.pick(transitionZones...)
		location := locationOf(name)
		changes := transitions(location)
		if len(changes) == 0 {
			continue
		}
		years, months, days, hours := random.IntN(2), random.IntN(5), random.IntN(40), random.IntN(2)*random.IntN(30)
		if random.IntN(2) == 0 {
			years, months = 0, 0
		}
		if years+months+days == 0 {
			days = 1
		}
		// Aim one of the due times at the hours around a change of the clocks.
		aim := random.IntN(4)
		target := time.Unix(changes[random.IntN(len(changes))]/60*60+int64(random.IntN(360)-180)*60, 0).In(location)
		anchor := target.AddDate(0, -aim*(12*years+months), -aim*days)
		spec := Spec{Expr: fmt.Sprintf("P%dY%dM%dDT%dH", years, months, days, hours), Zone: name, Anchor: anchor}
		s, err := Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		after := anchor.Add(-time.Hour)
		for k := 1; k < 6; k++ {
			month := anchor.AddDate(0, 0, 1-anchor.Day()).AddDate(years*k, months*k, 0)
			day := anchor.Day()
			for time.Date(month.Year(), month.Month(), day, 0, 0, 0, 0, time.UTC).Month() != month.Month() {
				day--
			}
			wall := time.Date(month.Year(), month.Month(), day+days*k, anchor.Hour(), anchor.Minute(), anchor.Second(), 0, time.UTC)
			want := firstShown(location, wall).Add(time.Duration(hours*k) * time.Hour)
			if !want.After(after) {
				continue // two days that became one instant
			}
			got, ok := s.Next(after)
			if !ok || !got.Equal(want) {
				t.Fatalf("%+v, the %d. time: got %v %v, want %v", spec, k, got.In(location), ok, want.In(location))
			}
			if nearly, _ := s.Next(got.Add(-1)); nearly != got {
				t.Fatalf("%+v just before %v: got %v", spec, got, nearly)
			}
			after = got
		}
	}
}

// firstShown returns the first instant at which the clock shows the wall time,
// or, where it never does, the first at which it shows a later one.
func firstShown(location *time.Location, wall time.Time) time.Time {
	for t := wall.Add(-26 * time.Hour); ; t = t.Add(time.Minute) {
		_, offset := t.In(location).Zone()
		if shown := t.Add(time.Duration(offset) * time.Second); !shown.Before(wall) {
			if shown.After(wall) { // the clock jumped somewhere in this minute
				t = t.Truncate(time.Minute)
			}
			return t
		}
	}
}

func TestIntervalsNearTheEnds(t *testing.T) {
	for _, expr := range []string{"@every 1s", "P1D", "P1M", "PT1H", "* * * * * *", "0 0 * * *", "2199-12-31T23:59:59Z"} {
		for _, zone := range []string{"", "Pacific/Kiritimati", "America/Adak", "Africa/Casablanca"} {
			s, err := Parse(Spec{Expr: expr, Zone: zone})
			if err != nil {
				t.Fatal(err)
			}
			for _, after := range []string{"0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2038-01-19T03:14:07Z", "2199-12-31T12:00:00Z", "2199-12-31T23:59:59Z", "2200-01-01T00:00:00Z", "9999-12-31T23:59:59Z"} {
				due, ok := s.Next(at(t, after))
				if ok && (!due.After(at(t, after)) || due.Year() < 1969 || due.Year() > 2200) {
					t.Errorf("%q in %q after %s: %v", expr, zone, after, due)
				}
			}
			for _, after := range []time.Time{at(t, "2262-04-12T00:00:00Z"), time.Unix(1<<60, 0)} {
				if due, ok := s.Next(after); ok {
					t.Errorf("%q in %q is due at %v", expr, zone, due)
				}
			}
			if due, ok := s.Next(time.Unix(-1<<60, 0)); ok && due.Year() < 1969 {
				t.Errorf("%q in %q is due at %v", expr, zone, due)
			}
		}
	}
}

// The first due time of a period is the instant that was named, also where its wall time occurs twice.
func TestFirstDueTimeInADoubledHour(t *testing.T) {
	first := time.Date(2026, 10, 25, 1, 30, 0, 0, time.UTC) // 02:30 in Berlin, on the second pass
	s, err := Parse(Spec{Expr: "P1D", Zone: "Europe/Berlin", Anchor: first.Add(-3 * time.Hour), Due: first})
	if err != nil {
		t.Fatal(err)
	}
	due, _ := s.Next(first.Add(-3 * time.Hour))
	next, _ := s.Next(due)
	if !due.Equal(first) || !next.Equal(first.Add(24*time.Hour)) {
		t.Errorf("due at %v and %v, want %v and a day later", due, next, first)
	}
}
