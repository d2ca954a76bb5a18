package raftstore

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// A node without a leader logs once how many nodes answer and which do not, and once that it has ended: also when it
// starts without a majority.
func TestLeaderless(t *testing.T) {
	c := newCluster(t, 3, func(c *Config) { c.Heartbeat = 50 * time.Millisecond })
	c.leader()
	for i := range 3 {
		c.stop(i)
	}
	var mu sync.Mutex
	var log strings.Builder // what the first node says of leaders
	c.configs[0].Logger = slog.New(slog.NewTextHandler(writer(func(line []byte) {
		mu.Lock()
		defer mu.Unlock()
		if bytes.Contains(line, []byte("no leader is known")) {
			log.Write(line)
		}
	}), nil))
	lines := func() string {
		mu.Lock()
		defer mu.Unlock()
		return log.String()
	}
	c.start(0)
	eventually(t, "the node reports that it knows no leader", func() bool { return lines() != "" })
	want := fmt.Sprintf(`level=WARN msg="no leader is known" cause="1 of 3 nodes answer, and a leader needs 2; `+
		`no answer from node-2 at %s, node-3 at %s"`, c.configs[1].Listen, c.configs[2].Listen)
	if is := lines(); !strings.Contains(is, want) {
		t.Errorf("it logs\n%s\nwant\n%s", is, want)
	}
	c.start(1)
	eventually(t, "it reports the end", func() bool { return strings.Contains(lines(), `msg="no leader is known: ended"`) })
	if n := strings.Count(lines(), "\n"); n != 2 {
		t.Errorf("%d lines, want 2:\n%s", n, lines())
	}
}

// What is reported counts the nodes that vote.
func TestLeaderlessCountsVoters(t *testing.T) {
	there, away := Member{Voter: true, Reached: true, Name: "a"}, Member{Voter: true, ID: "2883", Address: "b:1"}
	for _, test := range []struct {
		members []Member
		want    string
	}{
		{[]Member{there, away}, "1 of 2 nodes answer, and a leader needs 2; no answer from 2883 at b:1"},
		{[]Member{there, there, away}, "2 of 3 nodes answer; no answer from 2883 at b:1"},
		{[]Member{there, {Reached: true}, {Name: "c"}}, "1 of 1 nodes answer"},
	} {
		if is := leaderless(test.members); is != test.want {
			t.Errorf("of %+v it says %q, want %q", test.members, is, test.want)
		}
	}
}
