package raftstore

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/episode"
)

// A peer that does not answer is one episode, whichever of raft's messages reports it; what a disk fails to do stays
// an error.
func TestRaftLogsEpisodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		to := slog.New(slog.NewTextHandler(&b, nil))
		l := logger{Logger: to, episodes: episode.New(to)}
		peer, err := raft.Server{ID: "n2", Address: "127.0.0.1:1"}, errors.New("connection refused")
		for range 20 {
			l.Error("failed to heartbeat to", "peer", peer.Address, "backoff time", time.Second, "error", err)
			l.Error("failed to appendEntries to", "peer", peer, "error", err)
			l.Warn("failed to contact", "server-id", peer.ID, "time", time.Second)
			l.Error("failed to make requestVote RPC", "target", peer, "error", err, "term", 1)
			l.Warn("rejecting vote request since we have a leader", "from", "x")
			l.Warn("heartbeat timeout reached, starting election")
			time.Sleep(time.Second)
		}
		l.Error("failed to take snapshot", "error", errors.New("no space left on device"))
		time.Sleep(episode.Quiet)
		synctest.Wait()
		for text, want := range map[string]int{"level=ERROR": 1, "level=WARN": 1, "no space left": 1, `msg="raft peer does not answer: ended"`: 1, `level=INFO msg="heartbeat timeout`: 2} {
			if n := strings.Count(b.String(), text); n != want {
				t.Errorf("%d lines with %s, want %d:\n%s", n, text, want, &b)
			}
		}
	})
}

// A peer that restarts within a moment is no line.
func TestBriefAbsenceIsNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		to := slog.New(slog.NewTextHandler(&b, nil))
		l := logger{Logger: to, episodes: episode.New(to)}
		for range 10 {
			l.Error("failed to appendEntries to", "peer", raft.Server{ID: "n2"}, "error", "EOF")
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if synctest.Wait(); b.Len() > 0 {
			t.Errorf("the log has %s", &b)
		}
	})
}
