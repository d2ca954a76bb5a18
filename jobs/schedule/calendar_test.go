package schedule

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
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

// Random schedules and calendars against a walk over each due time: what Next passes over is excluded, and nothing else.
func TestPlanAgainstAWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	rules := []string{"SAT,SUN", "12-25", "22:00-06:00", "MON 00:00-12:00", "2026-03-20..2026-04-10", "easter", "easter+1", "11-01..02-01", "02:00-03:00", "10-25", "00:00-24:00", "FRI-MON 23:00-01:00"}
	zones := []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Shanghai"}
	for range 300 {
		d := &kernel.Definition{Tenant: "default", Key: "k", Anchor: time.Date(2026, 3, 1+r.IntN(250), r.IntN(24), r.IntN(60), 0, 0, time.UTC)}
		d.Policy.Schedule = pick("*/10 * * * *", "30 2 * * *", "@hourly", "7m30s", "0 0 * * *", "P1D", "@every 1h after end", "15 */3 * * MON-FRI")
		d.Policy.Zone = pick(zones...)
		rows := []*kernel.Calendar{}
		for _, name := range []string{"a", "b"} {
			row := &kernel.Calendar{Name: name, Zone: pick(zones...)}
			for range 1 + r.IntN(3) {
				row.Rules = append(row.Rules, pick(rules...))
			}
			rows = append(rows, row)
			d.Policy.Calendars = append(d.Policy.Calendars, name)
		}
		p, err := PlanOf(d, CalendarsOf(1, rows))
		if err != nil {
			t.Fatal(err)
		}
		s, _ := Of(d)
		at := d.Anchor
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
				t.Fatalf("%s in %s with %v: after %v comes %v %v, want %v %v", d.Policy.Schedule, d.Policy.Zone, rows, at, got, ok, want, more)
			}
			if at = got; !ok {
				break
			}
		}
	}
}

// Jitter is the same for the same job and due time, within its bound, and spread.
func TestScatter(t *testing.T) {
	id, due := kernel.DerivedID("job"), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var buckets [10]int
	for i := range 10_000 {
		at := due.Add(time.Duration(i) * time.Minute)
		d := kernel.Scatter(id, at, 30*time.Second)
		if d < 0 || d >= 30*time.Second || d != kernel.Scatter(id, at, 30*time.Second) {
			t.Fatalf("%v", d)
		}
		buckets[d/(3*time.Second)]++
	}
	for i, n := range buckets {
		if n < 800 || n > 1200 {
			t.Errorf("of 10,000 starts, %d lie in the %d. tenth", n, i+1)
		}
	}
	if kernel.Scatter(id, due, 0) != 0 {
		t.Error("no jitter moves a start")
	}
}
