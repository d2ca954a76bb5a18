package sqlstore

import (
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The table of tallies has a column for each state that runs are counted in, and one for how long they took.
func TestEveryStateHasAColumn(t *testing.T) {
	if n := len(tally(kernel.Ref{}, kernel.Sums{})); n != len(tallies.columns) || n != tallies.keys+len(kernel.States())-int(jobs.Scheduled)+1 {
		t.Errorf("a tally has %d values, the table %d columns", n, len(tallies.columns))
	}
}
