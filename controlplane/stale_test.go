package controlplane_test

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// A leader that was replaced unknowingly fires nothing: each of its fires names its term, which is not the store's any
// more.
func TestAReplacedLeaderFiresNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var n atomic.Int64
		h.worker(worker.Config{}, job("tick", jobs.Options{Every: time.Second, MaxConcurrency: jobs.None}, &n))
		time.Sleep(10 * time.Second)
		before := len(h.runs("tick"))
		// It leads as well, and the first one does not know.
		end := h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n2"})
		defer end.Close()
		next, err := controlplane.New(controlplane.Config{Node: "n2", Store: h.full, Clock: h.clock, Bus: end, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		stop := h.spawn(next.Run)
		synctest.Wait()
		began := time.Now()
		time.Sleep(time.Minute)
		by := map[string]int{}
		for _, run := range h.runs("tick") {
			if run.Created.After(began) {
				by[run.Moves[0].By]++
			}
		}
		if before == 0 || len(by) != 1 || by["leader:n2"] < 59 {
			t.Errorf("the runs of a minute were made by %v", by)
		}
		if term, _ := h.cp.Leading(); term == 0 {
			t.Error("the first one knows that it leads no more: this shows nothing")
		}
		stop()
	})
}
