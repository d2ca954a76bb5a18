package ui_test

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// walkPages follows the links to the next page and returns the keys of all rows.
func (s *scene) walkPages(path, row string) (keys []string, pages int) {
	s.t.Helper()
	rows, next := regexp.MustCompile(row), regexp.MustCompile(`href="([^"]*)">Next page`)
	for ; path != "" && pages < 20; pages++ {
		answer, body := s.get(path)
		if answer.StatusCode != 200 {
			s.t.Fatalf("%s: %d", path, answer.StatusCode)
		}
		for _, m := range rows.FindAllStringSubmatch(body, -1) {
			keys = append(keys, m[1])
		}
		path = ""
		if m := next.FindStringSubmatch(body); m != nil {
			path = html.UnescapeString(m[1])
		}
	}
	return keys, pages
}

// Long lists of tenants and of workers have pages, each row on one of them, and a filter.
func TestLongListsHavePages(t *testing.T) {
	s := newScene(t)
	for i := range 120 {
		title := "The tenant"
		if i == 77 {
			title = "Very Special"
		}
		s.apply(kernel.SetTenant{Name: jobs.Tenant(fmt.Sprintf("tenant-%03d", i)), Create: true, Title: &title})
	}
	tenant := `<tr data-key="(tenant-[0-9]+)"`
	if keys, pages := s.walkPages("/tenants", tenant); len(keys) != 120 || pages != 3 || keys[0] != "tenant-000" || keys[119] != "tenant-119" {
		t.Errorf("%d tenants on %d pages: %v", len(keys), pages, keys)
	}
	for _, q := range []string{"special", "tenant-077"} {
		if keys, _ := s.walkPages("/tenants?q="+q, tenant); len(keys) != 1 || keys[0] != "tenant-077" {
			t.Errorf("filter %s: %v", q, keys)
		}
	}
	s.live.crowd = nil
	for i := range 230 {
		w := bus.WorkerInfo{App: fmt.Sprint("app", i/150), Name: fmt.Sprintf("worker-%03d", i), Slots: 2}
		s.live.crowd = append(s.live.crowd, ops.Worker{WorkerInfo: w, Running: 1})
	}
	if keys, pages := s.walkPages("/workers", `<tr data-key="(worker-[0-9]+)"`); len(keys) != 230 || pages != 3 || keys[0] != "worker-000" || keys[229] != "worker-229" {
		t.Errorf("%d workers on %d pages: %v", len(keys), pages, keys)
	}
	if _, body := s.get("/workers"); !strings.Contains(body, "150 workers, 150 runs in 300 slots") {
		t.Error("the sums of an app are not those of all its workers")
	}
}
