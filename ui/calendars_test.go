package ui_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A calendar is written on a page, shown with what it excludes, and stays while a job uses it.
func TestCalendarPages(t *testing.T) {
	s := newScene(t)
	answer, body := s.get("/calendars")
	s.has("no calendar", answer, body, 200, "No calendars yet.")
	answer, body = s.post("/calendars", url.Values{"name": {"weekend"}, "rules": {"SAT,SUN # closed\r\n2026-02-30"}})
	s.has("a day that does not exist", answer, body, 422, "rule 2", "SAT,SUN # closed\n2026-02-30")
	answer, body = s.post("/calendars", url.Values{"name": {"weekend"}, "rules": {"SAT,SUN # " + hostile}, "zone": {"Europe/Berlin"}})
	s.has("written", answer, body, 303)
	if to := answer.Header.Get("Location"); to != "/calendars/weekend?did=saved" {
		t.Errorf("leads to %s", to)
	}
	answer, body = s.post("/calendars", url.Values{"name": {"weekend"}, "rules": {""}})
	s.has("a second one of the name", answer, body, 409, "already")
	s.declare(jobs.NewRecurring(jobs.RecurringFunc(nil), jobs.Options{Key: "app.hourly", Cron: "@hourly", Calendars: []string{"weekend"}}))
	answer, body = s.get("/calendars/weekend")
	s.has("shown", answer, body, 200, "app.hourly", "SAT,SUN # &#34;&gt;&lt;script&gt;", "A calendar in use cannot be deleted")
	if strings.Count(body, "SAT,SUN") < 11 {
		t.Errorf("ten excluded due times are not shown: %s", body)
	}
	answer, body = s.post("/calendars/weekend", url.Values{"rules": {"SUN"}, "revision": {"7"}})
	s.has("of another revision", answer, body, 409, "SUN")
	answer, body = s.post("/calendars/weekend/delete", nil)
	s.has("while it is used", answer, body, 409, "app.hourly")
	s.apply(kernel.Edit{Key: "app.hourly", Set: kernel.Settings{Calendars: new([]string{})}})
	answer, body = s.post("/calendars/weekend/delete", nil)
	s.has("deleted", answer, body, 303)
	answer, body = s.get("/calendars/weekend")
	s.has("gone", answer, body, 404)
}

// The forecast leads to the edit that it proposes, which shows what it would do.
func TestForecastPage(t *testing.T) {
	s := newScene(t)
	answer, body := s.get("/forecast")
	s.has("nothing crowded", answer, body, 200, "No crowded minutes.")
	// All in an hour that is far away: of the minute that it is now, the next crowd is a minute too far.
	daily := fmt.Sprintf("0 %d * * *", time.Now().UTC().Add(12*time.Hour).Hour())
	for i := range 9 {
		s.declare(jobs.NewRecurring(jobs.RecurringFunc(nil), jobs.Options{Key: jobs.Key(fmt.Sprintf("report-%d", i)), Cron: daily}))
	}
	// A look that was slow is shown for up to a minute, so the new jobs may come a little later.
	for by := time.Now().Add(90 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if answer, body = s.get("/forecast"); strings.Contains(body, "report-0") || time.Now().After(by) {
			break
		}
	}
	s.has("crowded", answer, body, 200, "report-0", `class="h4"`, daily)
	_, link, _ := strings.Cut(body, `href="/jobs/report-0/edit?schedule=`)
	link, _, _ = strings.Cut(link, `"`)
	if link == "" {
		t.Fatalf("no proposal: %s", body)
	}
	answer, body = s.get("/jobs/report-0/edit?schedule=" + link)
	s.has("the edit", answer, body, 200, `name="was.schedule" value="`+daily+`"`, "Next ten fires", "<del class=\"dim\">"+daily+"</del>")
	answer, body = s.get("/jobs/report-0/edit?schedule=99+99+*+*+*")
	s.has("a proposal that cannot be", answer, body, 422)
	if d := s.definition("report-0"); d.Policy.Schedule != daily {
		t.Errorf("a link has edited it: %s", d.Policy.Schedule)
	}
}
