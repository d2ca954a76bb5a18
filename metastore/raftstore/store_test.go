package raftstore

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		return harness(t, small(t.TempDir(), LogWAL), storetest.NewClock())
	})
}

// TestStoreWithBoltDB is TestStore with the other log.
func TestStoreWithBoltDB(t *testing.T) {
	tests.Long(t)
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		return harness(t, small(t.TempDir(), LogBolt), storetest.NewClock())
	})
}

// harness opens a store that crashes by leaving behind what is on disk at that moment.
func harness(t *testing.T, c Config, clock *storetest.Clock) storetest.Harness {
	t.Helper()
	c.Now = clock.Now
	s := open(t, c)
	return storetest.Harness{
		Store: s,
		Clock: clock,
		Rows:  func() iter.Seq[kernel.Row] { return s.machine.Engine.Capture().Rows() },
		Crash: func(t *testing.T) storetest.Harness {
			t.Helper()
			left := c
			left.Dir = t.TempDir()
			err := os.CopyFS(left.Dir, os.DirFS(c.Dir))
			for errors.Is(err, fs.ErrNotExist) { // a file of the archive has got its name meanwhile
				if err = os.RemoveAll(left.Dir); err == nil {
					err = os.CopyFS(left.Dir, os.DirFS(c.Dir))
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			// The archive may be written to while it is copied, which no crash could do to it.
			path := filepath.Join(left.Dir, archiveFolder)
			if err := errors.Join(os.RemoveAll(path), s.archive.CopyFiles(path)); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return harness(t, left, clock)
		},
		Slow: true,
	}
}

// TestStoreOfThree is TestStore on three nodes, any of which may crash.
func TestStoreOfThree(t *testing.T) {
	tests.Long(t)
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		clock := storetest.NewClock()
		adjust := func(c *Config) { c.Now, c.Heartbeat = clock.Now, calm }
		c := newCluster(t, 1, adjust)
		c.adopt(adjust)
		c.adopt(adjust)
		random := tests.Random(t)
		return harnessOfThree(t, c, clock, random)
	})
}

// roving is a store that writes to the current leader, and reads from one node what that has.
type roving struct {
	*Store
	cluster *cluster
}

// Retain has all nodes purge, each by itself.
func (r roving) Retain(ctx context.Context, what metastore.Retention) (done metastore.Retained, err error) {
	index, _, _ := r.cluster.leader().machine.Bounds.Now()
	for _, s := range r.cluster.stores {
		eventually(r.cluster.t, "the node has all that was applied", func() bool {
			at, _, _ := s.machine.Bounds.Now()
			return at >= index && s.Whole()
		})
		if done, err = s.Retain(ctx, what); err != nil {
			return done, err
		}
	}
	return done, nil
}

func (r roving) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	for {
		leader := r.cluster.leader()
		results := leader.Apply(ctx, batch)
		late := func(one metastore.Result) bool { return errors.Is(one.Err, jobs.Unavailable) }
		if slices.ContainsFunc(results, late) && ctx.Err() == nil {
			continue
		}
		index, _, _ := leader.machine.Bounds.Now()
		eventually(r.cluster.t, "the node has all that was applied", func() bool {
			at, _, _ := r.machine.Bounds.Now()
			return at >= index
		})
		return results
	}
}

// harnessOfThree crashes by ending a node as it is, and opening it again. It reads from the leader of that time.
func harnessOfThree(t *testing.T, c *cluster, clock *storetest.Clock, random *rand.Rand) storetest.Harness {
	t.Helper()
	s := c.leader()
	return storetest.Harness{
		Store: roving{s, c},
		Clock: clock,
		Rows:  func() iter.Seq[kernel.Row] { return s.machine.Engine.Capture().Rows() },
		Crash: func(t *testing.T) storetest.Harness {
			t.Helper()
			i := random.IntN(len(c.stores))
			c.stop(i)
			c.elect()
			c.start(i)
			return harnessOfThree(t, c, clock, random)
		},
		Slow: true,
	}
}
