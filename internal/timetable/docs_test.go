package timetable

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
)

// TestDocs checks the tables of schedules and settings in docs/schedules.md and testdata/examples.md of jobs/schedule.
func TestDocs(t *testing.T) {
	rows := 0
	for _, path := range []string{"../../docs/schedules.md", "../../jobs/schedule/testdata/examples.md"} {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		inside := false
		for line := range strings.Lines(string(page)) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
			for i := range cells {
				cells[i] = strings.Trim(cells[i], " `")
			}
			switch {
			case !strings.HasPrefix(line, "|"):
				inside = false
			case cells[0] == "settings":
				inside = true
			case inside && !strings.HasPrefix(cells[0], "---"):
				rows++
				checkSettings(t, cells)
			}
		}
	}
	if rows < 8 {
		t.Errorf("%d rows of settings, want 8", rows)
	}
}

func walk(s *schedule.Schedule, after time.Time, most int) (list []time.Time) {
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

// checkSettings compares a row "settings | due | its run may start" with what a job of these settings does.
func checkSettings(t *testing.T, cells []string) {
	t.Helper()
	written := at(t, "2026-11-21T00:00:00Z")
	d := &kernel.Definition{Tenant: "default", Key: "report", Kind: kernel.Recurring, Anchor: written, TTLFrom: written}
	for _, setting := range strings.Split(cells[0], "; ") {
		name, value, _ := strings.Cut(setting, ": ")
		span, _ := time.ParseDuration(value)
		when, _ := time.Parse(time.RFC3339, value)
		switch name {
		case "schedule":
			d.Policy.Schedule = value
		case "first":
			d.Policy.First = when
		case "start":
			d.Policy.Start = when
		case "end":
			d.Policy.End = when
		case "ttl":
			d.Policy.TTL = span
		case "early":
			d.Policy.Early = span
		case "jitter":
			d.Policy.Jitter = span
		default:
			t.Fatalf("the page has a setting %q", name)
		}
	}
	s, err := Schedule(d)
	if err != nil {
		t.Errorf("%s: %v", cells[0], err)
		return
	}
	want := strings.Split(cells[1], "<br>")
	var got []string
	least, most := time.Duration(1<<62), -time.Duration(1<<62)
	for _, due := range walk(s, written, 1000) {
		if len(got) < len(want) {
			got = append(got, due.Format(time.TimeOnly))
		}
		off := d.Starts(due).Sub(due)
		least, most = min(least, off), max(most, off)
	}
	if len(got) < len(want) {
		got = append(got, "finished")
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: due at %v, want %v", cells[0], got, want)
	}
	var around []string
	if d.Policy.Early > 0 {
		around = append(around, "from "+d.Policy.Early.String()+" before")
	}
	if latest := d.Policy.Jitter - d.Policy.Early; d.Policy.Jitter > 0 {
		around = append(around, "up to "+latest.String()+" after")
		if most >= latest || most < latest-latest/10 {
			t.Errorf("%s: of a thousand runs the last starts %v after its due time", cells[0], most)
		}
	} else if most != -d.Policy.Early {
		t.Errorf("%s: a run starts %v after its due time", cells[0], most)
	}
	if least < -d.Policy.Early || least > -d.Policy.Early+d.Policy.Jitter/10 {
		t.Errorf("%s: a run starts %v after its due time", cells[0], least)
	}
	if says := cmp.Or(strings.Join(around, ", "), "then"); says != cells[2] {
		t.Errorf("%s: the page says %q, want %q", cells[0], cells[2], says)
	}
}
