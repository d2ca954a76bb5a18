package metastore

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

func TestHistogram(t *testing.T) {
	h := NewHistogram(1, 10)
	for _, v := range []float64{0, 1, 1.5, 10, 11, 500} {
		h.Observe(v)
	}
	before := h.Copy()
	h.Observe(1)
	if !slices.Equal(before.Counts, []uint64{2, 2, 2}) || before.Sum != 523.5 {
		t.Errorf("counted %+v", before)
	}
}

// A group measures the size and duration of its commits.
func TestGroupStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGroup(100, 1, func(batch []kernel.Envelope) []Result {
			time.Sleep(20 * time.Millisecond)
			return make([]Result, len(batch))
		})
		for range 2 { // the first goes alone, those after it share the next
			go g.Apply(context.Background(), make([]kernel.Envelope, 3))
			synctest.Wait()
		}
		g.Apply(context.Background(), make([]kernel.Envelope, 4))
		synctest.Wait()
		s := g.Stats()
		if s.Commits != 2 || s.Commands != 10 || s.Sizes.Sum != 10 || s.Seconds.Sum < 0.04 || s.Seconds.Sum > 0.041 {
			t.Errorf("counted %+v", s)
		}
	})
}
