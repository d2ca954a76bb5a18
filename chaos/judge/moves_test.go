package judge

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
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

// Whatever the kernel does to a run, in any order, is a history that the judge takes for legal.
func TestEachHistoryIsLegal(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		at := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
		run, err := kernel.Run{Due: at, Terms: kernel.Terms{Retries: 2}}.Begin(at, []kernel.Cause{"", kernel.ByPause}[r.IntN(2)], time.Time{})
		for range 40 {
			at = at.Add(time.Duration(r.IntN(3)) * time.Second)
			next := run
			name := []string{"hold", "enqueue", "skip", "start", "start", "unstart", "succeed", "fail", "lose", "cancel"}[r.IntN(10)]
			switch name {
			case "hold":
				next, err = run.Hold(at, kernel.ByPause, time.Time{})
			case "enqueue":
				next, err = run.Enqueue(at)
			case "skip":
				next, err = run.Skip(at, kernel.ByPause, "")
			case "start":
				next, err = run.Start(at, "w")
			case "unstart":
				next, err = run.Unstart()
			case "succeed":
				next, err = run.Succeed(at, nil)
			case "fail":
				next, err = run.Fail(at, kernel.ByError, "", "x", 0, true)
			case "lose":
				next, err = run.Lose(at, false)
			case "cancel":
				next, err = run.Cancel(at, "person:ann", "")
			}
			if err != nil {
				continue
			}
			run = next
			seen[name]++
			if expected, found := seenBy(&run).misstep(); found != "" {
				t.Fatalf("seed %d, %s: %s, want %s: %+v", seed, name, found, expected, run.Moves)
			}
		}
	}
	if len(seen) != 9 {
		t.Errorf("the histories have %v", seen)
	}
}

// seenBy is a run as the judge reads it.
func seenBy(run *kernel.Run) *Run {
	r := &Run{State: run.State.String(), Attempt: run.Attempt}
	for _, m := range run.Moves {
		r.Moves = append(r.Moves, Move{State: jobs.State(m.State).String(), At: m.At, Attempt: m.Attempt})
	}
	return r
}
