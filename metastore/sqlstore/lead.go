package sqlstore

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Leadership is a row: a name, a term, and the end of a lease that the leader renews. The time is the database's, so
// clocks of nodes do not matter; a node measures its lease by its own clock, from before the request, and a little
// shorter. Two nodes may believe to lead for a moment all the same (one was frozen): the term in every firing commit
// stops the late one. The session (session.go) shows earlier that a leader is dead.

const (
	leaseTime = 4 * time.Second
	renewTime = time.Second
	tryTime   = 100 * time.Millisecond // how often a node that does not lead tries to
	margin    = 500 * time.Millisecond // by which a node gives up before its lease expires
)

// errLost: another node leads, or may.
var errLost = errors.New("leadership was lost")

// Lead calls lead while this node leads, with the number of its term, and ends lead's context the moment it does not.
// It returns when ctx ends, with an error of lead's, or with metastore.ErrTooOld.
func (s *Store) Lead(ctx context.Context, lead func(ctx context.Context, term uint64) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(s.older, stop)()
	if err := s.leadUntil(ctx, lead); err != nil {
		return err
	}
	return context.Cause(s.older)
}

func (s *Store) leadUntil(ctx context.Context, lead func(ctx context.Context, term uint64) error) error {
	if !s.leasesOnly {
		if err := s.session.begin(s.cfg); err != nil {
			return err
		}
		defer s.session.end()
	}
	tick := time.NewTicker(tryTime)
	defer tick.Stop()
	for {
		asked := time.Now()
		term, err := s.take(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			s.episodes.Failed(slog.LevelWarn, "", "leader election failed", "err", err)
		default:
			s.episodes.End("", "leader election failed")
		}
		if err == nil && term > 0 {
			if err := s.term(ctx, term, asked, lead); err != nil && !errors.Is(err, errLost) {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// take begins a term if there is no leader. 0 = there is one.
func (s *Store) take(ctx context.Context) (term uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.leaseTime-margin)
	defer cancel()
	free, mine, asked := s.free(ctx)
	if asked && !free {
		s.let(ctx)
		return 0, nil
	}
	session, lapsed := "''", "until < "+s.dialect.clock
	if mine {
		session, lapsed = s.dialect.server, "("+lapsed+" OR session = "+s.dialect.server+")"
	}
	// A term that the store has not seen, whatever happened to this row.
	done, err := s.db.ExecContext(ctx, s.dialect.ask("UPDATE carillon_leader SET node = ?, term = (SELECT GREATEST(term, carillon_leader.term) + 1 FROM carillon_store WHERE one = 1), "+
		"until = "+s.dialect.clock+" + ?, session = "+session+" WHERE one = 1 AND "+lapsed), s.cfg.Node, int64(s.cfg.leaseTime))
	if err != nil {
		s.let(ctx)
		return 0, s.failed("begin a term", err)
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		s.let(ctx)
		return 0, err
	}
	err = s.query(ctx, "read the term", func(scan func(...any) error) error { return scan(&term) },
		"SELECT term FROM carillon_leader WHERE one = 1 AND node = ?", s.cfg.Node)
	return term, err
}

// term leads until the lease cannot be renewed, lead returns, or ctx ends; then it releases the lease.
func (s *Store) term(ctx context.Context, term uint64, since time.Time, lead func(context.Context, uint64) error) error {
	s.confirmed.Store(&confirmation{term, since})
	s.leads.Store(term)
	defer s.leads.Store(0)
	leading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan error, 1)
	go func() { ended <- lead(leading, term) }()
	over := time.NewTimer(time.Until(since.Add(s.cfg.leaseTime - margin)))
	defer over.Stop()
	renew := time.NewTicker(renewTime)
	defer renew.Stop()
	renewed := make(chan time.Time, 1)
	asking := false
	for {
		select {
		case err := <-ended:
			s.release(ctx, term)
			if leading.Err() != nil && ctx.Err() == nil {
				return errLost
			}
			return err
		case <-over.C:
			s.episodes.Failed(slog.LevelWarn, "", "leadership was lost: the database did not renew it in time", "term", term)
			stop(errLost)
		case at := <-renewed:
			asking = false
			if at.IsZero() {
				continue
			}
			if at.Equal(gone) {
				s.log.Warn("leadership was lost: another node has it", "term", term)
				stop(errLost)
				continue
			}
			s.confirmed.Store(&confirmation{term, at})
			over.Reset(time.Until(at.Add(s.cfg.leaseTime - margin)))
		case <-renew.C:
			if !asking && leading.Err() == nil {
				asking = true
				go func() { renewed <- s.renew(leading, term) }()
			}
		}
	}
}

// confirmation is a moment at which this process led a term.
type confirmation struct {
	term uint64
	at   time.Time
}

// Confirmed returns when the last renewal of a term's lease was asked for that the database has granted.
func (s *Store) Confirmed(term uint64) time.Time {
	if c := s.confirmed.Load(); c != nil && c.term == term {
		return c.at
	}
	return time.Time{}
}

// gone means that another node has the lease.
var gone = time.Unix(0, 1)

// renew renews the lease and returns from when it counts; zero = unknown.
func (s *Store) renew(ctx context.Context, term uint64) time.Time {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.leaseTime-margin)
	defer cancel()
	asked := time.Now()
	done, err := s.keep(ctx, func(session string) string {
		return "UPDATE carillon_leader SET until = " + s.dialect.clock + " + ?, session = " + session + " WHERE one = 1 AND node = ? AND term = ?"
	}, int64(s.cfg.leaseTime), s.cfg.Node, int64(term))
	if err != nil {
		if ctx.Err() == nil {
			s.episodes.Failed(slog.LevelWarn, "", "the lease of leadership was not renewed", "err", err)
		}
		return time.Time{}
	}
	s.episodes.End("", "the lease of leadership was not renewed")
	if n, err := done.RowsAffected(); err == nil && n == 0 {
		return gone
	}
	return asked
}

// release lets the next node lead at once. It is retried for as long as a lease may last: after that no node waits
// for it.
func (s *Store) release(ctx context.Context, term uint64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.leaseTime-margin)
	defer cancel()
	defer s.session.drop()
	if _, err := s.db.ExecContext(ctx, s.dialect.ask("UPDATE carillon_leader SET until = 0, session = '' WHERE one = 1 AND node = ? AND term = ?"), s.cfg.Node, int64(term)); err != nil {
		s.log.Debug("leadership was not released", "err", err)
	}
}
