package raftstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Linearizable returns when reads from now on include all that any node acknowledged before the call. Only the leader
// can ensure that, and asks a majority whether it still leads; others refuse with jobs.Unavailable and name the
// leader.
func (s *Store) Linearizable(ctx context.Context) error {
	if err := s.leading.over(); err != nil {
		return kernel.Refuse(jobs.Unavailable, "%v", err)
	}
	if err := s.leads(); err != nil {
		return err
	}
	// This leader applies commands before it acknowledges them. Those that older leaders acknowledged are applied
	// once a barrier of its own term is.
	asked, term := time.Now(), s.raft.CurrentTerm()
	settled := s.settled.Load() == term
	done := make(chan error, 1)
	go func() { // the request may take as long as the answer: both wait for the log
		if settled {
			done <- s.raft.VerifyLeader().Error()
		} else {
			done <- s.raft.Barrier(within(ctx)).Error()
		}
	}()
	select {
	case err := <-done:
		if err != nil {
			return kernel.Refuse(jobs.Unavailable, "cannot confirm that this node still leads: %v", err)
		}
		if s.machine.isBehind() {
			return errBehind
		}
	case <-ctx.Done():
		return kernel.Refuse(jobs.Unavailable, "cannot confirm that this node still leads: %v", context.Cause(ctx))
	}
	if settled {
		return s.followed(ctx, term, asked)
	}
	if s.raft.CurrentTerm() == term {
		s.settled.Store(term)
	}
	return nil
}

// Age is how old the rows of this node may be. On a leader that has all that older ones acknowledged it is the time
// since a majority confirmed it (0 if it is alone), on others the time since they had all that the leader had
// reported as committed, plus what is under way. It grows while a node is cut off, and while it is frozen.
func (s *Store) Age() time.Duration {
	r := s.raftNow()
	if r == nil {
		return time.Since(s.began)
	}
	s.ageMu.Lock()
	defer s.ageMu.Unlock()
	var fresh time.Time
	term := r.CurrentTerm()
	// Raft's own last contact is too recent: it also counts a vote, and the end of one's own term.
	contact := s.reported.last.Load()
	switch index := s.reported.index.Load(); {
	case s.settledNow(r) && s.Alone():
		return 0
	case s.settledNow(r):
		fresh = s.agreedAt(term)
	case contact != nil && index > 0 && s.has(r, index):
		// Heartbeats carry nothing about the log: the first contact proves nothing.
		fresh = *contact
	}
	if fresh.After(s.fresh) {
		s.fresh = fresh
	}
	if s.fresh.IsZero() {
		return time.Since(s.began)
	}
	return max(0, time.Since(s.fresh))
}

// Whole reports whether the rows have been complete at some time since this node began, though they may be old by
// now: what is missing then did not exist at that time. While the archive is fetched they are not.
func (s *Store) Whole() bool {
	r := s.raftNow()
	if r == nil || s.machine.isBehind() {
		return false
	}
	if s.whole.Load() {
		return true
	}
	if index := s.reported.whole.Load(); s.settledNow(r) || index > 0 && s.has(r, index) {
		s.whole.Store(true)
		return true
	}
	return false
}

// settledNow reports whether this node leads and has applied what older leaders have acknowledged.
func (s *Store) settledNow(r *raft.Raft) bool {
	return r.State() == raft.Leader && s.settled.Load() == r.CurrentTerm()
}

// has reports whether the rows have all entries of the log up to one. Raft's own index is ahead of the rows, and they
// count commands only, so that those between must be others.
func (s *Store) has(r *raft.Raft, upTo uint64) bool {
	if r.AppliedIndex() < upTo {
		return false
	}
	applied, _, _ := s.machine.Bounds.Now()
	for i := upTo; i > applied; i-- {
		var e raft.Log
		if err := s.log.GetLog(i, &e); err != nil {
			first, err := s.log.FirstIndex()
			return err == nil && (first == 0 || i < first) // it is in the snapshot
		}
		if e.Type == raft.LogCommand {
			return false
		}
	}
	return true
}

// reported is what leaders have sent since this node began about how far the log is committed.
type reported struct {
	index atomic.Uint64             // how far it is
	whole atomic.Uint64             // the first of a leader that had all acknowledged entries of older ones
	last  atomic.Pointer[time.Time] // when the last message of a leader arrived
}

// note stores what a leader sends. Once an entry of its own term is committed, so is all that was acknowledged
// before; a new leader may know of less until then.
func (t *reported) note(a *raft.AppendEntriesRequest) {
	c := a.LeaderCommitIndex
	t.index.Store(max(t.index.Load(), c))
	t.last.Store(new(time.Now())) // after the index, so that it is never younger than that
	own := a.PrevLogEntry > 0 && a.PrevLogTerm == a.Term && a.PrevLogEntry <= c
	for _, e := range a.Entries {
		own = own || e.Term == a.Term && e.Index <= c
	}
	if own { // under load the newest is ahead of the rows, and an older one is enough
		t.whole.CompareAndSwap(0, c)
	}
}

// listening is a transport that notes what leaders send, and which nodes confirm that this one leads.
type listening struct {
	*raft.NetworkTransport
	rpcs   chan raft.RPC
	agreed *agreements
}

// AppendEntries is a leader's heartbeat, too. A node that accepts it knows no newer leader.
func (l listening) AppendEntries(id raft.ServerID, at raft.ServerAddress, say *raft.AppendEntriesRequest, answer *raft.AppendEntriesResponse) error {
	say.Entries = say.Entries[:first(say.Entries)] // raft sends those after them next
	sent := time.Now()
	err := l.NetworkTransport.AppendEntries(id, at, say, answer)
	if err == nil && answer.Success {
		l.agreed.note(id, agreement{say.Term, sent})
	}
	return err
}

// Consumer is where raft gets the requests of others.
func (l listening) Consumer() <-chan raft.RPC { return l.rpcs }

// listen passes requests on to raft until ctx ends. Snapshots are received first.
func (s *Store) listen(ctx context.Context, from *raft.NetworkTransport) listening {
	l := listening{from, make(chan raft.RPC), &s.agreed}
	s.duties.Go(func() {
		replace := func(error) {} // ends the snapshot that is being received
		for {
			select {
			case <-ctx.Done():
				return
			case rpc := <-from.Consumer():
				if a, ok := rpc.Command.(*raft.AppendEntriesRequest); ok && !s.outlived(a.Term) {
					s.reported.note(a)
				}
				if _, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok {
					replace(errReplaced)
					replace = s.receive(ctx, l.rpcs, rpc)
					continue
				}
				select {
				case l.rpcs <- rpc:
				case <-ctx.Done():
					return
				}
			}
		}
	})
	return l
}

// outlived reports whether a term has ended, so that its leader is informed, and not followed.
func (s *Store) outlived(term uint64) bool {
	r := s.raftNow()
	return r != nil && term < r.CurrentTerm()
}

// Alone reports whether this node is the only voter: no other can have acknowledged anything.
func (s *Store) Alone() bool {
	servers := s.servers()
	return len(servers) == 1 && string(servers[0].ID) == s.node.ID
}

// Heard reports whether this node has contact to a leader, or is one.
func (s *Store) HasLeader() bool {
	_, ok := s.Leader()
	return ok
}

// Await waits until this node leads or has contact to the leader: before, it has nothing new. A single node leads
// when Open returns.
func (s *Store) Await(ctx context.Context) error {
	for {
		if _, ok := s.Leader(); ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return kernel.Refuse(jobs.Unavailable, "no contact to a leader: %v", context.Cause(ctx))
		case <-s.failed:
			return s.leading.over()
		case <-time.After(s.cfg.Heartbeat / 5):
		}
	}
}
