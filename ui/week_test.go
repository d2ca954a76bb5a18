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

// The statistics of a job, of an app or of all show how runs of the last day, week and month finished, and charts of the
// day and the month.
func TestStatistics(t *testing.T) {
	s := newScene(t)
	for path, want := range map[string]string{"/stats": "4 1 1 1 1", "/stats?app=app": "4 1 1 1 1", "/stats?app=none": "0 0 0 0 0", "/stats?job=app.work": "4 1 1 1 1", "/stats?job=app.nightly": "0 0 0 0 0"} {
		_, body := s.get(path)
		for _, period := range []string{"24 hours", "7 days", "30 days"} {
			_, row, _ := strings.Cut(body, `<td class="main">`+period+`</td>`)
			row, _, _ = strings.Cut(row, "</tr>")
			var got []string
			for _, cell := range strings.Split(row, `data-label="`)[1:] {
				_, n, _ := strings.Cut(cell, ">")
				n, _, _ = strings.Cut(n, "<")
				got = append(got, n)
			}
			if len(got) != 7 || strings.Join(got[:5], " ") != want {
				t.Errorf("%s: of the last %s: %q, want %s", path, period, got, want)
			}
		}
		if !strings.Contains(body, "Finished per hour: ") || strings.Count(body, "<tr><th scope=\"row\">") != 24+30 {
			t.Errorf("%s has not both charts", path)
		}
	}
}
