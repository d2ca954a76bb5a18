package ops_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// day returns the counts of the day around a time, in a zone.
func (d *fixture) day(q ops.DayQuery) ops.Day {
	d.t.Helper()
	day, err := d.Day(d.t.Context(), ann, q)
	if err != nil {
		d.t.Fatal(err)
	}
	if len(day.Rows) > 50 {
		d.t.Fatalf("%d rows", len(day.Rows))
	}
	return day
}

// hoursOf lists the hours of a row that are not empty: start, planned, ran, failed, missed.
func hoursOf(day ops.Day, row ops.DayRow) (text string) {
	for i, h := range row.Hours {
		if h != (ops.DayHour{}) {
			text += fmt.Sprintf("%s %d %d %d %d, ", day.Hours[i].Format("15:04"), h.Planned, h.Ran, h.Failed, h.Missed)
		}
	}
	return text
}

func dayOf(year int, month time.Month, day int, zone *time.Location) ops.DayQuery {
	return ops.DayQuery{From: time.Date(year, month, day, 0, 0, 0, 0, zone), To: time.Date(year, month, day+1, 0, 0, 0, 0, zone)}
}

// Past hours have the runs and the ledger, later ones the plan. Hours are those of the zone's day, also where the clocks
// change.
func TestDay(t *testing.T) {
	d := newFixture(t)                          // it is noon
	d.miss("app.often", 150, kernel.MissedLate) // 12:01 to 14:30
	d.run("app.work", kernel.OutcomeSuccess)
	d.run("app.work", kernel.OutcomeFatal)
	day := d.day(dayOf(2026, 11, 21, time.UTC))
	if len(day.Hours) != 24 || len(day.Rows) != 3 || day.ByApp || day.Next != "" || day.Left != 0 {
		t.Fatalf("%d hours, %d rows: %+v", len(day.Hours), len(day.Rows), day)
	}
	planned := ""
	for h := 15; h < 24; h++ {
		planned += fmt.Sprintf("%d:00 60 0 0 0, ", h)
	}
	for i, want := range []string{"", "12:00 0 0 0 59, 13:00 0 0 0 60, 14:00 29 0 0 31, " + planned, "14:00 0 1 1 0, "} {
		if got := hoursOf(day, day.Rows[i]); got != want {
			t.Errorf("%s has %s, want %s", day.Rows[i].Job, got, want)
		}
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		q     ops.DayQuery
		hours int
		want  string // of the job that fires at 2:30 in Berlin
	}{
		{dayOf(2026, 11, 22, berlin), 24, "01:00 1 0 0 0, "},
		{dayOf(2027, 3, 28, berlin), 23, "01:00 1 0 0 0, "}, // 2:30 does not exist
		{dayOf(2027, 10, 31, berlin), 25, "00:00 1 0 0 0, "},
		{dayOf(2026, 11, 22, time.FixedZone("+5:30", 19800)), 25, "01:00 1 0 0 0, "},
	} {
		day := d.day(c.q)
		if got := hoursOf(day, day.Rows[0]); len(day.Hours) != c.hours || got != c.want {
			t.Errorf("%s: %d hours, %s; want %d, %s", c.q.From, len(day.Hours), got, c.hours, c.want)
		}
	}
	d.now = d.now.Add(72 * time.Hour)
	if day := d.day(dayOf(2026, 11, 21, time.UTC)); hoursOf(day, day.Rows[2]) != "" || !day.Hours[23].Before(day.Known) {
		t.Errorf("an old day: %+v", day)
	}
	if _, err := d.Day(t.Context(), ann, ops.DayQuery{From: d.now, To: d.now.Add(30 * time.Hour)}); jobs.CodeOf(err) != jobs.BadInput {
		t.Errorf("too long: %v", err)
	}
}

// A paused or disabled job has no plan, nor has one that debug mode holds.
func TestDayOfSilentJobs(t *testing.T) {
	d := newFixture(t)
	for _, key := range []jobs.Key{"app.other", "app.paused"} {
		d.recurring(jobs.Options{Key: key, Cron: "0 * * * * *"})
	}
	d.apply(kernel.Pause{Key: "app.paused", Until: d.now.Add(90 * time.Minute)})
	day := d.day(dayOf(2026, 11, 21, time.UTC))
	for _, row := range day.Rows {
		if want := map[jobs.Key]int{"app.often": 60, "app.other": 60, "app.paused": 30}[row.Job]; row.Hours[13].Planned != want {
			t.Errorf("%s has %d due times at 13:00, want %d", row.Job, row.Hours[13].Planned, want)
		}
	}
	d.apply(kernel.Configure{RecurringDebug: new(true)})
	d.now = d.now.Add(time.Second)
	if day := d.day(dayOf(2026, 11, 21, time.UTC)); hoursOf(day, day.Rows[1]) != "" {
		t.Errorf("in debug mode: %s", hoursOf(day, day.Rows[1]))
	}
}

// Many jobs are rows of apps, and an app's jobs are pages. Work is bounded.
func TestDayOfManyJobs(t *testing.T) {
	d := newFixture(t)
	for i := range 120 {
		d.recurring(jobs.Options{Key: jobs.Key(fmt.Sprintf("app.n%03d", i)), Cron: "0 15 * * * *"})
	}
	d.run("app.work", kernel.OutcomeSuccess)
	q := dayOf(2026, 11, 21, time.UTC)
	day := d.day(q)
	if !day.ByApp || len(day.Rows) != 1 || day.Rows[0].App != "app" || day.Rows[0].Jobs != 123 || day.Rows[0].Hours[13].Planned != 180 || day.Rows[0].Hours[12].Ran != 1 {
		t.Fatalf("by app: %+v", day)
	}
	var pages []int
	for q.App = "app"; ; q.After = day.Next {
		day = d.day(q)
		if pages = append(pages, len(day.Rows)); day.Next == "" || len(pages) > 9 {
			break
		}
	}
	if fmt.Sprint(pages) != "[50 50 23]" {
		t.Errorf("pages of %v jobs", pages)
	}
	for i := range 300 { // each has other due times: 432,000 in all
		d.recurring(jobs.Options{Key: jobs.Key(fmt.Sprintf("app.m%03d", i)), Every: time.Minute, Start: d.now.Add(time.Duration(i) * time.Millisecond)})
	}
	day = d.day(dayOf(2026, 11, 22, time.UTC))
	if day.Left != 92+122 { // those, and the jobs after them
		t.Errorf("%d jobs were left out", day.Left)
	}
}
