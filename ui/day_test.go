package ui_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// The page of a day has the runs of past hours and the due times of later ones, with links.
func TestDay(t *testing.T) {
	s := newScene(t)
	s.apply(kernel.Configure{RecurringDebug: new(false), TriggeredDebug: new(false)})
	_, body := s.get("/forecast/day")
	for _, want := range []string{`title="ran">✓ <a href="/runs?from=`, `job=app.work&amp;state=Succeeded&amp;to=`, `title="failed">✕ <a href="/runs?`, `aria-current="time"`, `" class="now"><span class="good"`, `<td data-label="`} {
		if !strings.Contains(body, want) {
			t.Errorf("today lacks %s", want)
		}
	}
	day := time.Now().AddDate(0, 0, 30).Format(time.DateOnly)
	_, body = s.get("/forecast/day?zone=Europe/Berlin&day=" + day)
	if !strings.Contains(body, `title="planned">○ <a href="/jobs/app.nightly">1</a>`) || strings.Contains(body, `title="ran"`) || strings.Contains(body, `class="now"`) {
		t.Errorf("a later day has no plan: %s", body)
	}
	if !strings.Contains(body, "zone=Europe%2FBerlin") {
		t.Error("the links to other days lose the zone")
	}
	if _, body = s.get("/forecast/day?day=2020-02-29"); !strings.Contains(body, "are counted by day only") {
		t.Error("a day in the past does not show that its hours are gone")
	}
	if _, body = s.get("/forecast"); !strings.Contains(body, `href="/forecast/day"`) {
		t.Error("the forecast has no link to it")
	}
	// In Havana there is no midnight on this day: it begins at one o'clock.
	for at, links := range map[string][2]string{"2027-03-13": {"2027-03-12", "2027-03-14"}, "2027-03-14": {"2027-03-13", "2027-03-15"}} {
		r, body := s.get("/forecast/day?zone=America/Havana&day=" + at)
		if r.StatusCode != http.StatusOK || !strings.Contains(body, "day="+links[0]) || !strings.Contains(body, "day="+links[1]) {
			t.Errorf("%s in Havana: %s, want links to %q: %s", at, r.Status, links, body)
		}
	}
	for _, path := range []string{"/forecast/day?day=2026-13-01", "/forecast/day?day=%3Cb%3E", "/forecast/day?zone=Nowhere"} {
		if r, _ := s.get(path); r.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
}
