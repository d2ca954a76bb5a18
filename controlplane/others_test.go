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
	a := &app{workers: map[string]*member{"x": m(true, "carillon.notify"), "y": m(true, "carillon.notify")}, shared: map[jobs.Key]bool{}, turns: map[jobs.Key]*turns{}}
	a.measure()
	if !a.common("ping") || !a.common("carillon.notify") {
		t.Error("all serve all, and the shared lane is not for it")
	}
	code, ping := m(false, "own"), &outstanding{offer: bus.Offer{Key: "ping"}}
	a.workers["z"] = code
	a.measure()
	if a.common("ping") || a.common("own") {
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
}
