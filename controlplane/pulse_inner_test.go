package controlplane

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A bucket holds the latencies up to its end, which is a quarter more at most.
func TestLateBuckets(t *testing.T) {
	last := -1
	for d := time.Duration(0); d < 40*time.Hour; d += max(time.Microsecond, d/1000) {
		i := lateBucket(d)
		if i != last && i != last+1 {
			t.Fatalf("%v is in bucket %d, after %d", d, i, last)
		}
		last = i
		if i == lateBuckets-1 {
			continue
		}
		if end := lateBound(i); d >= end || end > d+d/4+lateUnit {
			t.Fatalf("%v is in bucket %d, which ends at %v", d, i, end)
		}
	}
	if last != lateBuckets-1 || lateBound(last) < 36*time.Hour {
		t.Errorf("the last bucket is %d and ends at %v", last, lateBound(last))
	}
}

// Tenants are bounded: one too many is not counted until another has been silent for an hour.
func TestPulseTenants(t *testing.T) {
	var p pulse
	p.totals.init()
	now := time.Unix(1_800_000_000, 0)
	p.begin(1, now)
	at := now.Unix() / 60
	for i := range pulseTenants + 10 {
		p.note(&kernel.Run{Tenant: jobs.Tenant(fmt.Sprint("t", i)), State: jobs.Succeeded}, at)
	}
	if len(p.tenants) != pulseTenants {
		t.Errorf("%d tenants are counted", len(p.tenants))
	}
	p.note(&kernel.Run{Tenant: "late", State: jobs.Succeeded}, at+pulseMinutes-1)
	if p.tenants["late"] != nil {
		t.Error("a tenant too many is counted")
	}
	p.note(&kernel.Run{Tenant: "late", State: jobs.Succeeded}, at+pulseMinutes)
	if p.tenants["late"] == nil || len(p.tenants) != 1 {
		t.Errorf("an hour later %d tenants are counted", len(p.tenants))
	}
}

// Tenants are bounded in the totals, too: those beyond are counted together.
func TestTotalsTenants(t *testing.T) {
	var p pulse
	p.totals.init()
	for i := range 1000 {
		p.note(&kernel.Run{Tenant: jobs.Tenant(fmt.Sprint("t", i%500)), Kind: kernel.Kind(1 + i%2), State: jobs.Skipped}, 1)
	}
	if n := len(p.totals.runs); n > 2*MaxTenants+2 {
		t.Errorf("%d classes are counted", n)
	}
	sum := uint64(0)
	for _, s := range p.totals.runs {
		sum += s.Ended[jobs.Skipped]
	}
	if sum != 1000 || p.totals.runs[Class{OtherTenants, kernel.Recurring}] == nil || kernel.CheckName("tenant", string(OtherTenants)) == nil {
		t.Errorf("%d were counted", sum)
	}
}

func BenchmarkPulse(b *testing.B) {
	var p pulse
	p.totals.init()
	now := time.Now()
	p.begin(1, now)
	at := now.Unix() / 60
	started := &kernel.Run{Tenant: jobs.DefaultTenant, State: jobs.Processing, Due: now, Started: now.Add(300 * time.Microsecond), Attempt: 1}
	ended := &kernel.Run{Tenant: jobs.DefaultTenant, State: jobs.Succeeded, Attempt: 1}
	b.ReportAllocs()
	for b.Loop() {
		for range 1000 {
			p.mu.Lock()
			for _, run := range []*kernel.Run{started, ended} {
				if run == started || step(kernel.VerbFinish, true, false, run) {
					p.note(run, at)
				}
			}
			p.mu.Unlock()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2000, "ns/effect")
}

// A run that was requested after its due time is late from then on: by seconds, and not by a month.
func TestBackfilledRunsAreNotLate(t *testing.T) {
	asked := time.Unix(1_800_000_000, 0)
	run := &kernel.Run{Origin: kernel.FromBackfill, Due: asked.AddDate(0, -1, 0), Created: asked, Started: asked.Add(time.Second), Attempt: 1}
	if d, first := late(run); d != time.Second || !first {
		t.Errorf("it is late by %v (first attempt: %v)", d, first)
	}
	run.Origin = kernel.FromMisfire
	if d, _ := late(run); d < 28*24*time.Hour {
		t.Errorf("a misfire is late by %v", d)
	}
}

// Each way in which a run ends is counted, on the overview and in the metrics.
func TestEveryFinalStateIsCounted(t *testing.T) {
	for _, s := range kernel.FinalStates() {
		run := &kernel.Run{State: s, Kind: kernel.Triggered}
		m := new(minute)
		if m.note(run); m.counts == (Minute{}) {
			t.Errorf("state %s: minute.note in controlplane/pulse.go does not count it", s)
		}
		counted := false
		for v := kernel.Verb(1); v.String() != "?"; v++ {
			counted = counted || step(v, true, false, run)
		}
		if !counted {
			t.Errorf("state %s: step in controlplane/pulse.go returns false for each command", s)
		}
	}
}
