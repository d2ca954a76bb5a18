package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// scribe writes random expressions.
type scribe struct{ *rand.Rand }

func (r scribe) pick(list ...string) string { return list[r.IntN(len(list))] }

// numbers writes a field of a few items. A plain field has numbers only.
func (r scribe) numbers(low, high int, plain, wraps bool) string {
	var items []string
	for range 1 + r.IntN(3) {
		a, b := low+r.IntN(high-low+1), low+r.IntN(high-low+1)
		if a > b && !wraps {
			a, b = b, a
		}
		step := 1 + r.IntN(high-low+1)
		switch n := r.IntN(5); {
		case plain || n == 0:
			items = append(items, fmt.Sprint(a))
		case n == 1:
			items = append(items, fmt.Sprintf("%d-%d", a, b))
		case n == 2:
			items = append(items, fmt.Sprintf("%d-%d/%d", a, b, step))
		case n == 3:
			items = append(items, fmt.Sprintf("%d/%d", a, step))
		default:
			items = append(items, fmt.Sprintf("*/%d", step))
		}
	}
	return strings.Join(items, ",")
}

func (r scribe) dayOfMonth() string {
	if r.IntN(3) == 0 {
		return r.numbers(1, 31, false, true)
	}
	var items []string
	for range 1 + r.IntN(3) {
		items = append(items, r.pick("L", "LW", fmt.Sprint("L-", 1+r.IntN(30)), fmt.Sprint(1+r.IntN(31), "W"), fmt.Sprint(1+r.IntN(31))))
	}
	return strings.Join(items, ",")
}

func (r scribe) dayOfWeek(quartz bool) string {
	low, high := 0, 7
	if quartz {
		low = 1
	}
	day := func() string {
		return r.pick("SUN", "MON", "FRI", "SAT", fmt.Sprint(low+r.IntN(high-low+1)))
	}
	var items []string
	for range 1 + r.IntN(2) {
		items = append(items, r.pick(day(), day()+"L", fmt.Sprint(day(), "#", 1+r.IntN(5)), day()+"-"+day(),
			fmt.Sprint(day(), "-", day(), "/", 1+r.IntN(7)), fmt.Sprint(day(), "/", 1+r.IntN(7)), fmt.Sprint("*/", 1+r.IntN(7))))
	}
	return strings.Join(items, ",")
}

// days writes the day, month and day-of-week fields of either dialect, and
// Quartz's year.
func (r scribe) days() string {
	month := r.pick("*", "*", "*", "2", "FEB,JUN", "NOV-FEB", "*/3", "2/5")
	switch r.IntN(6) {
	case 0:
		return r.dayOfMonth() + " " + month + " ? " + r.pick("*", "2000-2030/3")
	case 1:
		return "? " + month + " " + r.dayOfWeek(true) + " *"
	case 2:
		return r.dayOfMonth() + " " + month + " *"
	case 3:
		return "* " + month + " " + r.dayOfWeek(false)
	case 4:
		return "* " + month + " *"
	}
	return r.dayOfMonth() + " " + month + " " + r.dayOfWeek(false)
}

// TestOracleOnDates walks years of dates with random day fields.
func TestOracleOnDates(t *testing.T) {
	tests.WithoutRace(t)
	random := scribe{rand.New(rand.NewPCG(1, 41))}
	rounds := tests.Size(100, 400, 5_000)
	for range rounds {
		spec := Spec{Expr: "0 0 0 " + random.days()}
		s, err := Reopen(spec)
		if err != nil {
			t.Fatal(err)
		}
		o := newOracle(spec)
		day := time.Date(1971+random.IntN(220), time.Month(1+random.IntN(12)), 1, 0, 0, 0, 0, time.UTC)
		after := day.Add(-1)
		for range 3 * 366 {
			if o.onDate(day) {
				got, ok := s.Next(after)
				if !ok || got != day {
					t.Fatalf("%q after %v: got %v %v, want %v", spec.Expr, after, got, ok, day)
				}
				after = day
			}
			day = day.AddDate(0, 0, 1)
		}
		if got, ok := s.Next(after); ok && got.Before(day) {
			t.Fatalf("%q after %v: got %v", spec.Expr, after, got)
		}
	}
}

// TestOracleOnRandomDays looks at random days in every zone of the list, with
// random expressions and policies.
func TestOracleOnRandomDays(t *testing.T) {
	tests.WithoutRace(t)
	random := scribe{rand.New(rand.NewPCG(2, 72))}
	days, exprs := tests.Size(20, 200, 400), tests.Size(1, 1, 4)
	for _, name := range transitionZones {
		location := locationOf(name)
		for range days {
			day := time.Date(1975+random.IntN(200), 1, 1+random.IntN(366), 0, 0, 0, 0, time.UTC).Unix()
			ticks := watch(location, day-edge, day+daySeconds+edge, 60)
			for range exprs {
				plain := random.IntN(2) == 0
				spec := Spec{
					Expr: "0 " + random.numbers(0, 59, plain, true) + " " + random.numbers(0, 23, plain, true) + " " + random.days(),
					Zone: name, Gap: Gap(random.IntN(3)), Overlap: Overlap(random.IntN(3)),
				}
				s, err := Reopen(spec)
				if err != nil {
					t.Fatal(err)
				}
				if difference := newOracle(spec).compare(s, ticks, 60); difference != "" {
					t.Fatalf("%+v: %s", spec, difference)
				}
			}
		}
	}
}

// TestNextProperties: Next is after, matches, and nothing is due between, asked
// from anywhere between.
func TestNextProperties(t *testing.T) {
	random := scribe{rand.New(rand.NewPCG(16, 18))}
	rounds := tests.Size(4000, 4000, 400_000)
	for range rounds {
		spec := Spec{
			Expr: random.numbers(0, 59, false, true) + " " + random.numbers(0, 59, random.IntN(2) == 0, true) + " " +
				random.numbers(0, 23, random.IntN(2) == 0, true) + " " + random.days(),
			Zone: random.pick(transitionZones...), Gap: Gap(random.IntN(3)), Overlap: Overlap(random.IntN(3)),
		}
		s, err := Reopen(spec)
		if err != nil {
			t.Fatal(err)
		}
		o := newOracle(spec)
		after := time.Unix(random.Int64N(endSecond), random.Int64N(1e9)).UTC()
		for range 5 {
			due, ok := s.Next(after)
			if !ok {
				break
			}
			if !due.After(after) || due.Nanosecond() != 0 || due.Location() != time.UTC {
				t.Fatalf("%+v after %v: got %v", spec, after, due)
			}
			// Fires beside a gap are no matches of the wall clock at that time.
			_, before := due.Add(-time.Hour).In(o.location).Zone()
			_, later := due.Add(time.Hour).In(o.location).Zone()
			_, offset := due.In(o.location).Zone()
			wall := time.Unix(due.Unix()+int64(offset), 0).UTC()
			if before == later && !o.matches(wall) {
				t.Fatalf("%+v after %v: %v does not match", spec, after, wall)
			}
			between := after.Add(time.Duration(random.Int64N(max(1, int64(due.Sub(after))))))
			if again, _ := s.Next(between); again != due {
				t.Fatalf("%+v: after %v comes %v, but after %v comes %v", spec, after, due, between, again)
			}
			after = due
		}
	}
}

// TestDialects: the same number, two days.
func TestDialects(t *testing.T) {
	for expr, want := range map[string]time.Weekday{
		"0 0 * * 1": time.Monday, "0 0 0 * * 1": time.Monday, "0 0 0 ? * 1": time.Sunday, "0 0 ? * 1": time.Sunday,
		"0 0 0 * * 1 *": time.Sunday, "0 0 * * 7": time.Sunday, "0 0 * * 0": time.Sunday, "0 0 ? * 7": time.Saturday,
		"0 0 * * 5L": time.Friday, "0 0 ? * 5L": time.Thursday, "0 0 * * 2#2": time.Tuesday, "0 0 ? * 2#2": time.Monday,
	} {
		s, err := Parse(Spec{Expr: expr})
		if err != nil {
			t.Errorf("%q: %v", expr, err)
			continue
		}
		due, _ := s.Next(at(t, "2026-11-21T00:00:00Z"))
		if due.Weekday() != want || !strings.Contains(s.Words(), want.String()) {
			t.Errorf("%q is due on %v, %s", expr, due.Weekday(), s.Words())
		}
	}
}

// TestHashNeverChanges holds values that jobs in the field rely on.
func TestHashNeverChanges(t *testing.T) {
	s, err := Parse(Spec{Expr: "H H H H H *", Key: "default/billing.close-day"})
	if err != nil {
		t.Fatal(err)
	}
	due, _ := s.Next(at(t, "2026-01-01T00:00:00Z"))
	if want := at(t, "2026-12-08T06:41:16Z"); due != want {
		t.Errorf("got %v, want %v", due, want)
	}
}

// TestHashSpreads asks for values inside their ranges, and for all of them.
func TestHashSpreads(t *testing.T) {
	seen := map[string]map[int]bool{}
	for n := range 2000 {
		s, err := Parse(Spec{Expr: "H H(10-19) H/6 H H(3-5) *", Key: fmt.Sprint("default/job-", n)})
		if err != nil {
			t.Fatal(err)
		}
		due, _ := s.Next(at(t, "2026-01-01T00:00:00Z"))
		for name, value := range map[string]int{
			"second": due.Second(), "minute": due.Minute(), "hour": due.Hour(), "day": due.Day(), "month": int(due.Month()),
		} {
			if seen[name] == nil {
				seen[name] = map[int]bool{}
			}
			seen[name][value] = true
		}
	}
	for name, want := range map[string][2]int{"second": {0, 59}, "minute": {10, 19}, "hour": {0, 5}, "day": {1, 28}, "month": {3, 5}} {
		for v := want[0]; v <= want[1]; v++ {
			if !seen[name][v] {
				t.Errorf("%s %d is never chosen", name, v)
			}
		}
		if len(seen[name]) != want[1]-want[0]+1 {
			t.Errorf("%s has values out of range: %v", name, seen[name])
		}
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	after := at(t, "2026-11-21T00:00:00Z")
	for _, expr := range []string{"*/5 * * * *", "0 0 29 2 *", "@every 5s", "P1M", "2030-01-01T00:00:00Z"} {
		s, err := Parse(Spec{Expr: expr, Zone: "Europe/Berlin"})
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() { s.Next(after) }); n != 0 {
			t.Errorf("%q: %v allocations", expr, n)
		}
	}
}
