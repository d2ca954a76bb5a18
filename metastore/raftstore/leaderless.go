package raftstore

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// An election takes a few heartbeats, and a node restarts in seconds: a person should know after some looks.
const (
	leaderlessEvery = 8 // heartbeats
	leaderlessLooks = 5
)

// reportLeaderless logs while this node knows no leader, and which nodes do not answer, until ctx ends.
func (s *Store) reportLeaderless(ctx context.Context) {
	for looks := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-s.failed:
			return
		case <-time.After(leaderlessEvery * s.cfg.Heartbeat):
		}
		if _, leads := s.Leader(); leads || len(s.servers()) == 0 { // a node that joins has no list yet
			s.episodes.End("", "no leader is known")
			looks = 0
			continue
		}
		if looks++; looks < leaderlessLooks {
			continue
		}
		if members, err := s.Members(ctx); err == nil {
			s.episodes.Began(slog.LevelWarn, "", "no leader is known", "cause", leaderless(members))
		}
	}
}

// leaderless returns why there may be no leader: how many nodes answer, and which do not.
func leaderless(members []Member) string {
	voters := 0
	var silent []string
	for _, m := range members {
		if m.Voter {
			voters++
		}
		if m.Voter && !m.Reached {
			silent = append(silent, cmp.Or(m.Name, m.ID)+" at "+m.Address)
		}
	}
	reached, needed := voters-len(silent), voters/2+1
	why := fmt.Sprintf("%d of %d nodes answer", reached, voters)
	if reached < needed {
		why += fmt.Sprintf(", and a leader needs %d", needed)
	}
	if len(silent) > 0 {
		why += "; no answer from " + strings.Join(silent, ", ")
	}
	return why
}
