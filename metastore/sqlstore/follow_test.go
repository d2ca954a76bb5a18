package sqlstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Three processes have the rows, and another one when one of them has ended or no longer answers.
func TestThreeFollow(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		first := led(t, Config{URL: url, Node: "n0"})
		do(t, first, register("k"))
		all := []*Store{first}
		for i := range 4 {
			all = append(all, open(t, Config{URL: url, Node: fmt.Sprintf("n%d", i+1)}))
		}
		for i, s := range all {
			if s.Whole() != (i < 3) {
				t.Errorf("%s: whole %v", s.Node(), s.Whole())
			}
		}
		if err := all[4].Linearizable(t.Context()); !errors.Is(err, jobs.Unavailable) {
			t.Errorf("a process without rows: %v", err)
		}
		if _, err := all[4].Retain(t.Context(), metastore.Retention{}); !errors.Is(err, metastore.ErrNotWhole) {
			t.Errorf("a process without rows: %v", err)
		}
		copied := open(t, Config{URL: url, Node: "copy", Copy: true})
		if !copied.Whole() {
			t.Error("a process that wants a copy has none")
		}
		if err := all[1].Close(); err != nil {
			t.Fatal(err)
		}
		within(t, "another one follows", func() bool { return all[3].Whole() || all[4].Whole() })
		next, last := all[3], all[4]
		if last.Whole() {
			next, last = last, next
		}
		if err := next.Linearizable(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := next.Definition(t.Context(), jobs.DefaultTenant, "k"); err != nil {
			t.Error(err)
		}
		all[2].cancel() // as if it hung: it renews nothing
		within(t, "the last one follows", last.Whole)
		do(t, first, register("l")) // the first one leads still
	})
}

// A process whose rows are not the leader's notices it, and reads them again.
func TestDivergence(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		leader := led(t, Config{URL: url, Node: "leader", checkEvery: 50 * time.Millisecond})
		wrong := open(t, Config{URL: url, Node: "wrong"})
		do(t, leader, register("k"), create("k"))
		finished := create("k")
		do(t, leader, finished, kernel.Start{ID: finished.ID, Worker: "w", Attempt: 1}, kernel.Finish{ID: finished.ID, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess})
		if err := wrong.Linearizable(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Corrupted memory, a bug: one row more than the leader has.
		wrong.machine.Engine.Update(func(tx metastore.Tx) {
			tx.Put(&kernel.Gate{Tenant: jobs.DefaultTenant, Name: kernel.LimitGate("nothing"), Limit: 3, Taken: 1})
		})
		do(t, leader, create("k")) // the next comparison comes by itself
		within(t, "its rows are the leader's", func() bool {
			return wrong.Linearizable(t.Context()) == nil && wrong.machine.Engine.Hash() == leader.machine.Engine.Hash()
		})
		if run, err := wrong.Run(t.Context(), jobs.DefaultTenant, finished.ID); err != nil || run.State != jobs.Succeeded {
			t.Errorf("%+v (%v)", run, err)
		}
		do(t, leader, create("k"))
		select {
		case err := <-wrong.Err():
			t.Error(err)
		default:
		}
	})
}

// Rows are compared only while another process has them.
func TestNothingToCompare(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := led(t, Config{URL: url, Node: "leader"})
		if s.followed(t.Context()) {
			t.Error("it is alone")
		}
		if err := s.Stay(t.Context(), metastore.Member{Node: "member", Nonce: "1"}, time.Minute); err != nil || !s.followed(t.Context()) {
			t.Errorf("a member has a copy: %v", err)
		}
		if err := s.Leave(t.Context(), metastore.Member{Node: "member", Nonce: "1"}); err != nil || s.followed(t.Context()) {
			t.Errorf("it has left: %v", err)
		}
		open(t, Config{URL: url, Node: "follower"})
		if !s.followed(t.Context()) {
			t.Error("another one follows")
		}
	})
}

// A process that starts again, as often as it may, takes the place that it had.
func TestAProcessKeepsItsPlace(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		for range 5 {
			s := open(t, Config{URL: url, Node: "n"})
			if !s.Whole() {
				t.Error("it has no place")
			}
			s.cancel() // as if it died
		}
	})
}
