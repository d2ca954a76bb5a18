package controlplane

import (
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// However many targets of one tenant are slow, others send.
func TestSlowTargetsDelayNoOtherTenant(t *testing.T) {
	p := alarmPost{busy: map[alarmTarget]bool{}}
	taken := 0
	for i := range 2 * kernel.AlarmMessages.Most {
		if p.take(alarmTarget{"greedy", fmt.Sprint("target", i)}) {
			taken++
		}
	}
	if taken != kernel.AlarmMessages.Most/2 {
		t.Errorf("one tenant has %d messages under way, want %d", taken, kernel.AlarmMessages.Most/2)
	}
	if modest := (alarmTarget{"modest", "chat"}); !p.take(modest) || p.take(modest) {
		t.Error("another tenant has one message to its target under way, and only one")
	}
}
