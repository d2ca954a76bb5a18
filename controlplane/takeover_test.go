package controlplane_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// An HTTP worker goes to another node with a run that it holds, and its first request there is given up before it is
// answered. It has the run all the same: it is not given it once more.
func TestATakeoverWithoutAWaitingClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var j journal
		declared, err := kernel.Declare(j.work("slow", time.Minute, true, jobs.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		begin := func() (*worker.Remote, func()) {
			t.Helper()
			b := h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "w"})
			r, err := worker.NewRemote(worker.Config{App: "bells", Name: "w", Slots: 4}, "s1", worker.About{}, h.store, b, declared)
			if err != nil {
				t.Fatal(err)
			}
			stop := h.spawn(r.Run)
			if err := r.Begun(h.ctx); err != nil {
				t.Fatal(err)
			}
			return r, stop
		}
		one, stop := begin()
		one.Listed()
		id := h.enqueue("slow")
		if _, list, err := one.Poll(h.ctx, 1, "", 10*time.Second); err != nil || len(list) != 1 || list[0].ID != id {
			t.Fatalf("given %v (%v)", list, err)
		}
		stop()

		other, _ := begin()
		gone, giveUp := context.WithCancel(h.ctx)
		giveUp()
		if err := other.Has(gone, id, 1); err == nil {
			t.Fatal("the request was answered")
		}
		other.Listed()
		if _, list, err := other.Poll(h.ctx, 1, "", 8*time.Second); err != nil || len(list) != 0 {
			t.Errorf("given once more: %v (%v)", list, err)
		}
		if run, err := other.Finish(h.ctx, kernel.Finish{ID: id, Attempt: 1, Outcome: kernel.OutcomeSuccess}); err != nil || run.State != jobs.Succeeded {
			t.Errorf("its end: %+v (%v)", run, err)
		}
	})
}
