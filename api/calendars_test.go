package api_test

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A calendar is written, shown with what it excludes, refused while it is used, and taken away.
func TestCalendars(t *testing.T) {
	d := newFixture(t)
	const path = "/api/v1/calendars/weekend"
	if p := d.send("PUT", path, `{"rules":["SAT,SUN","2026-02-30"]}`).problem(t); p.Status != 422 || !strings.Contains(p.Detail, "rule 2") {
		t.Errorf("a day that does not exist: %+v", p)
	}
	c := read[api.Calendar](t, d.send("PUT", path, `{"rules":["SAT,SUN # closed"],"zone":"Europe/Berlin"}`))
	if c.Revision != 1 || len(c.Rules) != 1 || c.Zone != "Europe/Berlin" {
		t.Errorf("written: %+v", c)
	}
	if p := d.send("PUT", path, `{"rules":[],"revision":7}`).problem(t); p.Status != 412 {
		t.Errorf("another revision: %+v", p)
	}
	j := jobs.NewRecurring(jobs.RecurringFunc(nil), jobs.Options{Key: "tick", Cron: "@hourly", Calendars: []string{"weekend", "nowhere"}})
	declared, err := kernel.Declare(j)
	if err != nil {
		t.Fatal(err)
	}
	d.apply(kernel.Register{App: "billing", Worker: "w1", Start: true, Job: declared})
	c = read[api.Calendar](t, d.send("GET", path, ""))
	if len(c.Jobs) != 1 || c.Jobs[0] != "tick" || len(c.Next) != 10 {
		t.Errorf("shown: %+v", c)
	}
	for _, e := range c.Next {
		if e.Rule != "SAT,SUN # closed" {
			t.Errorf("%+v", e)
		}
	}
	job := read[api.Job](t, d.send("GET", "/api/v1/jobs/tick", ""))
	if len(job.Warnings) != 1 || !strings.Contains(job.Warnings[0], "nowhere") {
		t.Errorf("warnings %q", job.Warnings)
	}
	for _, next := range job.Next {
		for _, e := range c.Next {
			if next.Equal(e.At) {
				t.Errorf("%v is shown as due, and excluded", next)
			}
		}
	}
	if p := d.send("DELETE", path, "").problem(t); p.Status != 409 || !strings.Contains(p.Detail, "tick") {
		t.Errorf("it is used: %+v", p)
	}
	d.apply(kernel.Edit{Key: "tick", Set: kernel.Settings{Calendars: new([]string{})}})
	if a := d.send("DELETE", path, ""); a.StatusCode != 204 {
		t.Errorf("%d", a.StatusCode)
	}
	if p := d.send("GET", path, "").problem(t); p.Status != 404 {
		t.Errorf("it is gone: %+v", p)
	}
}

// One sentence says why a job does not run at a time.
func TestExplainAt(t *testing.T) {
	d := newFixture(t)
	d.send("PUT", "/api/v1/calendars/christmas", `{"rules":["12-25"]}`)
	j := jobs.NewRecurring(jobs.RecurringFunc(nil), jobs.Options{Key: "tick", Cron: "@hourly", Calendars: []string{"christmas"}})
	declared, err := kernel.Declare(j)
	if err != nil {
		t.Fatal(err)
	}
	d.apply(kernel.Register{App: "billing", Worker: "w1", Start: true, Job: declared})
	for at, want := range map[string]string{
		"2150-12-25T12:00:00Z": "The calendar christmas excludes 2150-12-25T12:00:00Z (12-25).",
		"2150-12-26T12:00:00Z": "It is due at 2150-12-26T12:00:00Z.",
		"2150-12-26T12:30:00Z": "It is not due at 2150-12-26T12:30:00Z; the nearest due times are 2150-12-26T12:00:00Z and 2150-12-26T13:00:00Z.",
		"1990-01-01T12:00:00Z": ", after 1990-01-01T12:00:00Z.",
	} {
		e := read[api.Explanation](t, d.send("GET", "/api/v1/jobs/tick/explain?at="+at, ""))
		if len(e.Text) == 0 || !strings.HasSuffix(e.Text[0], want) {
			t.Errorf("%s: %q, want %q", at, e.Text, want)
		}
	}
	// The pause is younger than the past time, and no worker is online.
	d.apply(kernel.Pause{Key: "tick", Reason: "stocktaking"})
	e := read[api.Explanation](t, d.send("GET", "/api/v1/jobs/tick/explain?at=1990-01-01T12:00:00Z", ""))
	if len(e.Text) != 2 || !strings.HasPrefix(e.Text[1], "It is paused now, by ") || !strings.HasSuffix(e.Text[1], ", after that time: stocktaking.") {
		t.Errorf("a past time, before a pause: %q", e.Text)
	}
}
