package sqlstore

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Each process that has the rows reports how far it is, the leader the length of the log, and both what waits to be
// written.
func TestStats(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		var all []*Store
		for _, node := range []string{"leader", "f1", "f2", "without rows"} {
			all = append(all, open(t, Config{URL: url, Node: node}))
		}
		leader, follower := all[0], all[1]
		leading(t, leader)
		do(t, leader, register("k"))
		within(t, "a finished run waits to be written", func() bool {
			k := create("k")
			do(t, leader, k, kernel.Start{ID: k.ID, Worker: "w", Attempt: 1}, kernel.Finish{ID: k.ID, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess})
			if err := follower.Linearizable(t.Context()); err != nil {
				t.Fatal(err)
			}
			at, of := leader.Stats().Unwritten, follower.Stats().Unwritten
			return at.Runs > 0 && at.Bytes > 0 && of.Runs > 0
		})
		within(t, "all are written", func() bool { return leader.Stats().Unwritten.Runs == 0 && follower.Stats().Unwritten.Bytes == 0 })
		do(t, leader, create("k"))
		if err := follower.Linearizable(t.Context()); err != nil {
			t.Fatal(err)
		}
		at, of := leader.Stats().Log, follower.Stats().Log
		if at.Applied < 4 || at.Term != 1 || at.Age != 0 || at.Bytes == 0 || !at.Snapshot.IsZero() {
			t.Errorf("the leader reports %+v", at)
		}
		if of.Applied != at.Applied || of.Term != 1 || of.Age <= 0 || of.Age > time.Minute || of.Bytes != 0 || !of.Snapshot.IsZero() {
			t.Errorf("a follower reports %+v", of)
		}
		if err := leader.log.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		if at := leader.Stats().Log; at.Bytes != 0 || at.Snapshot.IsZero() {
			t.Errorf("after a snapshot, the leader reports %+v", at)
		}
		if s := all[3].Stats(); s.Log != nil || s.Unwritten != nil {
			t.Errorf("a process without rows reports %+v", s)
		}
	})
}
