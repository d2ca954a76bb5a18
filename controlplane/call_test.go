package controlplane_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A worker whose connection went with the last leader comes within moments, and then learns soon that another one
// leads: until it sends a heartbeat, it is sent nothing. Later the call is repeated now and then.
func TestANewLeaderCallsUntilWorkersCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		var calls atomic.Int64
		ear := h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "w1"})
		defer ear.Close()
		if err := ear.Listen(h.ctx, "", bus.TopicCancel, "w1", func(s bus.Signal) {
			if stop, err := bus.Decode[bus.Stop](s.Data); err == nil && stop.Term > 0 {
				calls.Add(1)
			}
		}); err != nil {
			t.Fatal(err)
		}
		h.start()
		time.Sleep(500 * time.Millisecond)
		if n := calls.Load(); n < 10 || n > 12 {
			t.Errorf("%d calls in half a second", n)
		}
		before := calls.Load()
		time.Sleep(time.Minute)
		if n := calls.Load() - before; n < 12 || n > 20 {
			t.Errorf("%d calls in the minute after that", n)
		}
	})
}
