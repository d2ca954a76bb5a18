package peers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// scribe writes random expressions in what two dialects have in common.
type scribe struct{ *rand.Rand }

func (s scribe) pick(texts ...string) string { return texts[s.IntN(len(texts))] }

// field writes a field whose numbers are low to high.
func (s scribe) field(low, high int) string {
	from := low + s.IntN(high-low+1)
	to := from + s.IntN(high-from+1)
	step := 2 + s.IntN(max(1, (high-low)/2))
	switch s.IntN(8) {
	case 0, 1:
		return "*"
	case 2:
		return fmt.Sprintf("*/%d", step)
	case 3:
		return fmt.Sprintf("%d-%d", from, to)
	case 4:
		return fmt.Sprintf("%d-%d/%d", from, to, step)
	case 5:
		return fmt.Sprintf("%d/%d", from, step)
	case 6:
		return s.list(low, high)
	}
	return fmt.Sprint(from)
}

// list writes a few numbers in their order.
func (s scribe) list(low, high int) string {
	var list []string
	for n := low + s.IntN(high-low+1); n <= high && len(list) < 5; n += 1 + s.IntN(high-low+1) {
		list = append(list, fmt.Sprint(n))
	}
	return strings.Join(list, ",")
}

// plain writes a field of numbers alone.
func (s scribe) plain(low, high int) string { return fmt.Sprint(low + s.IntN(high-low+1)) }

func (s scribe) months() string {
	if s.IntN(3) == 0 {
		return s.pick("JAN", "feb-Nov", "MAR,JUN,SEP,DEC", "APR-OCT/2")
	}
	return s.field(1, 12)
}

// crontab writes six fields that robfig/cron reads as we do. Each month has one of the days, so that all are due.
func (s scribe) crontab() string {
	dom, dow := "*", "*"
	switch s.IntN(4) {
	case 0:
		dom = s.field(1, 28)
	case 1:
		dow = s.weekdays()
	case 2:
		dom, dow = s.list(1, 28), s.list(0, 6)
	}
	return strings.Join([]string{s.field(0, 59), s.field(0, 59), s.field(0, 23), dom, s.months(), dow}, " ")
}

func (s scribe) weekdays() string {
	if s.IntN(3) == 0 {
		return s.pick("MON", "mon-fri", "TUE,THU", "SUN,SAT", "MON-SAT/2")
	}
	return s.field(0, 6)
}

// gronx writes six fields that gronx reads as we do.
func (s scribe) gronx() string {
	if s.IntN(3) > 0 {
		return s.crontab()
	}
	dom, dow := "*", "*"
	if s.IntN(2) == 0 {
		dom = s.pick("L", s.plain(1, 28)+"W")
	} else {
		dow = s.plain(0, 6) + s.pick("L", "#1", "#2", "#3", "#4", "#5")
	}
	return strings.Join([]string{s.plain(0, 59), s.plain(0, 59), s.plain(0, 23), dom, "*", dow}, " ")
}

// quartz writes six or seven fields that go-quartz reads as we do.
func (s scribe) quartz() string {
	clock := s.field(0, 59) + " " + s.field(0, 59) + " " + s.field(0, 23)
	once := s.plain(0, 59) + " " + s.plain(0, 59) + " " + s.plain(0, 23)
	date := ""
	switch s.IntN(6) {
	case 0:
		date = "* * ?"
	case 1:
		date = "* " + s.months() + " ?"
	case 2:
		date = s.list(1, 28) + " " + s.months() + " ?"
	case 3:
		date = "? * " + s.pick(s.field(1, 7), "MON", "mon-fri", "TUE,THU", "SUN,SAT", "MON-SAT/2")
	case 4:
		clock = once
		date = s.pick("L", "L-"+s.plain(1, 27), "LW", s.plain(1, 28)+"W") + " " + s.months() + " ?"
	case 5:
		clock = once
		date = "? " + s.months() + " " + s.plain(1, 7) + s.pick("L", "#1", "#2", "#3", "#4")
	}
	if !strings.HasPrefix(date, "?") && s.IntN(4) == 0 {
		date += " " + s.pick("*", "2020-2099", "2030,2033,2050", "2024/4")
	}
	if plain, open := strings.CutSuffix(clock, " *"); open && date != "* * ?" {
		clock = plain + " 0-23"
	}
	return clock + " " + date
}

// TestAgree asks every engine for the due times of thousands of expressions in UTC.
func TestAgree(t *testing.T) {
	for _, c := range []struct {
		engine string
		write  func(scribe) string
		exprs  int
		times  int
	}{
		{"go-quartz", scribe.quartz, 4000, 300},
		{"robfig/cron", scribe.crontab, 4000, 300},
		{"gronx", scribe.gronx, 1000, 100},
	} {
		t.Run(c.engine, func(t *testing.T) {
			t.Parallel()
			random := scribe{rand.New(rand.NewPCG(2026, uint64(c.exprs)))}
			theirs := make([]question, c.exprs)
			for i := range theirs {
				after := time.Date(2020+random.IntN(30), 1, 1+random.IntN(366), 0, 0, random.IntN(86400), 0, time.UTC)
				if c.engine == "go-quartz" { // which forgets the rest of today where days have a W
					after = after.Truncate(24 * time.Hour).Add(-time.Second)
				}
				theirs[i] = question{Engine: c.engine, Expr: c.write(random), Zone: "UTC", After: after.Unix(), N: c.times}
			}
			wrong, times := 0, 0
			for i, got := range ask(t, theirs) {
				ours := theirs[i]
				ours.Engine = "ours"
				want := ours.answer()
				end := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC).Unix() // of our calendar
				if i := slices.IndexFunc(got.Times, func(at int64) bool { return at >= end }); i >= 0 {
					got.Times = got.Times[:i]
				}
				times += len(want.Times)
				if want.Error != "" || got.Error != "" || !slices.Equal(got.Times, want.Times) {
					if wrong++; wrong <= 20 {
						t.Errorf("%v: %s", ours, difference(got, want))
					}
				}
			}
			t.Logf("%d of %d expressions differ, %d due times", wrong, c.exprs, times)
		})
	}
}

// difference says where two answers part.
func difference(theirs, ours answer) string {
	say := func(a answer, i int) string {
		switch {
		case a.Error != "":
			return a.Error
		case i >= len(a.Times):
			return "finished"
		}
		return time.Unix(a.Times[i], 0).UTC().Format("Mon " + time.RFC3339)
	}
	i := 0
	for i < min(len(theirs.Times), len(ours.Times)) && theirs.Times[i] == ours.Times[i] {
		i++
	}
	return fmt.Sprintf("after %d due times, theirs is %s, ours %s", i, say(theirs, i), say(ours, i))
}
