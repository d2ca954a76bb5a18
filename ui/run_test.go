package ui

import (
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

func TestAttempts(t *testing.T) {
	t0 := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }
	run := &kernel.Run{State: jobs.Terminated, Error: "no, and at length", Moves: []kernel.Move{
		{State: jobs.Scheduled, At: t0.Add(-time.Hour)}, {State: jobs.Enqueued, At: at(0)},
		{State: jobs.Processing, At: at(10), Attempt: 1, By: "w1"}, {State: jobs.Failed, Cause: kernel.ByTimeout, At: at(30), Attempt: 1, Text: "late"},
		{State: jobs.Processing, At: at(80), Attempt: 2, By: "w2"}, {State: jobs.Failed, At: at(100), Attempt: 2, Text: "no"}, {State: jobs.Terminated, At: at(100), Attempt: 2, Text: "no"},
	}}
	list, skipped := attemptsOf(run, at(500))
	if len(list) != 2 || skipped != 0 {
		t.Fatalf("%d attempts, %d skipped", len(list), skipped)
	}
	a, b := list[0], list[1]
	if a.State != jobs.Failed || a.Waited != 10*time.Second || a.Took != 20*time.Second || a.WaitX != 0 || a.WaitW != 100 || a.RunX != 100 || a.RunW != 200 || a.Why != "timeout" {
		t.Errorf("the first: %+v", a)
	}
	if b.State != jobs.Terminated || b.Waited != 50*time.Second || b.WaitX != 300 || b.WaitW != 500 || b.RunX != 800 || b.RunW != 200 || b.Error != "no, and at length" || b.Worker != "w2" {
		t.Errorf("the second: %+v", b)
	}
	// One that is under way ends now.
	run.State, run.Error, run.Moves = jobs.Processing, "", run.Moves[:5]
	if list, _ := attemptsOf(run, at(90)); list[1].State != jobs.Processing || list[1].Took != 10*time.Second {
		t.Errorf("under way: %+v", list[1])
	}
	run.Moves = nil
	for i := range 40 {
		run.Moves = append(run.Moves, kernel.Move{State: jobs.Processing, At: at(2 * i), Attempt: uint32(i + 1)}, kernel.Move{State: jobs.Failed, At: at(2*i + 1), Attempt: uint32(i + 1)})
	}
	if list, skipped := attemptsOf(run, at(500)); len(list) != mostAttempts || skipped != 10 || list[0].N != 11 || list[0].WaitX != 0 {
		t.Errorf("of many: %d, %d skipped, first %+v", len(list), skipped, list[0])
	}
}

// What is copied into a shell is one command, whatever the arguments are.
func TestCurl(t *testing.T) {
	u := &UI{base: "/base"}
	run := &kernel.Run{Key: "app.work", Args: []byte(`{"x":"'; touch /tmp/oops; '$(id)` + "`id`" + `"}`)}
	text := u.curl(httptest.NewRequest("GET", "http://host.example:8080/runs/1", nil), run)
	if !strings.Contains(text, "http://host.example:8080/base/api/v1/jobs/app.work/trigger") || !strings.Contains(text, "$CARILLON_TOKEN") {
		t.Error(text)
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		tests.Missing(t, err.Error())
	}
	out, err := exec.CommandContext(t.Context(), shell, "-c", `curl() { for last; do :; done; printf %s "$last"; }; `+text).Output()
	if err != nil || string(out) != `{"args":`+string(run.Args)+`}` {
		t.Errorf("the shell reads %s (%v)", out, err)
	}
	if got := goCall(run); !strings.Contains(got, `"app.work"`) || !strings.Contains(got, `\u0060`) && !strings.Contains(got, "\"{") {
		t.Error(got)
	}
}

func TestShortDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{30 * time.Second: "30s", time.Minute: "1m", 90 * time.Second: "1m30s", time.Hour: "1h", 90 * time.Minute: "1h30m", 0: "0s", 24 * time.Hour: "24h"} {
		if got := shortDuration(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
