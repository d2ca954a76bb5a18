package controlplane

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// leading returns a board in a term that began long ago.
func leading() *board {
	var b board
	b.init(time.Minute)
	b.base = time.Now().Add(-2 * time.Hour)
	b.lead(1, 0)
	b.answering = 1
	return &b
}

// Clients choose a run's ID: the end of one run does not affect another tenant's with the same ID.
func TestAttemptsOfTwoTenantsWithOneID(t *testing.T) {
	b := leading()
	id := kernel.DerivedID("invoice-17")
	of := func(tenant jobs.Tenant) *kernel.Run {
		return &kernel.Run{Tenant: tenant, ID: id, State: jobs.Processing, Attempt: 1, Worker: "w", App: "app"}
	}
	heartbeat := func(tenant jobs.Tenant) (stop []bus.Stop, unknown []dispatch.Attempt) {
		n, err := b.heartbeat(bus.Principal{Tenant: tenant, Role: bus.Worker, Name: "w"}, bus.Heartbeat{Worker: "w", Sent: int64(b.now()), Running: []bus.Held{{ID: id, Attempt: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		return n.stop, n.unknown
	}
	note := func(run *kernel.Run) {
		now := *run
		b.note(&now, b.current(&now), b.now(), new(dispatch.Acts))
	}
	one, other := of("a"), of("b")
	note(one)
	note(other)
	other.State, other.Lingering, other.Deadline = jobs.Cancelled, true, time.Now()
	note(other)
	if stop, unknown := heartbeat("a"); len(stop) != 0 || len(unknown) != 0 {
		t.Errorf("one is stopped because the other was cancelled: %v, %v", stop, unknown)
	}
	if stop, unknown := heartbeat("b"); len(stop) != 1 || len(unknown) != 0 {
		t.Errorf("one that was cancelled gets %v, %v", stop, unknown)
	}
	other.Lingering = false
	note(other)
	if _, unknown := heartbeat("b"); len(unknown) != 1 {
		t.Error("one that has ended has a lease")
	}
	b.base = b.base.Add(-2 * time.Minute)
	if out := b.lapsed(time.Now()); len(out) != 1 || out[0].of.Tenant != "a" || out[0].expire.Unbegun {
		t.Errorf("of the one that goes on, whose worker fell silent, is expired: %+v", out)
	}
}

// The end of an attempt may be announced after the next one has started: that one keeps its lease.
func TestOlderEffectLeavesTheNextAttempt(t *testing.T) {
	b := leading()
	second := &kernel.Run{Tenant: "t", ID: kernel.DerivedID("x"), State: jobs.Processing, Attempt: 2, Worker: "w"}
	first := *second
	first.State, first.Attempt = jobs.Failed, 1
	b.note(second, b.current(second), b.now(), new(dispatch.Acts))
	b.note(&first, b.current(&first), b.now(), new(dispatch.Acts))
	b.base = b.base.Add(-2 * time.Minute)
	if out := b.lapsed(time.Now()); len(out) != 1 || out[0].expire.Attempt != 2 || !out[0].expire.Unbegun {
		t.Errorf("of the second attempt, whose worker fell silent, is expired: %+v", out)
	}
}

// An attempt that its worker has not confirmed does not time out; the time of one that was confirmed late runs from then.
func TestTimeoutsRunFromTheAnswer(t *testing.T) {
	b := leading()
	now := time.Now()
	run := &kernel.Run{Tenant: "t", ID: kernel.DerivedID("x"), State: jobs.Processing, Attempt: 1, Worker: "w", Started: now, Deadline: now.Add(time.Second)}
	b.note(run, b.current(run), b.now(), new(dispatch.Acts))
	if out := b.lapsed(now.Add(time.Minute)); len(out) != 0 {
		t.Errorf("an attempt that has not begun is expired: %+v", out)
	}
	b.base = b.base.Add(-10 * time.Second) // ten seconds later
	b.find(attemptOf(run)).confirm(b.now())
	if out := b.lapsed(now.Add(10 * time.Second)); len(out) != 0 {
		t.Errorf("an attempt that has just begun is expired: %+v", out)
	}
	if out := b.lapsed(now.Add(12 * time.Second)); len(out) != 1 || out[0].expire.Cause != kernel.ByTimeout {
		t.Errorf("of an attempt that began twelve seconds ago is expired: %+v", out)
	}
}
