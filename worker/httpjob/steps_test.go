package httpjob_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// With qos 1 a run continues from the step at which everything was stopped, at any step: answered requests are never
// sent again, an open one is sent once more, and nothing is left out. With qos 0 it starts over.
func TestS2_53_54GoesOnFromEachStep(t *testing.T) {
	tests.Long(t)
	steps := []string{"/1", "/2", "/3", "/check"}
	for qos := range 2 {
		for k, held := range steps {
			t.Run(fmt.Sprintf("qos %d%s", qos, strings.ReplaceAll(held, "/", " at ")), func(t *testing.T) {
				want := append(append([]string(nil), steps[:k+1]...), steps[k*qos:]...)
				stopAt(t, qos, held, strings.Join(want, " "))
			})
		}
	}
}

func stopAt(t *testing.T, qos int, held, want string) {
	dir := t.TempDir()
	hold, reached := make(chan struct{}), make(chan struct{}, 1)
	p := &site{t: t, times: map[string]int{}}
	p.answers = func(n int, r seen) (int, string) {
		path, _, _ := strings.Cut(r.path, "?")
		if path == held && n == 1 {
			reached <- struct{}{}
			<-hold // until the process that asks is gone
		}
		if path == "/check" {
			return 200, `{"status":"succeed","data":` + r.header.Get("X-First") + `}`
		}
		return 200, `{"path":"` + path + `"}`
	}
	p.serve()
	stop := p.start(dir)
	p.make("steps", fmt.Sprintf(`{"qos":%d,"async":true,"request":[{"url":"FAR/1","respEnvName":"A"},{"url":"FAR/2"},{"url":"FAR/3","headers":{"X-Second":"${responses[1].path}"}}],
		"checkUrl":{"url":"FAR/check","headers":{"X-First":"${A}"}}}`, qos), kernel.Settings{})
	id := p.begin("steps", "")
	<-reached
	stop()
	close(hold)
	stop = p.start(dir)
	defer stop()
	if run := p.end(id); run.State != jobs.Succeeded || string(run.Result) != `{"path":"/1"}` || run.Attempt != 2 {
		t.Errorf("%s %s after %d: %s", run.State, run.Error, run.Attempt, run.Result)
	}
	var paths []string
	for _, r := range p.got() {
		path, _, _ := strings.Cut(r.path, "?")
		paths = append(paths, path)
		if second := r.header.Get("X-Second"); path == "/3" && second != "/2" {
			t.Errorf("the third request got %q from the second", second)
		}
	}
	if got := strings.Join(paths, " "); got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}
