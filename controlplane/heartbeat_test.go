package controlplane

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Invalid progress is corrected: it is for pages, and no reason to lose the lease.
func TestProgressIsJudged(t *testing.T) {
	b := bus.Heartbeat{Worker: "w", Running: []bus.Held{{Attempt: 1, Progress: &bus.Progress{Done: -1, Total: -5, Text: strings.Repeat("x", 1<<20)}}}}
	if err := checkHeartbeat(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "w", App: "billing"}, &b); err != nil {
		t.Fatal(err)
	}
	if p := b.Running[0].Progress; p.Done != 0 || p.Total != 0 || len(p.Text) > mostWords {
		t.Errorf("it is %d of %d, with %d bytes", p.Done, p.Total, len(p.Text))
	}
}
