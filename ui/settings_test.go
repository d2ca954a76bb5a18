package ui_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The page shows where each setting comes from, what it overrules, and resets it.
func TestSettingsShowTheirOrigin(t *testing.T) {
	s := newScene(t)
	s.apply(kernel.Configure{File: &kernel.File{RecurringDebug: new(false), Defaults: kernel.Settings{Retries: new(3), Zone: new("Europe/Berlin")}}})
	row := func(key string, want ...string) {
		t.Helper()
		_, body := s.get("/settings")
		_, body, found := strings.Cut(body, key)
		body, _, _ = strings.Cut(body, "</tr>")
		for _, w := range want {
			if !found || !strings.Contains(body, w) {
				t.Errorf("%s lacks %q: %s", key, w, body)
			}
		}
	}
	row(`data-key="defaults.retries"`, ">3<", "configuration file")
	row(`data-key="defaults.timeout"`, ">1h<", "built in")
	for _, form := range []url.Values{{"default": {"retries"}, "value": {"5"}}, {"default": {"zone"}, "value": {"Asia/Tokyo"}, "app": {"billing"}}} {
		if answer, body := s.post("/settings", form); answer.StatusCode != 303 {
			t.Fatalf("%v: %s", form, body)
		}
	}
	s.apply(kernel.Configure{RecurringDebug: new(true)})
	row(`data-key="defaults.retries"`, ">5<", "edited", "overrules the configuration file: 3", ">Reset<")
	row(`data-key="billing.defaults.zone"`, "Asia/Tokyo", "edited", ">Reset<")
	row(`data-source="recurringDebug"`, "overrules the configuration file: false", ">Reset<")
	for _, form := range []url.Values{{"reset": {"defaults.retries"}}, {"reset": {"recurringDebug"}}, {"reset": {"defaults.zone"}, "app": {"billing"}}} {
		if answer, body := s.post("/settings", form); answer.StatusCode != 303 {
			t.Fatalf("%v: %s", form, body)
		}
	}
	row(`data-key="defaults.retries"`, ">3<", "configuration file")
	row(`data-source="recurringDebug"`, "configuration file")
	if _, body := s.get("/settings"); strings.Contains(body, "Asia/Tokyo") {
		t.Error("the default of the app is still set")
	}
	for wrong, says := range map[string]string{"zone=Mars/Base": "default zone", "retries=many": "want a whole number", "schedule=@daily": "has no default", "overlap=often": "overlap"} {
		name, value, _ := strings.Cut(wrong, "=")
		if answer, body := s.post("/settings", url.Values{"default": {name}, "value": {value}}); answer.StatusCode != 422 || !strings.Contains(body, says) || !strings.Contains(body, `value="`+value+`"`) {
			t.Errorf("%s: %d, want %q", wrong, answer.StatusCode, says)
		}
	}
}

// The page of a job shows where the value of a setting comes from.
func TestAJobShowsTheOriginOfItsSettings(t *testing.T) {
	s := newScene(t)
	s.apply(kernel.Configure{File: &kernel.File{Defaults: kernel.Settings{Timeout: new(5 * time.Minute)}}})
	s.apply(kernel.Configure{Defaults: &kernel.Settings{Misfire: new(jobs.MisfireSkip)}})
	s.apply(kernel.Configure{App: "app", Defaults: &kernel.Settings{Retries: new(4)}})
	s.apply(kernel.Refresh{Key: "app.nightly"})
	_, body := s.get("/jobs/app.nightly")
	for label, want := range map[string]string{"Timeout of an attempt": "configuration file", "Missed due times": "default of all jobs", "Retries": "app default", "Schedule": "code"} {
		_, row, _ := strings.Cut(body, "<dt>"+label+"</dt>")
		if row, _, _ = strings.Cut(row, "</dd>"); !strings.Contains(row, ">"+want+"<") {
			t.Errorf("%s lacks %q: %s", label, want, row)
		}
	}
}
