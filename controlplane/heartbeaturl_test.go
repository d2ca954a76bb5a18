package controlplane_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// uncommitted is a store that commits no beginning of a term, once it is broken.
type uncommitted struct {
	metastore.Full
	broken atomic.Bool
}

func (u *uncommitted) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	for _, e := range batch {
		if _, leads := e.Command.(kernel.Lead); leads && u.broken.Load() {
			return metastore.Refused(batch, errLame)
		}
	}
	return u.Full.Apply(ctx, batch)
}

// The leader requests the heartbeat URL every minute, as long as it leads and can commit; a request that fails stops
// nothing.
func TestHeartbeatURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		store := &uncommitted{Full: h.full}
		h.full = store
		var requests atomic.Int64
		var fails atomic.Bool
		h.heartbeat = func(context.Context) error {
			requests.Add(1)
			if fails.Load() {
				return errors.New("no route to host")
			}
			return nil
		}
		h.restartOn(h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"}))
		within := func(what string, want int64) {
			t.Helper()
			requests.Store(0)
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if n := requests.Load(); n != want {
				t.Errorf("%s: %d requests in 5 minutes, want %d", what, n, want)
			}
		}
		synctest.Wait()
		if requests.Load() != 1 {
			t.Errorf("%d requests when the term began, want 1", requests.Load())
		}
		within("it leads", 5)
		fails.Store(true)
		within("requests fail", 5)
		fails.Store(false)
		store.broken.Store(true)
		within("it cannot commit", 0)
		store.broken.Store(false)
		within("it can again", 5)
		h.stop()
		within("it does not lead", 0)
	})
}
