package ui_test

import (
	"html"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/ui"
)

var overviewNumber = regexp.MustCompile(`<a class="stat[^"]*" href="([^"]+)">.*?</span><b>(\d+)\+?</b></a>`)

// Each number of the first page leads to a list that has exactly what it counts.
func TestOverviewNumbersLeadToTheirLists(t *testing.T) {
	s := newScene(t)
	now := time.Now()
	clock := func() time.Time { return now.Add(2 * time.Hour) } // what has ended so far is not of the last hour
	for range 3 {
		s.apply(kernel.Create{ID: jobs.NewID(now), Key: "app.work"})
	}
	for _, later := range []bool{false, true} {
		config := ops.Config{Store: s.store, Logs: s.logs, Live: s.live}
		if later {
			config.Now = clock
		}
		s.Handler = ui.New(ui.Config{Ops: ops.New(config)})
		_, body := s.get("/")
		found := overviewNumber.FindAllStringSubmatch(body, -1)
		if len(found) != 6 {
			t.Fatalf("the first page has %d numbers, want 6: %q", len(found), found)
		}
		for _, number := range found {
			path := html.UnescapeString(number[1])
			answer, list := s.get(path)
			rows := strings.Count(list, `name="id"`)
			if path == "/workers" {
				rows = strings.Count(list, `<tr data-key="w1"`)
			}
			if answer.StatusCode != 200 || strconv.Itoa(rows) != number[2] {
				t.Errorf("later: %t: the first page counts %s, and %s has %d (%d)", later, number[2], path, rows, answer.StatusCode)
			}
			if later && strings.Contains(path, "within") && number[2] != "0" {
				t.Errorf("%s runs ended within the last hour, want 0", number[2])
			}
		}
	}
	if _, body := s.get("/bulk/runs/retry?state=Terminated&within=1h"); !strings.Contains(body, "No finished runs match.") {
		t.Error("an action on all that ended within an hour is on others")
	}
	if answer, body := s.get("/runs?within=soon"); answer.StatusCode != 422 || !strings.Contains(body, `id="fault-within"`) {
		t.Errorf("an invalid time since the end: %d", answer.StatusCode)
	}
}
