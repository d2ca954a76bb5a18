package raftstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Linearizable returns when what is read from now on includes all that was acknowledged before it was called, by any
// node. Only the leader can promise that, and asks a majority whether it still leads; others refuse with
// jobs.Unavailable and say who leads.
func (s *Store) Linearizable(ctx context.Context) error {
	if err := s.leading.over(); err != nil {
		return kernel.Refuse(jobs.Unavailable, "%v", err)
	}
	if err := s.leads(); err != nil {
		return err
	}
	// What this leader acknowledges it has applied before. What older ones acknowledged is applied once a barrier of
	// its own term is.
	asked, term := time.Now(), s.raft.CurrentTerm()
	settled := s.settled.Load() == term
	done := make(chan error, 1)
	go func() { // to ask may take as long as the answer: both wait for whatever the log waits for
		if settled {
			done <- s.raft.VerifyLeader().Error()
		} else {
			done <- s.raft.Barrier(within(ctx)).Error()
		}
	}()
	select {
	case err := <-done:
		if err != nil {
			return kernel.Refuse(jobs.Unavailable, "whether this node still leads is not known: %v", err)
		}
		if s.machine.isBehind() {
			return errBehind
		}
	case <-ctx.Done():
		return kernel.Refuse(jobs.Unavailable, "whether this node still leads is not known: %v", context.Cause(ctx))
	}
	if settled {
		return s.followed(ctx, term, asked)
	}
	if s.raft.CurrentTerm() == term {
		s.settled.Store(term)
	}
	return nil
}

// Age is how old what is read here may be. On a leader that has all that older ones acknowledged it is the time since a
// majority agreed that it leads (0 if it is alone), on others the time since they had all that the leader had told them
// of, and what is under way at this moment on top. It grows while a node is cut off, and while it is frozen.
func (s *Store) Age() time.Duration {
	r := s.raftNow()
	if r == nil {
		return time.Since(s.began)
	}
	s.ageMu.Lock()
	defer s.ageMu.Unlock()
	var fresh time.Time
	term := r.CurrentTerm()
	// Raft's own word for the last contact is younger than it was: it also counts a vote, and the end of one's own term.
	contact := s.told.last.Load()
	switch told := s.told.index.Load(); {
	case s.settledNow(r) && s.Alone():
		return 0
	case s.settledNow(r):
		fresh = s.agreedAt(term)
	case contact != nil && told > 0 && s.has(r, told): // heartbeats say nothing of the log: the first contact proves nothing
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

// Whole says that the rows here have been complete since this node began, though they may be old by now: that
// something is not among them says that it was not there at that time. While the archive is fetched they are not.
func (s *Store) Whole() bool {
	r := s.raftNow()
	if r == nil || s.machine.isBehind() {
		return false
	}
	if s.whole.Load() {
		return true
	}
	if told := s.told.whole.Load(); s.settledNow(r) || told > 0 && s.has(r, told) {
		s.whole.Store(true)
		return true
	}
	return false
}

// settledNow says that this node leads and has applied what older leaders have acknowledged.
func (s *Store) settledNow(r *raft.Raft) bool {
	return r.State() == raft.Leader && s.settled.Load() == r.CurrentTerm()
}

// has says that the rows have all entries of the log up to one. Raft's own word for it is ahead of the rows, and they
// count commands only, so that those between must be others.
func (s *Store) has(r *raft.Raft, upTo uint64) bool {
	if r.AppliedIndex() < upTo {
		return false
	}
	applied, _, _ := s.machine.bounds.now()
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

// told is what leaders have said since this node began of how far the log is committed.
type told struct {
	index atomic.Uint64             // how far it is
	whole atomic.Uint64             // the first, of a leader that knew of all that older ones had acknowledged
	last  atomic.Pointer[time.Time] // when a leader was heard
}

// hear takes in what a leader says. Once an entry of its own term is committed, so is all that was acknowledged before;
// a new leader may know of less until then.
func (t *told) hear(a *raft.AppendEntriesRequest) {
	c := a.LeaderCommitIndex
	t.index.Store(max(t.index.Load(), c))
	t.last.Store(new(time.Now())) // after what was said, so that it is never younger than that
	own := a.PrevLogEntry > 0 && a.PrevLogTerm == a.Term && a.PrevLogEntry <= c
	for _, e := range a.Entries {
		own = own || e.Term == a.Term && e.Index <= c
	}
	if own { // the newest is ahead of the rows whenever there is work, and one that they have had is enough
		t.whole.CompareAndSwap(0, c)
	}
}

// listening is a transport that hears what leaders say, and who agrees that this node is one.
type listening struct {
	*raft.NetworkTransport
	rpcs   chan raft.RPC
	agreed *agreements
}

// AppendEntries is how a leader says that it is there, too. Whoever agrees to it has heard of no newer one.
func (l listening) AppendEntries(id raft.ServerID, at raft.ServerAddress, say *raft.AppendEntriesRequest, answer *raft.AppendEntriesResponse) error {
	say.Entries = say.Entries[:first(say.Entries)] // raft sends those after them next
	sent := time.Now()
	err := l.NetworkTransport.AppendEntries(id, at, say, answer)
	if err == nil && answer.Success {
		l.agreed.note(id, agreement{say.Term, sent})
	}
	return err
}

// Consumer is where raft gets what others ask of it.
func (l listening) Consumer() <-chan raft.RPC { return l.rpcs }

// listen passes on what comes to raft until ctx ends. Snapshots are received first.
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
					s.told.hear(a)
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

// outlived says that a term is over, so that who leads in it is told so, and not heard.
func (s *Store) outlived(term uint64) bool {
	r := s.raftNow()
	return r != nil && term < r.CurrentTerm()
}

// Alone says that this node is the only voter: nobody else can have acknowledged anything.
func (s *Store) Alone() bool {
	servers := s.servers()
	return len(servers) == 1 && string(servers[0].ID) == s.node.ID
}

// Heard says that this node hears a leader, or is one.
func (s *Store) Heard() bool {
	_, ok := s.Leader()
	return ok
}

// Await waits until this node leads or hears the leader: until then it can tell nothing new. A node that is alone does
// when Open returns.
func (s *Store) Await(ctx context.Context) error {
	for {
		if _, ok := s.Leader(); ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return kernel.Refuse(jobs.Unavailable, "no leader was heard: %v", context.Cause(ctx))
		case <-s.failed:
			return s.leading.over()
		case <-time.After(s.cfg.Heartbeat / 5):
		}
	}
}
