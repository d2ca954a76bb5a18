package ui_test

import (
	"strings"
	"testing"
)

// The overview and the page of a job show how many runs finished on each of the last seven days.
func TestAWeekOfFinishedRuns(t *testing.T) {
	s := newScene(t)
	for path, want := range map[string]string{"/": "1 succeeded, 1 skipped, 1 cancelled, 1 terminated", "/jobs/app.work": "1 succeeded, 1 skipped, 1 cancelled, 1 terminated", "/jobs/app.nightly": "0 succeeded"} {
		_, body := s.get(path)
		_, week, _ := strings.Cut(body, "Finished per day: ")
		label, chart, _ := strings.Cut(week, "\"")
		chart, _, _ = strings.Cut(chart, "</figure>")
		if !strings.Contains(label, want) || strings.Count(chart, "<tr><th scope=\"row\">") != 7 {
			t.Errorf("%s: %q, want %q and seven rows", path, label, want)
		}
	}
}
