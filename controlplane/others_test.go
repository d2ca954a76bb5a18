package controlplane

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Workers for all jobs get those that no worker has by name; a worker that has the job goes first.
func TestOthersServeUnnamedJobs(t *testing.T) {
	m := func(any bool, keys ...jobs.Key) *member {
		info := bus.WorkerInfo{Any: any, Keys: map[jobs.Key]int{}}
		for _, k := range keys {
			info.Keys[k] = 1
		}
		return &member{info: info, seen: time.Now(), offered: map[jobs.Key]int{}}
	}
	of := func(key jobs.Key, work string) *outstanding {
		return &outstanding{offer: bus.Offer{Key: key}, work: work}
	}
	a := &app{workers: map[string]*member{"x": m(true, "carillon.notify"), "y": m(true, "carillon.notify")}, shared: map[jobs.Key]bool{}, turns: map[jobs.Key]*turns{}}
	a.measure()
	if !a.common(of("ping", "")) || !a.common(of("carillon.notify", "")) || !a.common(of("ping", "exec")) {
		t.Error("all serve all, and the shared lane is not for it")
	}
	code, ping := m(false, "own"), of("ping", "")
	a.workers["z"] = code
	a.measure()
	if a.common(of("ping", "")) || a.common(of("own", "")) {
		t.Error("not all serve it, and the shared lane is for it")
	}
	if code.may(ping) || !a.workers["x"].may(ping) {
		t.Error("ping goes to a worker for all jobs")
	}
	if able := byName(a.order, "own"); len(able) != 1 || able[0] != code {
		t.Errorf("own goes to %d workers, want the one that has it", len(able))
	}
	if able := byName(a.order, "ping"); len(able) != 3 {
		t.Errorf("%d workers are left for ping", len(able))
	}
	delete(a.workers, "z")
	a.workers["x"].info.Only, a.workers["y"].info.Only = "exec", "http"
	a.measure()
	if a.common(of("ping", "exec")) || a.common(of("ping", "")) || !a.common(of("carillon.notify", "")) {
		t.Error("some workers run only commands, others only HTTP jobs, and the shared lane is for either")
	}
	if x, y := a.workers["x"], a.workers["y"]; !x.may(of("ping", "exec")) || y.may(of("ping", "exec")) || x.may(ping) || y.may(ping) {
		t.Error("a worker gets what it does not run")
	}
	a.workers["y"].info.Only = "exec"
	a.measure()
	if !a.common(of("ping", "exec")) || a.common(of("ping", "")) {
		t.Error("all workers run only commands, and the shared lane is for something else")
	}
}
