package raftstore

import (
	"iter"
	"os"
	"path/filepath"
	"testing"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		return harness(t, small(t.TempDir(), LogWAL), storetest.NewClock())
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
		Rows:  func() iter.Seq[jobs.Row] { return s.machine.engine.Capture().Rows() },
		Crash: func(t *testing.T) storetest.Harness {
			t.Helper()
			left := c
			left.Dir = t.TempDir()
			if err := os.CopyFS(left.Dir, os.DirFS(c.Dir)); err != nil {
				t.Fatal(err)
			}
			// The archive may be written to while it is copied, which no crash could do to it.
			path := filepath.Join(left.Dir, "archive.db")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			if err := s.archive.CopyFile(path); err != nil {
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
