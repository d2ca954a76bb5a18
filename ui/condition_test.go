package ui_test

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// A job that is stopped, or has no worker, says so on its page and in each list, and nothing counts down to what will
// not fire.
func TestStoppedJob(t *testing.T) {
	s := newScene(t)
	s.apply(kernel.Configure{RecurringDebug: new(false), TriggeredDebug: new(false)})
	s.live.crowd = []ops.Worker{{WorkerInfo: bus.WorkerInfo{Name: "w1", App: "app", Keys: map[jobs.Key]int{"app.work": 2}}, Seen: time.Now()}}
	_, body := s.get("/jobs/app.nightly")
	if !strings.Contains(body, `<small><time`) || !strings.Contains(body, "No worker of the app app that is online has this job.") {
		t.Fatal("without a worker, its page does not count down, or does not say that there is none")
	}
	s.apply(kernel.Mark{Key: "app.nightly", Stopped: true})
	for path, want := range map[string][]string{
		"/jobs/app.nightly":     {`data-key="why"`, "It is stopped since <time", ">stopped</span>", "stopped: no run"},
		"/jobs":                 {">stopped</span>", ">no worker</span>"},
		"/jobs?state=stopped":   {"/jobs/app.nightly", ">stopped</span>"},
		"/jobs?state=no_worker": {"/jobs/app.typed"},
		"/":                     {"app.nightly is stopped: no online worker of the app app has it any more."},
		"/jobs/app.typed":       {"No worker of the app app that is online has this job."},
	} {
		answer, body := s.get(path)
		s.has(path, answer, body, 200, want...)
	}
	_, body = s.get("/jobs/app.nightly")
	if stat, _, _ := strings.Cut(body[strings.Index(body, "Next fire<"):], "</div>"); strings.Contains(stat, "<time") {
		t.Errorf("a stopped job counts down: %s", stat)
	}
	_, body = s.get("/jobs?state=stopped")
	if strings.Contains(body, `href="/jobs/app.work"`) || strings.Contains(body, "data-rel") {
		t.Error("the stopped jobs are not alone, or count down")
	}
	if _, body = s.get("/"); strings.Contains(body, `<td class="main"><a href="/jobs/app.nightly"`) {
		t.Error("a stopped job is among the next fires")
	}
	if answer, body := s.get("/jobs?state=odd"); answer.StatusCode != 422 || strings.Contains(body, "/bulk/") {
		t.Errorf("an unknown state: %d", answer.StatusCode)
	}
}
