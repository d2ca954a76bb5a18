package dblog_test

import (
	"errors"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/replica"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog/memdb"
)

// A leader that was frozen beyond its lease, and has not noticed yet, reads what another one has written before it says
// that it is up to date, and then writes nothing behind it.
func TestFrozenLeader(t *testing.T) {
	db := new(memdb.DB)
	open := func() (*dblog.Log, *replica.Replica) {
		m := replica.NewMachine(replica.MachineConfig{History: memdb.NewHistories().Node(), Fail: func(err error) { t.Error(err) }, SnapshotAfter: 1 << 30, Replay: time.Hour})
		l, err := dblog.Open(t.Context(), dblog.Config{Database: db, Machine: m})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l, replica.New(replica.Config{Machine: m, Log: l})
	}
	frozen, rows := open()
	other, others := open()
	apply := func(r *replica.Replica, k kernel.Command) error {
		return r.Apply(t.Context(), []kernel.Envelope{envelope(k)})[0].Err
	}
	if err := frozen.Led(t.Context(), 1, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := apply(rows, kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered}}); err != nil {
		t.Fatal(err)
	}
	if err := other.Led(t.Context(), 2, time.Now()); err != nil {
		t.Fatal(err)
	}
	k := kernel.Create{ID: jobs.NewID(time.Now()), Key: "k"}
	if err := apply(others, k); err != nil {
		t.Fatal(err)
	}
	frozen.Thawed(1)
	if err := frozen.Linearizable(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := rows.Run(t.Context(), jobs.DefaultTenant, k.ID); err != nil {
		t.Errorf("it is up to date, and lacks what was acknowledged: %v", err)
	}
	if err := apply(rows, kernel.Create{ID: jobs.NewID(time.Now()), Key: "k"}); !errors.Is(err, jobs.Unavailable) {
		t.Errorf("it still writes: %v", err)
	}
}
