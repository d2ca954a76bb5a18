package judge

import (
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// The judge's own table of moves is that of the kernel, so that a new state or edge is added on purpose in both.
func TestSteps(t *testing.T) {
	for _, s := range append(kernel.States(), kernel.New) {
		name := s.String()
		if s == kernel.New {
			name = ""
		}
		var want []string
		for _, next := range kernel.NextStates(s) {
			want = append(want, next.String())
		}
		if got, known := steps[name]; !known || !slices.Equal(got, want) {
			t.Errorf("steps in chaos/judge/moves.go has %q after %q, want %q as in internal/kernel/state.go", got, name, want)
		}
	}
	if len(steps) != kernel.StateCount {
		t.Errorf("steps in chaos/judge/moves.go has %d states, want %d", len(steps), kernel.StateCount)
	}
}
