package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestRefusals names for each expression the field, the offset and a part of
// the reason.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		expr   string
		field  string
		offset int
		reason string
	}{
		{"", "expression", 0, "empty"},
		{" \t ", "expression", 0, "empty"},
		{"* * * *", "expression", 7, "this has 4"},
		{" * * * * ", "expression", 8, "this has 4"},
		{"5", "expression", 1, "this has 1"},
		{"* * * * * * * *", "expression", 14, "this has 8"},
		{"* *\n* *", "expression", 3, "control"},
		{strings.Repeat("0,", 200) + "0 * * * *", "expression", 256, "409 bytes"},

		{"60 * * * *", "minute", 0, "60 is not within 0-59"},
		{"* 24 * * *", "hour", 2, "not within 0-23"},
		{"* * 0 * *", "day-of-month", 4, "not within 1-31"},
		{"* * 32 * *", "day-of-month", 4, "not within 1-31"},
		{"* * * 13 *", "month", 6, "not within 1-12"},
		{"* * * * 8", "day-of-week", 8, "not within 0-7"},
		{"0 * * ? * 0", "day-of-week", 10, "not within 1-7"},
		{"61 * * * * *", "second", 0, "not within 0-59"},
		{"0 0 0 1 1 ? 1969", "year", 12, "not within 1970-2199"},
		{"0 0 0 1 1 ? 2200", "year", 12, "not within 1970-2199"},
		{"99999999999999999999999 * * * *", "minute", 0, "999999999999..."},
		{"1-100/3 * * * *", "minute", 2, "100 is not"},
		{"5,6,70,80 * * * *", "minute", 4, "70"},
		{"5 25 * 13 *", "hour", 2, "25"},

		{"*/0 * * * *", "minute", 2, "0 is not within 1-60"},
		{"*/61 * * * *", "minute", 2, "not within 1-60"},
		{"0 */25 * * *", "hour", 4, "not within 1-24"},
		{"0 0 */32 * *", "day-of-month", 6, "not within 1-31"},
		{"0 0 * */13 *", "month", 8, "not within 1-12"},
		{"0 0 * * */8", "day-of-week", 10, "not within 1-7"},
		{"0 0 0 1 1 ? */231", "year", 14, "not within 1-230"},
		{"*/ * * * *", "minute", 2, "missing"},
		{"*/5/2 * * * *", "minute", 3, "unexpected"},
		{"*5 * * * *", "minute", 1, "unexpected"},

		{", * * * *", "minute", 0, "empty"},
		{"5, * * * *", "minute", 2, "empty"},
		{"5,,6 * * * *", "minute", 2, "empty"},
		{",5 * * * *", "minute", 0, "empty"},
		{"5- * * * *", "minute", 2, "missing"},
		{"-5 * * * *", "minute", 0, "unexpected"},
		{"5-6-7 * * * *", "minute", 3, "unexpected"},
		{"*-5 * * * *", "minute", 1, "unexpected"},
		{"1.5 * * * *", "minute", 1, "unexpected"},
		{"0 0 0 1 1 ? 2030-2020", "year", 12, "backwards"},

		{"? * * * *", "minute", 0, "? must be the only value"},
		{"* * ?,1 * *", "day-of-month", 4, "? must be the only value"},
		{"* * ?/2 * *", "day-of-month", 4, "? must be the only value"},
		{"* * 1,? * *", "day-of-month", 6, "? must be the only value"},
		{"* * ? * ?", "day-of-week", 8, "both"},
		{"0 0 0 1 * 2 2027", "day-of-week", 10, "one of the two"},
		{"0 0 0 */1 * 2 2027", "day-of-week", 12, "one of the two"},
		{"0 0 0 1 * 9 2027", "day-of-week", 10, "not within"},
		{"0 0 0 1 * 2,9 2027", "day-of-week", 10, "one of the two"},

		{"* * * * L", "day-of-week", 8, "bare L"},
		{"* * * * MON,L", "day-of-week", 12, "bare L"},
		{"* * L-99 * *", "day-of-month", 6, "not within 1-30"},
		{"* * L-31 * *", "day-of-month", 6, "not within 1-30"},
		{"* * L-0 * *", "day-of-month", 6, "not within 1-30"},
		{"* * L-3W * *", "day-of-month", 7, "unexpected"},
		{"* * L/2 * *", "day-of-month", 5, "unexpected"},
		{"* * WL * *", "day-of-month", 4, "unexpected"},
		{"* * 32W * *", "day-of-month", 4, "not within"},
		{"* * 1-5W * *", "day-of-month", 7, "unexpected"},
		{"* * 5L * *", "day-of-month", 5, "unexpected"},
		{"* * * * 5W", "day-of-week", 9, "unexpected"},
		{"* * * * 5#6", "day-of-week", 10, "not within 1-5"},
		{"* * * * 5#0", "day-of-week", 10, "not within 1-5"},
		{"* * * * 5#", "day-of-week", 10, "missing"},
		{"* * * * MON#1-2", "day-of-week", 13, "unexpected"},
		{"* * * * 8L", "day-of-week", 8, "not within"},
		{"* * * JANUARY *", "month", 9, "unexpected"},
		{"* * * FOO *", "month", 6, "not one of JAN"},
		{"* * * * MO", "day-of-week", 8, "not one of SUN"},
		{"MON * * * *", "minute", 0, "unexpected"},
		{"L * * * *", "minute", 0, "unexpected"},

		{"0 0 0 1 1 ? H", "year", 12, "H"},
		{"H5 * * * *", "minute", 1, "unexpected"},
		{"H( * * * *", "minute", 2, "missing"},
		{"H(5) * * * *", "minute", 3, "unexpected"},
		{"H(5-70) * * * *", "minute", 4, "not within"},
		{"H(5-7 * * * *", "minute", 5, "missing"},
		{"0 0 H(1-31) * *", "day-of-month", 8, "not within 1-28"},
		{"H/0 * * * *", "minute", 2, "not within"},

		{"TZ=UTC * * * * *", "expression", 0, "time zone"},
		{"CRON_TZ=Europe/Berlin * * * * *", "expression", 0, "time zone"},
		{"TZ=TZ=TZ=", "expression", 0, "time zone"},
		{"TZ=0", "expression", 0, "time zone"},
		{"٣ * * * *", "minute", 0, "outside ASCII"},
		{"5٣ * * * *", "minute", 1, "outside ASCII"},
		{"＊ * * * *", "minute", 0, "outside ASCII"},
		{"* * * * *\r\n", "day-of-week", 9, "control"},
		{"*\v* * * * *", "minute", 1, "control"},
		{"*\x00 * * * *", "minute", 1, "control"},

		{"@reboot", "expression", 0, "unknown macro"},
		{"@", "expression", 0, "unknown macro"},
		{"@daily 5", "expression", 6, "nothing may follow"},
		{"@every", "expression", 6, "missing"},
		{"@every 1ns", "expression", 7, "whole seconds"},
		{"@every 0s", "expression", 7, "at least one second"},
		{"@every 1500ms", "expression", 7, "whole seconds"},
		{"@every -5s", "expression", 7, "no sign"},
		{"@every 5", "expression", 8, "unit"},
		{"@every 5y", "expression", 8, "unit"},
		{"@every 1.5h", "expression", 8, "unexpected"},
		{"@every 99999999999h", "expression", 7, "too long"},
		{"@every 9999999h", "expression", 7, "longer than the calendar"},
		{"0s", "expression", 0, "at least one second"},
		{"-2h", "expression", 0, "no sign"},
		{"2h30", "expression", 4, "unit"},

		{"P", "expression", 1, "missing"},
		{"PT", "expression", 2, "missing"},
		{"P1DT", "expression", 4, "missing"},
		{"P0D", "expression", 0, "at least one second"},
		{"PT0S", "expression", 0, "at least one second"},
		{"P1D1M", "expression", 4, "order"},
		{"P1S", "expression", 2, "order"},
		{"PT1D", "expression", 3, "order"},
		{"PT1.5S", "expression", 3, "order"},
		{"P-1D", "expression", 1, "number should be"},
		{"P5", "expression", 2, "unit"},
		{"P999Y", "expression", 0, "longer"},
		{"R0/PT3S", "expression", 1, "0 times"},
		{"R4", "expression", 0, "R4/PT3S"},
		{"R4/", "expression", 3, "begins with P"},
		{"R-1/PT3S", "expression", 1, "not a number"},
		{"Rx/PT3S", "expression", 1, "not a number"},
		{"R99999999999999999999/PT3S", "expression", 1, "too large"},
		{"R4/PT3S/x", "expression", 7, "number should be"},

		{"2026-13-01T00:00:00Z", "expression", 0, "RFC 3339"},
		{"2026-12-31T23:59:60Z", "expression", 0, "RFC 3339"},
		{"2026-12-31", "expression", 0, "RFC 3339"},
		{"1969-12-31T00:00:00Z", "expression", 0, "outside 1970-2199"},
		{"2200-01-01T00:00:00Z", "expression", 0, "outside 1970-2199"},

		{"0 0 30 2 *", "expression", 0, "never"},
		{"0 0 31 4,6,9,11 *", "expression", 0, "never"},
		{"0 0 L-30 2 *", "expression", 0, "never"},
		{"0 0 31W 2,4 *", "expression", 0, "never"},
		{"0 0 0 29 2 ? 2027", "expression", 0, "never"},
		{"0 0 0 ? 2 6#5 2027", "expression", 0, "never"},
	} {
		s, err := Parse(Spec{Expr: c.expr})
		if err == nil {
			t.Errorf("%q is accepted: %s", c.expr, s.Words())
			continue
		}
		var e *Error
		if !errors.As(err, &e) || e.Field != c.field || e.Offset != c.offset || !strings.Contains(e.Reason, c.reason) {
			t.Errorf("%q: got %v, want %s at %d: %s", c.expr, err, c.field, c.offset, c.reason)
		}
	}
}

func TestAccepted(t *testing.T) {
	for _, expr := range []string{
		" \t*  *\t* * *\t", "007 010 01 012 06", "0 0 29 2 *", "0 0 29 2 1#5", "0 0 0 29 2 ? 2028", "@EVERY 5s",
		"@every 999999h", "@Daily", "@MIDNIGHT", "@annually", "/5 * * * *", "*/60 */24 */31 */12 */7", "0 0 0 ? * * */230",
		"22-2 22-2 28-3 NOV-FEB FRI-MON", "0 0 * * mon-5", "0 0 * * SUN,5L,MON#5,2#1,sunl",
		"0 0 l,lw,l-30,15w,1 * *", "H H H H H", "H H H H H H", "H H H H H ?", "H(0-5),30 H/2 h(1-28) H(jan-mar) H(mon-fri)/2",
		"H(50-10) * * * *", "0 0 * * 0-7", "0 0 * * 7-1", "* * * * * * *", "0 0 0 * * *", "0 0 ? * 1", "0 0 1 * ?",
		"R/PT3S", "R1/P1M", "P1Y1M1W1DT1H1M1S", "PT36H", "1d2h0m2s", "1000ms", "0d5s", "2026-12-31T23:59:59.5+05:30",
	} {
		if s, err := Parse(Spec{Expr: expr}); err != nil {
			t.Errorf("%q: %v", expr, err)
		} else if s.Words() == "" || s.WordsIn("zh") == "" {
			t.Errorf("%q has no words", expr)
		}
	}
}

func TestRefusedAround(t *testing.T) {
	day := at(t, "2026-11-21T00:00:00Z")
	for _, c := range []struct {
		spec  Spec
		field string
	}{
		{Spec{Expr: "* * * * *", Zone: "Local"}, "zone"},
		{Spec{Expr: "* * * * *", Zone: "local"}, "zone"},
		{Spec{Expr: "* * * * *", Zone: "utc"}, "zone"},
		{Spec{Expr: "* * * * *", Zone: "europe/berlin"}, "zone"},
		{Spec{Expr: "* * * * *", Zone: " Europe/Berlin"}, "zone"},
		{Spec{Expr: "* * * * *", Zone: "../../etc/passwd"}, "zone"},
		{Spec{Expr: "* * * * *", Zone: "Etc/../Japan"}, "zone"},
		{Spec{Expr: "* * * * *", Zone: "posix/Japan"}, "zone"},
		{Spec{Expr: "* * * * *", Zone: "right/Japan"}, "zone"},
		{Spec{Expr: "* * * * *", Zone: "+01:00"}, "zone"},
		{Spec{Expr: "* * * * *", Zone: strings.Repeat("A", 10_000)}, "zone"},
		{Spec{Expr: "* * * * *", Gap: 3}, "gap"},
		{Spec{Expr: "* * * * *", Overlap: 3}, "overlap"},
		{Spec{Expr: "* * * * *", Start: day, End: day.Add(-1)}, "end"},
		{Spec{Expr: "* * * * *", Start: day.AddDate(-60, 0, 0)}, "start"},
		{Spec{Expr: "PT5S", Start: day, Due: day.Add(-1)}, "due"},
		{Spec{Expr: "0 0 0 1 1 ? 2026", Anchor: day}, "expression"},
		{Spec{Expr: "0 0 0 1 1 ? 2026", Start: day}, "expression"},
		{Spec{Expr: "0 0 0 1 1 ? 2060", Anchor: day}, "expression"},
		{Spec{Expr: "2026-11-21T00:00:00Z", Anchor: day}, "expression"},
		{Spec{Expr: "2026-11-22T00:00:00Z", Anchor: day, Start: day.AddDate(0, 0, 2)}, "expression"},
		{Spec{Expr: "R4/PT3S", Start: day, Anchor: day.AddDate(0, 0, 1)}, "expression"},
		// Always in the gap, and flowing.
		{Spec{Expr: "*/30 2 * 3 SUNL", Zone: "Europe/Berlin", Anchor: day}, "expression"},
		{Spec{Expr: "30 2 * 3 SUNL", Zone: "Europe/Berlin", Gap: GapSkip, Anchor: day}, "expression"},
	} {
		var e *Error
		_, err := Parse(c.spec)
		if !errors.As(err, &e) || e.Field != c.field || e.Offset != 0 {
			t.Errorf("%.200v: got %.200v, want %s", c.spec, err, c.field)
		}
		if err != nil && len(err.Error()) > 200 {
			t.Errorf("a message of %d bytes", len(err.Error()))
		}
	}
}

// TestNeverIsJudgedAtTheBound: 28 years, to the second and inclusive.
func TestNeverIsJudgedAtTheBound(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		ok   bool
	}{
		{Spec{Expr: "0 0 0 1 1 ? 2054", Anchor: at(t, "2026-01-01T00:00:00Z")}, true},
		{Spec{Expr: "1 0 0 1 1 ? 2054", Anchor: at(t, "2026-01-01T00:00:00Z")}, false},
		{Spec{Expr: "0 0 0 1 1 ? 2054", Anchor: at(t, "2025-12-31T23:59:59.9Z")}, false},
		{Spec{Expr: "0 0 0 1 1 ? 2054", Start: at(t, "2026-01-01T00:00:00Z"), Anchor: at(t, "2020-01-01T00:00:00Z")}, true},
		{Spec{Expr: "0 0 0 1 1 ? 2026", Start: at(t, "2026-01-01T00:00:00Z"), Anchor: at(t, "2020-01-01T00:00:00Z")}, true},
		{Spec{Expr: "0 0 0 1 1 ? 2026", Anchor: at(t, "2026-01-01T00:00:00Z")}, false},
		// In the zone: noon in Auckland, whose offset from UTC differs.
		{Spec{Expr: "0 0 12 1 1 ? 2054", Zone: "Pacific/Auckland", Anchor: at(t, "2025-12-31T23:00:00Z")}, true},
		{Spec{Expr: "1 0 12 1 1 ? 2054", Zone: "Pacific/Auckland", Anchor: at(t, "2025-12-31T23:00:00Z")}, false},
		// The last second that counts comes twice.
		{Spec{Expr: "0 0 2 25 10 ? 2054", Zone: "Europe/Berlin", Overlap: OverlapSecond, Anchor: at(t, "2026-10-25T00:00:00Z")}, true},
		// A fifth Sunday in a February comes once in 28 years, and not across 2100.
		{Spec{Expr: "0 0 0 ? 2 1#5", Anchor: at(t, "2032-02-29T00:00:00Z")}, true},
		{Spec{Expr: "0 0 0 ? 2 1#5", Anchor: at(t, "2088-02-29T00:00:00Z")}, false},
	} {
		if _, err := Parse(c.spec); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.spec, err)
		}
		if _, err := Reopen(c.spec); err != nil {
			t.Errorf("reopening %+v: %v", c.spec, err)
		}
	}
}

func TestReopenFinished(t *testing.T) {
	s, err := Reopen(Spec{Expr: "0 0 0 1 1 ? 2020", Anchor: at(t, "2026-01-01T00:00:00Z")})
	if err != nil {
		t.Fatal(err)
	}
	if due, ok := s.Next(at(t, "2026-01-01T00:00:00Z")); ok {
		t.Errorf("due at %v", due)
	}
	if due, ok := s.Next(time.Time{}); !ok || due != at(t, "2020-01-01T00:00:00Z") {
		t.Errorf("due at %v %v", due, ok)
	}
}

func TestWarnings(t *testing.T) {
	for expr, want := range map[string]int{
		"0 0 0 * * 1": 1, "0 0 0 * * MON-5": 1, "0 0 0 * * 5L": 1, "0 0 0 * * 2#1": 1,
		"0 0 0 * * MON": 0, "0 0 * * 1": 0, "0 0 0 ? * 2": 0, "0 0 0 * * 2 2027": 0, "0 0 0 1 * *": 0, "0 0 0 * * */2": 0, "@weekly": 0,
	} {
		s, err := Parse(Spec{Expr: expr})
		if err != nil {
			t.Errorf("%q: %v", expr, err)
		} else if got := append(s.Warnings(), s.WarningsIn("zh_CN")...); len(got) != 2*want || want > 0 && (!strings.Contains(got[0], "1 is Monday") || !strings.Contains(got[1], "1 是周一")) {
			t.Errorf("%q: %q", expr, got)
		}
	}
}
