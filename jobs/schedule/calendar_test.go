package schedule

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
)

// The examples of calendar rules, and the rules in the table of docs/schedules.md.
func TestCalendarsPage(t *testing.T) {
	documented, err := os.ReadFile("../../docs/schedules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, listed, _ := strings.Cut(string(documented), "| rule | excludes |\n")
	listed, _, _ = strings.Cut(listed, "\n\n")
	valid := 0
	for i, part := range strings.Split(listed, "`") {
		if i%2 == 0 {
			continue
		}
		if _, err := ParseCalendar("c", "", []string{part}); err != nil {
			t.Errorf("docs/schedules.md lists %q: %v", part, err)
		}
		valid++
	}
	if valid < 8 {
		t.Errorf("docs/schedules.md lists %d calendar rules", valid)
	}
	page, err := os.ReadFile("testdata/examples.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| rule | zone | excluded | not excluded |\n")
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 4 || strings.Contains(line, "---") {
			if rows > 0 {
				break
			}
			continue
		}
		rows++
		rule := strings.Trim(cells[0], "| `")
		c, err := ParseCalendar("c", cells[1], []string{rule})
		if err != nil {
			t.Errorf("%s: %v", rule, err)
			continue
		}
		for i, want := range []bool{true, false} {
			for text := range strings.SplitSeq(strings.Trim(cells[2+i], "| "), "<br>") {
				at, err := time.Parse(time.RFC3339, text)
				if err != nil {
					t.Fatal(err)
				}
				if _, _, is := c.Excludes(at); is != want {
					t.Errorf("%s in %s: %s is excluded: %v, want %v", rule, cells[1], text, is, want)
				}
			}
		}
	}
	if rows < 10 {
		t.Errorf("the page has %d examples", rows)
	}
}

func TestCalendarRefusals(t *testing.T) {
	for rule, place := range map[string]string{"": "rule 1 at 0", "# note": "rule 1 at 0", "2026-02-30": "rule 1 at 0", "SAT 25:00-26:00": "rule 1 at 4",
		"09:00-09:00": "rule 1 at 0", "FUNDAY": "rule 1 at 0", "2027-01-01..2026-01-01": "rule 1 at 0", "12-24..2026-01-01": "rule 1 at 0",
		"09:00-10:00 SAT": "rule 1 at 12", "easter*2": "rule 1 at 0", "SAT 09:00-10:00 x": "rule 1 at 16", "1-1": "rule 1 at 0"} {
		if _, err := ParseCalendar("c", "", []string{rule}); err == nil || !strings.HasPrefix(err.Error(), place+":") {
			t.Errorf("%q: %v, want %s", rule, err, place)
		}
	}
	if _, err := ParseCalendar("c", "Mars/Base", nil); err == nil {
		t.Error("a zone that does not exist is taken")
	}
}

// Random schedules and calendars against a walk over each due time: what Next passes over is excluded, and nothing
// else.
func TestPlanAgainstAWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	rules := []string{"SAT,SUN", "12-25", "22:00-06:00", "MON 00:00-12:00", "2026-03-20..2026-04-10", "easter", "easter+1", "11-01..02-01", "02:00-03:00", "10-25", "00:00-24:00", "FRI-MON 23:00-01:00"}
	zones := []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Shanghai"}
	for range 300 {
		spec := Spec{Key: "default/k", Anchor: time.Date(2026, 3, 1+r.IntN(250), r.IntN(24), r.IntN(60), 0, 0, time.UTC)}
		spec.Expr = pick("*/10 * * * *", "30 2 * * *", "@hourly", "7m30s", "0 0 * * *", "P1D", "@every 1h after end", "15 */3 * * MON-FRI")
		spec.Zone = pick(zones...)
		var calendars []*Calendar
		var texts [][]string
		for _, name := range []string{"a", "b"} {
			zone, text := pick(zones...), []string{}
			for range 1 + r.IntN(3) {
				text = append(text, pick(rules...))
			}
			c, err := ParseCalendar(name, zone, text)
			if err != nil {
				t.Fatal(err)
			}
			calendars, texts = append(calendars, c), append(texts, append(text, zone))
		}
		s, err := Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		p := NewCalendars(1, calendars...).Plan(s, []string{"a", "b"})
		at := spec.Anchor
		for range 20 {
			want, more := s.Next(at)
			walked := 0
			for ; more && walked < 5000; walked++ {
				if _, _, is := p.Excludes(want); !is {
					break
				}
				want, more = s.Next(want)
			}
			if walked == 5000 {
				break // a walk that finds nothing says nothing
			}
			got, ok := p.Next(at)
			if ok != more || ok && !got.Equal(want) {
				t.Fatalf("%s in %s with %v: after %v comes %v %v, want %v %v", spec.Expr, spec.Zone, texts, at, got, ok, want, more)
			}
			if at = got; !ok {
				break
			}
		}
	}
}
