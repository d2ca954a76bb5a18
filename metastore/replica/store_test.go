package replica_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore/replica"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog/memdb"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		return harness(t, new(memdb.DB), memdb.NewHistories(), storetest.NewClock())
	})
}

// harness is a node that leads, until its process ends.
func harness(t *testing.T, db *memdb.DB, ended *memdb.Histories, clock *storetest.Clock) storetest.Harness {
	t.Helper()
	m := replica.NewMachine(replica.MachineConfig{History: ended.Node(), Fail: func(err error) { t.Error(err) }, SnapshotAfter: 64 << 10, Trailing: 1, Replay: time.Minute})
	log, err := dblog.Open(t.Context(), dblog.Config{Database: db, Machine: m, Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	r := replica.New(replica.Config{Machine: m, Log: log, Now: clock.Now})
	leads := make(chan struct{})
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() {
		over <- log.Lead(ctx, func(ctx context.Context, _ uint64) error {
			close(leads)
			<-ctx.Done()
			return nil
		})
	}()
	end := func() {
		stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
		over <- nil
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	select {
	case <-leads:
	case <-time.After(time.Minute):
		t.Fatal("it does not lead")
	}
	return storetest.Harness{
		Store: r,
		Clock: clock,
		Rows:  func() iter.Seq[kernel.Row] { return m.Engine.Capture().Rows() },
		Crash: func(t *testing.T) storetest.Harness {
			t.Helper()
			end()
			return harness(t, db, ended, clock)
		},
	}
}
