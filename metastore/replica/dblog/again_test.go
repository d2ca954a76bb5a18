package dblog_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/replica"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog/memdb"
)

// copied is a node whose rows are read again when they are not the leader's.
type copied struct {
	log     *dblog.Log
	machine *replica.Machine
	rows    *replica.Replica
	noticed atomic.Int32
	forgot  atomic.Int32 // how often the history was to drop what it had
}

func openCopied(t *testing.T, db dblog.Database, n int) *copied {
	c := new(copied)
	c.machine = replica.NewMachine(replica.MachineConfig{History: memdb.NewHistories().Node(), Fail: func(err error) { t.Error(err) }, SnapshotAfter: 1 << 30, Replay: time.Hour,
		Diverged: func(err error) {
			if !errors.Is(err, replica.ErrDiverged) {
				t.Error(err)
			}
			c.noticed.Add(1)
			c.log.ReadAgain(err)
		}})
	c.log = dblog.New(dblog.Config{Database: db, Machine: c.machine, Node: fmt.Sprint(n), Forget: func() { c.forgot.Add(1) }})
	if err := c.log.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.log.Close() })
	c.rows = replica.New(replica.Config{Machine: c.machine, Log: c.log})
	return c
}

// spoil changes a row in memory.
func (c *copied) spoil() {
	c.machine.Engine.Update(func(tx metastore.Tx) {
		tx.Put(&kernel.Gate{Tenant: jobs.DefaultTenant, Name: kernel.LimitGate("nothing"), Limit: 3, Taken: 1})
	})
}

// lead has a node lead until ctx ends, and returns how many terms it has begun.
func (c *copied) lead(ctx context.Context, done chan<- error) *atomic.Int32 {
	terms := new(atomic.Int32)
	go func() {
		done <- c.log.Lead(ctx, func(ctx context.Context, _ uint64) error {
			terms.Add(1)
			<-ctx.Done()
			return nil
		})
	}()
	time.Sleep(time.Second)
	return terms
}

func (c *copied) do(t *testing.T, k kernel.Command) {
	t.Helper()
	if err := c.rows.Apply(t.Context(), []kernel.Envelope{envelope(k)})[0].Err; err != nil {
		t.Fatal(err)
	}
}

var registerK = kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered}}

// A follower whose rows are not the leader's reads them again. If it is the leader's rows that are wrong, the follower
// reads once for each comparison, and keeps the rows of the log.
func TestFollowerReadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var restores atomic.Int32
		db := &memdb.DB{Fault: func(statement string) memdb.Fault {
			if statement == "Newest" {
				restores.Add(1)
			}
			return memdb.Fault{}
		}}
		leader, follower := openCopied(t, db, 0), openCopied(t, db, 1)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		leader.lead(ctx, done)
		leader.do(t, registerK)
		compare := func() {
			t.Helper()
			if err := leader.rows.Compare(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		if compare(); follower.noticed.Load() != 0 {
			t.Error("it differs without a reason")
		}
		follower.spoil()
		if compare(); follower.noticed.Load() != 1 || follower.machine.Engine.Hash() != leader.machine.Engine.Hash() || restores.Load() != 2+1 {
			t.Errorf("noticed %d times, read %d times, or its rows are still wrong", follower.noticed.Load(), restores.Load())
		}
		right := leader.machine.Engine.Hash()
		leader.spoil()
		compare()
		if compare(); follower.noticed.Load() != 3 || follower.machine.Engine.Hash() != right || restores.Load() != 2+3 {
			t.Errorf("with a leader that is wrong: noticed %d times, read %d times, or its rows are wrong, too", follower.noticed.Load(), restores.Load())
		}
		if follower.forgot.Load() != 1+3 {
			t.Errorf("finished runs of wrong rows were dropped %d times", follower.forgot.Load()-1)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A node whose rows turn out to be wrong while it writes the first entry of its term does not lead that term.
func TestNextLeaderReadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *copied
		first := true
		db := &memdb.DB{Fault: func(statement string) memdb.Fault {
			if statement == "Insert" && first {
				first = false
				c.spoil()
				c.log.ReadAgain(replica.ErrDiverged)
			}
			return memdb.Fault{}
		}}
		c = openCopied(t, db, 0)
		right := c.machine.Engine.Hash()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		terms := c.lead(ctx, done)
		if terms.Load() != 1 || c.machine.Engine.Hash() != right {
			t.Errorf("it has led %d terms, or its rows are wrong", terms.Load())
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A leader whose rows are known to be wrong leads no more before it has read them again, and answers no request until
// then.
func TestLeaderReadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := new(memdb.DB)
		leader := openCopied(t, db, 0)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		terms := leader.lead(ctx, done)
		leader.do(t, registerK)
		right := leader.machine.Engine.Hash()
		leader.spoil()
		leader.log.ReadAgain(replica.ErrDiverged)
		k := kernel.Create{ID: jobs.NewID(time.Now()), Key: "k"}
		if err := leader.rows.Apply(t.Context(), []kernel.Envelope{envelope(k)})[0].Err; !errors.Is(err, jobs.Unavailable) {
			t.Errorf("it still leads: %v", err)
		}
		if err := leader.log.Linearizable(t.Context()); err != nil || leader.machine.Engine.Hash() != right {
			t.Errorf("it says that it is up to date, with wrong rows (%v)", err)
		}
		time.Sleep(time.Second)
		if terms.Load() != 2 {
			t.Errorf("it has led %d terms", terms.Load())
		}
		leader.do(t, k)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
