package raftstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/jobs"
)

// startRaft starts raft and says whether this node is the only voter.
func (s *Store) startRaft(snapshots raft.SnapshotStore, to logger) (alone bool, err error) {
	id, err := s.identity()
	if err != nil {
		return false, err
	}
	trans := s.cfg.Transport
	if trans == nil {
		_, trans = raft.NewInmemTransport(raft.ServerAddress(id))
	}
	c := raft.DefaultConfig()
	c.LocalID = id
	c.Logger = to
	c.HeartbeatTimeout, c.ElectionTimeout = s.cfg.Heartbeat, s.cfg.Heartbeat
	c.LeaderLeaseTimeout = s.cfg.Heartbeat
	c.SnapshotThreshold = ^uint64(0) // bounds says when
	c.SnapshotInterval = 24 * time.Hour
	c.NoSnapshotRestoreOnStart = true // restoreNewest has done it
	c.NoLegacyTelemetry = true

	there, err := raft.HasExistingState(s.log, s.log, snapshots)
	if err != nil {
		return false, fmt.Errorf("read log: %w", err)
	}
	if !there {
		first := raft.Configuration{Servers: []raft.Server{{ID: id, Address: trans.LocalAddr()}}}
		if err := raft.BootstrapCluster(c, s.log, s.log, snapshots, trans, first); err != nil {
			return false, fmt.Errorf("begin the log: %w", err)
		}
	}
	if s.raft, err = raft.NewRaft(c, s.machine, s.log, s.log, snapshots, trans); err != nil {
		return false, fmt.Errorf("start raft: %w", err)
	}
	members := s.raft.GetConfiguration().Configuration().Servers
	alone = len(members) == 1 && members[0].ID == id
	s.standForElection = func() { hurry(id, trans) }
	if alone {
		s.standForElection()
	}
	return alone, nil
}

var keyIdentity = []byte("carillon/server")

// identity is the name by which raft knows this node: chosen once, because people rename their machines.
func (s *Store) identity() (raft.ServerID, error) {
	name, err := s.log.Get(keyIdentity)
	if err != nil && err.Error() != "not found" { // the words that raft goes by, too
		return "", fmt.Errorf("read log %s: %w", s.log.path, err)
	}
	if len(name) > 0 {
		return raft.ServerID(name), nil
	}
	id := jobs.NewID(time.Now()).String()
	if err := s.log.Set(keyIdentity, []byte(id)); err != nil {
		return "", err
	}
	return raft.ServerID(id), nil
}

// hurry lets a node that is alone stand for election now: there is nobody whose heartbeat it could wait for.
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
	ended   error  // it never will again
	changed chan struct{}
}

// now is the term, or 0, and a channel that is closed when that is no longer so.
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

// end ends all leading, and says why.
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

// watch keeps the level up to date. Raft's channel may drop news but not the last one, and a term that was lost
// and won again in between shows in its number.
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

// Lead calls lead whenever this node has become the leader and has applied all that older leaders have committed,
// with the number of its term, and ends lead's context the moment it leads no longer. The next call comes after
// the last has returned. Lead returns when ctx ends or the store does, or with an error of lead's.
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
		if err := s.raft.Barrier(0).Error(); err != nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-changed:
			}
			continue
		}
		s.cfg.Logger.Debug("leading", "node", s.cfg.Node, "term", term)
		err := s.leadOnce(ctx, term, changed, lead)
		if ctx.Err() != nil || err != nil {
			return err
		}
		s.cfg.Logger.Info("not leading", "node", s.cfg.Node, "term", term)
	}
}

// leadOnce leads for one term. An error that only says that the term is over is none.
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
