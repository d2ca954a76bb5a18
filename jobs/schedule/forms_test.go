package schedule

import (
	"testing"
	"time"
)

// The forms in which people who come from other schedulers write a period, and when it is due: seconds after the time
// of writing. A repeat and a cron expression with a year are over after the last one.
func TestFormsOfOthers(t *testing.T) {
	const minute, hour, day = 60, 60 * 60, 24 * 60 * 60
	for expr, want := range map[string][]int{
		"0h0m2s":            {2, 4, 6, 8, 10},
		"2s":                {2, 4, 6, 8, 10},
		"3m":                {3 * minute, 6 * minute, 9 * minute, 12 * minute, 15 * minute},
		"2h30m":             {150 * minute, 300 * minute, 450 * minute, 600 * minute, 750 * minute},
		"1d2h0m2s":          {26*hour + 2, 52*hour + 4, 78*hour + 6, 104*hour + 8, 130*hour + 10},
		"5d3s":              {5*day + 3, 10*day + 6, 15*day + 9, 20*day + 12, 25*day + 15},
		"PT2H30M":           {150 * minute, 300 * minute, 450 * minute, 600 * minute, 750 * minute},
		"P1DT1H20M10S":      {25*hour + 20*minute + 10, 50*hour + 40*minute + 20, 76*hour + 30, 101*hour + 20*minute + 40, 126*hour + 40*minute + 50},
		"R4/PT3S":           {3, 6, 9, 12},
		"0 */1 * * * ?":     {minute, 2 * minute, 3 * minute, 4 * minute, 5 * minute},
		"1 0 9 1 10 ? 2023": {9*hour + 1},
	} {
		written := at(t, "2023-10-01T00:00:00Z")
		s, err := Parse(Spec{Expr: expr, Anchor: written})
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		due, more := written, true
		for i := range 5 {
			due, more = s.Next(due)
			if more != (i < len(want)) {
				t.Errorf("%s: after %d times there is another one: %v", expr, i, more)
			}
			if !more {
				break
			}
			if i < len(want) && !due.Equal(written.Add(time.Duration(want[i])*time.Second)) {
				t.Errorf("%s: the %d. time is %v, want %d s after %v", expr, i+1, due, want[i], written)
			}
		}
	}
}
