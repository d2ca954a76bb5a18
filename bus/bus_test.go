package bus_test

import (
	"testing"

	"github.com/carillon-scheduler/carillon/bus"
)

func TestAPrincipalSpeaksForItsOwnWorkersOnly(t *testing.T) {
	for _, c := range []struct {
		principal, worker string
		want              bool
	}{
		{"billing", "billing", true}, {"billing", "billing-5f2a", true}, {"billing-2", "billing-2-5f2a", true},
		{"billing", "billing-", false}, {"billing", "billing2", false}, {"billing", "bill", false}, {"billing", "", false},
		{"billing", "Billing-5f", false}, {"billing-5f", "billing", false}, {"billing", "billing-2-5f2a", false},
	} {
		p := bus.Principal{Role: bus.Worker, Name: c.principal}
		if got := p.SpeaksFor(c.worker); got != c.want {
			t.Errorf("%s speaks for %q: %v", c.principal, c.worker, got)
		}
	}
}
