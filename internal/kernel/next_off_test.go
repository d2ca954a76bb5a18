//go:build !nextrules

package kernel

import (
	"testing"
	"unsafe"
)

// A usual build knows nothing of the version that tests of upgrades add. Until the first release it knows one version.
func TestNextRulesAreInNoRelease(t *testing.T) {
	if ApplyVersion != FirstApplyVersion || unsafe.Sizeof(nextCreate{})+unsafe.Sizeof(nextRun{}) != 0 || wireNextCommand(nil, NewestVerb+1, nil) {
		t.Error("this build knows the next rules")
	}
}
