package controlplane

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Clients choose a run's ID: the end of one run does not affect another tenant's with the same ID.
func TestLeasesOfTwoTenantsWithOneID(t *testing.T) {
	var l leases
	l.init(time.Minute)
	now := time.Now()
	l.answering = now.Add(-time.Hour)
	id := kernel.DerivedID("invoice-17")
	of := func(tenant jobs.Tenant) *kernel.Run {
		return &kernel.Run{Tenant: tenant, ID: id, State: jobs.Processing, Attempt: 1, Worker: "w"}
	}
	heartbeat := func(tenant jobs.Tenant) (stop []bus.Stop, unknown []bus.Held) {
		return l.heartbeat(bus.Principal{Tenant: tenant, Role: bus.Worker, Name: "w"}, "w", []bus.Held{{ID: id, Attempt: 1}}, now)
	}
	a, b := of("a"), of("b")
	l.note(a, now)
	l.note(b, now)
	b.State, b.Lingering, b.Deadline = jobs.Cancelled, true, now
	l.note(b, now)
	if stop, unknown := heartbeat("a"); len(stop) != 0 || len(unknown) != 0 {
		t.Errorf("one is stopped because the other was cancelled: %v, %v", stop, unknown)
	}
	if stop, unknown := heartbeat("b"); len(stop) != 1 || len(unknown) != 0 {
		t.Errorf("one that was cancelled gets %v, %v", stop, unknown)
	}
	b.Lingering = false
	l.note(b, now)
	if _, unknown := heartbeat("b"); len(unknown) != 1 {
		t.Error("one that has ended has a lease")
	}
	if out := l.lapsed(now.Add(2*time.Minute), now); len(out) != 1 || out[0].tenant != "a" {
		t.Errorf("of the one that goes on, whose worker fell silent, is expired: %v", out)
	}
}

// The end of an attempt may be announced after the next one was claimed: that one keeps its lease.
func TestOlderEffectLeavesTheNextLease(t *testing.T) {
	var l leases
	l.init(time.Minute)
	now := time.Now()
	l.answering = now.Add(-time.Hour)
	second := &kernel.Run{Tenant: "t", ID: kernel.DerivedID("x"), State: jobs.Processing, Attempt: 2, Worker: "w"}
	first := *second
	first.State, first.Attempt = jobs.Failed, 1
	l.note(second, now)
	l.note(&first, now)
	if out := l.lapsed(now.Add(2*time.Minute), now); len(out) != 1 || out[0].expire.Attempt != 2 {
		t.Errorf("of the second attempt, whose worker fell silent, is expired: %v", out)
	}
}
