package controlplane

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
)

// unmarked is a store that does not return which jobs have changed the first time, so that none can be marked.
type unmarked struct {
	*metastore.Local
	asked, unserved int
}

var errUnmarked = errors.New("no state")

func (u *unmarked) State(ctx context.Context) (kernel.StoreRow, error) {
	if u.asked++; u.asked == 1 {
		return kernel.StoreRow{}, errUnmarked
	}
	return u.Local.State(ctx)
}

func (u *unmarked) Unserved(ctx context.Context, limit int) ([]kernel.Ref, error) {
	u.unserved++
	return u.Local.Unserved(ctx, limit)
}

// Jobs cannot be marked stopped while a lost member of the cluster may not know that command: that is reported, and
// waiting runs and changed definitions are swept all the same.
func TestSweepGoesOnWhenNoJobCanBeMarked(t *testing.T) {
	k := newKeeper(t)
	st := &unmarked{Local: k.st}
	k.cp.cfg.Store = st
	k.cp.ready.since = time.Now().Add(-time.Hour)
	if err := k.cp.sweepOnce(t.Context(), false); !errors.Is(err, errUnmarked) || st.unserved != 1 || st.asked < 2 {
		t.Errorf("the sweep looked for waiters %d times, asked for the state %d times, and returned %v", st.unserved, st.asked, err)
	}
}
