package raftstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// followed returns when a majority, including this node, has confirmed its lead in a term by answering a request sent
// since then. VerifyLeader asks at once, but also counts answers to earlier requests: a process that was frozen and
// deposed would find such answers unread when it continues.
func (s *Store) followed(ctx context.Context, term uint64, since time.Time) error {
	for {
		news := s.agreed.next()
		agreed := !s.agreedAt(term).Before(since)
		if s.raft.State() != raft.Leader || s.raft.CurrentTerm() != term {
			return kernel.Refuse(jobs.Unavailable, "this node no longer leads")
		}
		if agreed {
			return nil
		}
		select {
		case <-news:
		case <-time.After(s.cfg.Heartbeat / 10): // the end of a term is not signalled
		case <-ctx.Done():
			return kernel.Refuse(jobs.Unavailable, "cannot confirm that this node still leads: %v", context.Cause(ctx))
		}
	}
}

// agreedAt is when the last request was sent that a majority, including this node, confirmed in a term; zero if none.
func (s *Store) agreedAt(term uint64) time.Time {
	now := time.Now()
	var sent []time.Time
	for _, voter := range s.servers() {
		switch {
		case voter.Suffrage != raft.Voter:
		case string(voter.ID) == s.node.ID:
			sent = append(sent, now)
		default:
			sent = append(sent, s.agreed.last(voter.ID, term))
		}
	}
	if len(sent) == 0 {
		return time.Time{}
	}
	slices.SortFunc(sent, func(a, b time.Time) int { return b.Compare(a) })
	return sent[len(sent)/2]
}

// Confirmed returns when the last request was sent by which a majority has confirmed that this node leads a term.
func (s *Store) Confirmed(term uint64) time.Time { return s.agreedAt(term) }

// agreements are the last confirmations of other nodes that this one leads.
type agreements struct {
	mu   sync.Mutex
	of   map[raft.ServerID]agreement
	news chan struct{} // closed at the next one; nil = no waiter
}

type agreement struct {
	term uint64
	sent time.Time // of the request they confirmed
}

func (a *agreements) note(id raft.ServerID, to agreement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[raft.ServerID]agreement{}
	}
	if last := a.of[id]; to.term < last.term || to.sent.Before(last.sent) {
		return // answers overtake each other
	}
	a.of[id] = to
	if a.news != nil {
		close(a.news)
		a.news = nil
	}
}

// last is when the last request was sent that a node confirmed; zero: none in this term.
func (a *agreements) last(id raft.ServerID, term uint64) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if last := a.of[id]; last.term == term {
		return last.sent
	}
	return time.Time{}
}

func (a *agreements) next() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.news == nil {
		a.news = make(chan struct{})
	}
	return a.news
}
