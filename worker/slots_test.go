package worker_test

import (
	"testing"
	"testing/synctest"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// A worker that names no slots has as many as its cores can use, and no more handlers at once. Only one that says so
// is unlimited.
func TestSlotsAreBoundedUnlessUnlimited(t *testing.T) {
	for _, c := range []struct {
		slots, introduced, atOnce int
	}{
		{0, worker.DefaultSlots(), worker.DefaultSlots()},
		{3, 3, 3},
		{worker.Unlimited, 0, 2*worker.DefaultSlots() + 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, g := newStage(t), newGate()
			w, _ := s.start(worker.Config{Slots: c.slots}, handler(jobs.Options{}, g.run))
			if info := s.heartbeats[0].Info; info == nil || info.Slots != c.introduced || w.Status().Slots != c.introduced {
				t.Errorf("%d slots: introduced with %+v, status %d", c.slots, info, w.Status().Slots)
			}
			for range 2*worker.DefaultSlots() + 1 {
				s.create("j", struct{}{})
			}
			if n := g.inside(); n != c.atOnce {
				t.Errorf("%d slots: %d handlers at once, want %d", c.slots, n, c.atOnce)
			}
			close(g.open)
		})
	}
	if worker.DefaultSlots() < 16 {
		t.Errorf("%d slots by default", worker.DefaultSlots())
	}
}
