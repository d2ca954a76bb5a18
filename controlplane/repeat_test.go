package controlplane_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// A push that is lost is sent again soon, also by a leader that has had nothing to send for a while.
func TestALostPushIsRepeatedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var j journal
		wire := h.cabled(worker.Config{Name: "w1"}, j.work("quick", time.Second, true, jobs.Options{}))
		time.Sleep(10*time.Second + time.Millisecond)
		wire.cut.Store(true)
		id := h.enqueue("quick")
		synctest.Wait()
		wire.cut.Store(false)
		time.Sleep(400 * time.Millisecond)
		if run := h.run(id); run.Attempt != 1 || j.starts() != 1 {
			t.Errorf("after 400 ms it has begun %d times; it is in attempt %d, %s", j.starts(), run.Attempt, run.State)
		}
	})
}
