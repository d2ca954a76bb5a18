package schedule

import (
	"fmt"
	"testing"
	"time"
)

// What InMinute says at once is what a walk finds.
func TestInMinute(t *testing.T) {
	from := time.Date(2026, 3, 28, 23, 0, 0, 0, time.UTC)
	for _, spec := range []Spec{
		{Expr: "* * * * * *"}, {Expr: "*/7 * * * * *", Zone: "Europe/Berlin"}, {Expr: "5,50 30 2 * * *", Zone: "Europe/Berlin"}, {Expr: "* * * * *"},
		{Expr: "@every 7s", Anchor: from}, {Expr: "@every 90s", Anchor: from}, {Expr: "@every 61s"}, {Expr: "PT3S", Anchor: from}, {Expr: "R4/PT3S", Anchor: from},
		{Expr: "@every 7s", Anchor: from, End: from.Add(3*time.Minute + 20*time.Second)}, {Expr: "* * * * * *", End: from.Add(3*time.Minute + 20*time.Second)},
	} {
		s, err := Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		due, ok := s.Next(from)
		for n := 0; ok && n < 500; n++ {
			want, end := 0, due.Truncate(time.Minute).Add(time.Minute)
			next := due
			for ; ok && next.Before(end); next, ok = s.Next(next) {
				want++
			}
			if got := s.InMinute(due); got != want {
				t.Fatalf("%+v has %d from %v on, want %d", spec, got, due, want)
			}
			due = next
		}
	}
}

func TestMoves(t *testing.T) {
	for expr, want := range map[string]string{
		"30 2 * * *":         "H 2 * * * | 31 2 * * * 59",
		"0 59 2 * * MON-FRI": "0 H 2 * * MON-FRI | 0 0 2 * * MON-FRI 59",
		"0 30 2 ? * 2 2027":  "0 H 2 ? * 2 2027 | 0 31 2 ? * 2 2027 59",
		"@daily":             "H 0 * * * | 1 0 * * * 59",
		"*/5 * * * *":        "H/5 * * * * | 1-59/5 * * * * 4",
		"0 0/15 9-17 * * *":  "0 H/15 9-17 * * * | 0 1-59/15 9-17 * * * 14",
		"*/7 * * * *":        " |  0", // the last step of an hour is shorter
		"5,10 * * * *":       " |  0",
		"* * * * *":          " |  0",
		"H 2 * * *":          " |  0",
		"@every 5m":          " |  0",
		"2h":                 " |  0",
	} {
		spread, others := Moves(expr)
		first := ""
		if len(others) > 0 {
			first = others[0]
		}
		if got := fmt.Sprintf("%s | %s %d", spread, first, len(others)); got != want {
			t.Errorf("%s: %s, want %s", expr, got, want)
		}
		for _, moved := range append(others, spread) {
			if _, err := Parse(Spec{Expr: moved, Key: "default/job"}); moved != "" && err != nil {
				t.Errorf("%s becomes %s: %v", expr, moved, err)
			}
		}
	}
}

func TestSameForAll(t *testing.T) {
	for expr, want := range map[string]bool{"30 2 * * *": true, "@daily": true, "0 0 2 * * *": true, "H 2 * * *": false, "@every 5m": false, "PT3S": false,
		"2027-03-01 09:00:00": false, "5m after end": false, "0 0 * * THU": false} {
		if SameForAll(expr) != want {
			t.Errorf("%s: %v", expr, !want)
		}
	}
}
