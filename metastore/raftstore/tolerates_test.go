package raftstore

import (
	"slices"
	"testing"
	"time"
)

func TestTolerates(t *testing.T) {
	voter := func(m Member) Member {
		m.Voter, m.Reached = true, true
		return m
	}
	leader := voter(Member{Leader: true, Applied: 5000})
	fresh := voter(Member{whole: true, Applied: 4990})
	late := voter(Member{whole: true, Applied: 5000 - mostBehind - 1})
	started := voter(Member{Applied: 5000}) // it does not know yet whether that is all
	away := Member{Voter: true}
	newcomer := Member{Reached: true, whole: true, Applied: 5000}
	for _, c := range []struct {
		members []Member
		n       int
		text    string
	}{
		{[]Member{leader}, 0, "no fault tolerance"},
		{[]Member{leader, newcomer, newcomer}, 0, "no fault tolerance"},
		{[]Member{leader, fresh}, 0, "no fault tolerance"},
		{[]Member{leader, fresh, fresh}, 1, "one node may fail"},
		{[]Member{leader, fresh, fresh, fresh}, 1, "one node may fail"},
		{[]Member{leader, fresh, fresh, fresh, fresh}, 2, "2 nodes may fail"},
		{[]Member{leader, fresh, away}, 0, "2 of 3 nodes answer: no other may fail"},
		{[]Member{leader, away, away}, 0, "1 of 3 nodes answer: no leader until a majority answers"},
		{[]Member{leader, fresh, fresh, fresh, away}, 1, "4 of 5 nodes answer: 1 more may fail"},
		{[]Member{leader, fresh, late}, 0, "3 of 3 nodes answer, 1 of them not up to date yet: no other may fail"},
		{[]Member{leader, fresh, started}, 0, "3 of 3 nodes answer, 1 of them not up to date yet: no other may fail"},
		{[]Member{leader, late, started}, 0, "3 of 3 nodes answer, 2 of them not up to date yet: no other may fail"},
		{[]Member{leader, late, away}, 0, "2 of 3 nodes answer, 1 of them not up to date yet: no other may fail"},
		{[]Member{fresh, voter(Member{whole: true, Applied: 5000}), late}, 0, "3 of 3 nodes answer, 1 of them not up to date yet: no other may fail"}, // no leader
	} {
		members := slices.Clone(c.members)
		markCurrent(members)
		if n, text := Tolerates(members); n != c.n || text != c.text {
			t.Errorf("%+v: %d, %q; want %d, %q", members, n, text, c.n, c.text)
		}
	}
}

// tolerate waits until a node reports how many nodes may fail.
func tolerate(t *testing.T, s *Store, want int, says string) {
	t.Helper()
	eventually(t, "it reports "+says, func() bool {
		members, err := s.Members(ctx)
		if err != nil {
			t.Fatal(err)
		}
		n, text := Tolerates(members)
		return n == want && text == says
	})
}

// A restarted node does not count until it has caught up.
func TestToleratesAfterARestart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(c *Config) { c.Log, c.Heartbeat = LogBolt, calm })
	do(t, c, register("k"))
	c.same()
	tolerate(t, c.leader(), 1, "one node may fail")
	away := c.lag()
	tolerate(t, c.leader(), 0, "2 of 3 nodes answer: no other may fail")
	dialer, release := holding() // it cannot fetch what it needs to apply anything
	defer release()
	log, fetching := signal("fetching the archive")
	c.configs[away].dialer, c.configs[away].Logger = dialer, log
	c.start(away)
	select {
	case <-fetching:
	case <-time.After(2 * patience):
		t.Fatal("it fetches nothing")
	}
	tolerate(t, c.leader(), 0, "3 of 3 nodes answer, 1 of them not up to date yet: no other may fail")
	release()
	tolerate(t, c.leader(), 1, "one node may fail")
}
