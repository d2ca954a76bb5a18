package raftstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// startRaft starts raft and reports whether this node is the only voter. there means that its log has begun.
func (s *Store) startRaft(there bool, to logger) (alone bool, err error) {
	id := raft.ServerID(s.node.ID)
	s.trans = s.transport(id, to)
	c := s.raftConfig(to)
	if !there && s.node.Founder && !s.node.Began {
		first := raft.Configuration{Servers: []raft.Server{{ID: id, Address: s.trans.LocalAddr()}}}
		if err := raft.BootstrapCluster(c, s.log, s.log, s.snapshots, s.trans, first); err != nil {
			return false, fmt.Errorf("begin the log: %w", err)
		}
		if err := s.hasBegun(); err != nil {
			return false, err
		}
	}
	if s.raft, err = raft.NewRaft(c, s.machine, s.log, s.log, watchedSnapshots{s.snapshots, s.cfg.Dir, s.again}, s.trans); err != nil {
		return false, fmt.Errorf("start raft: %w", err)
	}
	s.live.Store(s.raft)
	s.identity.follow(s.raft)
	members := s.raft.GetConfiguration().Configuration().Servers
	alone = len(members) == 1 && members[0].ID == id
	s.standForElection = func() { hurry(id, s.trans) }
	if alone {
		s.standForElection()
	}
	return alone, nil
}

// unbegun undoes the first step of a founder's beginning, its term, if it was killed before the second, the entry
// that makes it a member: raft takes the term for a log, and no node would ever lead. It reports whether the log has
// begun.
func (s *Store) unbegun(there bool) (begun bool, err error) {
	if !there || s.node == nil || !s.node.Founder || s.node.Began {
		return there, nil
	}
	last, err := s.log.LastIndex()
	if err != nil {
		return there, fmt.Errorf("read log %s: %w", s.log.path, err)
	}
	newest, err := newestSnapshot(s.snapshots, s.cfg.Dir)
	if err != nil || newest != nil || last > 0 {
		return there, err
	}
	return false, s.log.SetUint64(keyTerm, 0)
}

// raftNow is raft, or nil before it has started.
func (s *Store) raftNow() *raft.Raft { return s.live.Load() }

func (s *Store) raftConfig(to logger) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(s.node.ID)
	c.Logger = to
	c.HeartbeatTimeout, c.ElectionTimeout = s.cfg.Heartbeat, s.cfg.Heartbeat
	c.LeaderLeaseTimeout = s.cfg.Heartbeat
	c.MaxAppendEntries = 16          // of up to 4 MiB each
	c.SnapshotThreshold = ^uint64(0) // bounds decides when
	c.SnapshotInterval = 24 * time.Hour
	c.NoSnapshotRestoreOnStart = true // restoreNewest has done it
	c.NoLegacyTelemetry = true
	return c
}

// hurry lets a single node stand for election now: there is no other heartbeat to wait for.
func hurry(id raft.ServerID, trans raft.Transport) {
	if t, ok := trans.(*raft.InmemTransport); ok {
		t.Connect(t.LocalAddr(), t)
	}
	// If it fails, the usual timeout does the same a moment later.
	_ = trans.TimeoutNow(id, trans.LocalAddr(), &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}, &raft.TimeoutNowResponse{})
}

// standAlone waits until this node leads and has applied its whole log.
func (s *Store) standAlone(ctx context.Context) error {
	for {
		term, changed := s.leading.now()
		if term > 0 {
			if err := s.raft.Barrier(0).Error(); err == nil {
				s.settled.Store(term)
				select {
				case err := <-s.failures:
					return err
				default:
					return nil
				}
			}
		}
		select {
		case err := <-s.failures:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// leadership is the term in which this node leads, as a level that can be watched.
type leadership struct {
	mu      sync.Mutex
	term    uint64 // 0: it does not lead
	ended   error  // it never leads again
	changed chan struct{}
}

// now is the term, or 0, and a channel that is closed when that changes.
func (l *leadership) now() (term uint64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.term, l.changed
}

func (l *leadership) set(term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		term = 0
	}
	if l.term == term {
		return
	}
	l.term = term
	l.tell()
}

// end ends all leading, with a reason.
func (l *leadership) end(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		l.term, l.ended = 0, why
		l.tell()
	}
}

func (l *leadership) tell() {
	if l.changed != nil {
		close(l.changed)
	}
	l.changed = make(chan struct{})
}

func (l *leadership) over() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// watch updates the level. Raft's channel may drop events but not the last one, and a term that was lost and won
// again in between shows in its number.
func (l *leadership) watch(ctx context.Context, r *raft.Raft) {
	for {
		select {
		case <-ctx.Done():
			return
		case leads := <-r.LeaderCh():
			if !leads {
				l.set(0)
				continue
			}
			l.set(r.CurrentTerm())
		}
	}
}

var errLost = errors.New("leadership was lost")

// Lead calls lead, with the number of its term, whenever this node has become the leader and has applied all that
// older leaders have committed. It ends lead's context the moment it no longer leads. The next call comes after the
// last has returned. Lead returns when ctx ends or the store does, or with an error of lead's.
func (s *Store) Lead(ctx context.Context, lead func(ctx context.Context, term uint64) error) error {
	for {
		term, changed := s.leading.now()
		if err := s.leading.over(); err != nil {
			return err
		}
		if term == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-changed:
			}
			continue
		}
		err := s.raft.Barrier(0).Error()
		if err == nil && s.machine.isBehind() {
			if err = s.Yield(); err == nil {
				err = errBehind
			}
		}
		if err != nil {
			s.cfg.Logger.Debug("leads, but cannot begin yet", "node", s.cfg.Node, "term", term, "err", err)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-changed:
			case <-time.After(s.cfg.Heartbeat): // a failed transfer of leadership is not signalled
			}
			continue
		}
		s.settled.Store(term)
		s.cfg.Logger.Debug("leading", "node", s.cfg.Node, "term", term)
		err = s.leadOnce(ctx, term, changed, lead)
		if ctx.Err() != nil || err != nil {
			return err
		}
		s.cfg.Logger.Debug("not leading", "node", s.cfg.Node, "term", term)
	}
}

// yieldTime is how long another node may take to lead.
const yieldTime = 5 * time.Second

// Yield has another node lead. The error states why none can.
func (s *Store) Yield() error {
	asked := make(chan error, 1)
	go func() { asked <- s.raft.LeadershipTransfer().Error() }() // never answers if a disk hangs
	var err error
	select {
	case err = <-asked:
	case <-s.failed:
	case <-time.After(yieldTime):
		err = fmt.Errorf("no answer within %v", yieldTime)
	}
	select { // whatever raft answers by then only follows from it
	case <-s.failed:
		err = errors.New("the store has failed")
	default:
	}
	if err != nil {
		return fmt.Errorf("have another node lead: %w", err)
	}
	return nil
}

// leadOnce leads for one term. The end of the term is no error.
func (s *Store) leadOnce(ctx context.Context, term uint64, changed <-chan struct{}, lead func(context.Context, uint64) error) error {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- lead(inner, term) }()
	select {
	case err := <-done:
		if err == nil && ctx.Err() == nil {
			err = errors.New("the leader's duties ended by themselves")
		}
		return err
	case <-changed:
		cancel(errLost)
		<-done
		return nil
	case <-ctx.Done():
		cancel(context.Cause(ctx))
		return <-done
	}
}
