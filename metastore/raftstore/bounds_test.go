package raftstore

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// A snapshot is due when the log has become long in bytes or in the time to apply it, whichever comes first, and the
// larger the last one, the later.
func TestSnapshotIsDueByWhatAReplayCosts(t *testing.T) {
	entry := make([]kernel.Envelope, 10)
	for i := range entry {
		entry[i].Command = kernel.Create{}
	}
	cost := replayCost(entry)
	if cost <= replayCost(nil) || replayCost(nil) <= 0 {
		t.Fatalf("ten commands cost %v, an entry without any costs %v", cost, replayCost(nil))
	}
	for name, c := range map[string]struct {
		size, last, after int64
		replay            time.Duration
		due               int // at which entry
	}{
		"bytes":                  {size: 10, after: 100, replay: time.Hour, due: 11},
		"bytes, large snapshot":  {size: 10, last: 100, after: 100, replay: time.Hour, due: 21},
		"replay":                 {size: 1, after: 1 << 40, replay: 5 * cost, due: 6},
		"replay, large snapshot": {size: 1, after: 1 << 40, replay: 5 * cost, last: int64(8 * cost / (mostRestores * costRestored)), due: 9},
	} {
		b := &bounds{after: c.after, replay: c.replay, last: c.last, trailing: 1 << 40, due: make(chan struct{}, 1)}
		for round := range 2 { // the second one after a snapshot
			for n := 1; ; n++ {
				b.applied(uint64(n), int(c.size), entry)
				if len(b.due) > 0 || n > 100 {
					if n != c.due {
						t.Errorf("%s, round %d: due at entry %d, want %d", name, round, n, c.due)
					}
					break
				}
			}
			select {
			case <-b.due:
			default:
			}
			b.begin()
		}
	}
}

// Many small entries are in a snapshot soon: a restart applies few.
func TestRestartAppliesFewEntries(t *testing.T) {
	const most, entries = 2 * time.Millisecond, 2000
	c := Config{Dir: t.TempDir(), Log: LogWAL, SnapshotAfter: 1 << 40, replay: most}
	s := open(t, c)
	do(t, s, register("k"))
	for range entries {
		do(t, s, creates(1)...)
	}
	left := func(s *Store) time.Duration {
		s.machine.bounds.mu.Lock()
		defer s.machine.bounds.mu.Unlock()
		return s.machine.bounds.cost
	}
	// What is left grows with the snapshot, which has all the runs.
	all := entries * replayCost([]kernel.Envelope{{Command: kernel.Create{}}})
	for begun := time.Now(); left(s) > all/2; time.Sleep(time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("after %d entries, a restart takes %v of %v", entries, left(s), all)
		}
	}
	for begun := time.Now(); ; time.Sleep(time.Millisecond) { // it is on disk
		if _, _, taken := s.machine.bounds.now(); !taken.IsZero() {
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
		t.Errorf("the restart applied what takes %v of %v", took, all)
	}
	if counts, err := again.Counts(t.Context(), metastore.CountQuery{Tenant: "t"}); err != nil || counts.Live[jobs.Enqueued] != entries {
		t.Errorf("%v runs, %v: want %d", counts.Live, err, entries)
	}
}
