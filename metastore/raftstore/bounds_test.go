package raftstore

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Many small entries are in a snapshot soon: a restart applies few.
func TestRestartAppliesFewEntries(t *testing.T) {
	const most, entries = 2 * time.Millisecond, 2000
	c := Config{Dir: t.TempDir(), Log: LogWAL, SnapshotAfter: 1 << 40, replay: most}
	s := open(t, c)
	do(t, s, register("k"))
	left := func(s *Store) int64 { return s.Stats().Log.Bytes }
	before := left(s)
	do(t, s, creates(1)...)
	all := entries * (left(s) - before) // what is left grows with the snapshot, which has all the runs
	for range entries - 1 {
		do(t, s, creates(1)...)
	}
	for begun := time.Now(); left(s) > all/2; time.Sleep(time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("after %d entries, a restart applies %d bytes of %d", entries, left(s), all)
		}
	}
	for begun := time.Now(); ; time.Sleep(time.Millisecond) { // it is on disk
		if _, _, taken := s.machine.Bounds.Now(); !taken.IsZero() {
			break
		} else if time.Since(begun) > 10*time.Second {
			t.Fatal("no snapshot was taken")
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, c)
	if took := left(again); took > all/2 {
		t.Errorf("the restart applied %d bytes of %d", took, all)
	}
	if counts, err := again.Counts(t.Context(), metastore.CountQuery{Tenant: jobs.DefaultTenant}); err != nil || counts.Live[jobs.Enqueued] != entries {
		t.Errorf("%v runs, %v: want %d", counts.Live, err, entries)
	}
}
