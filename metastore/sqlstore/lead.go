package sqlstore

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Lead calls lead while this node leads, with the number of its term, and ends lead's context the moment it does not.
// It returns when ctx ends or the store does, with an error of lead's, or with the error that ended the store, such as
// metastore.ErrTooOld.
func (s *Store) Lead(ctx context.Context, lead func(ctx context.Context, term uint64) error) error {
	select {
	case <-s.places.following:
	case <-ctx.Done():
		return nil
	case <-s.broken.Done():
		return context.Cause(s.broken)
	case <-s.ctx.Done():
		return nil
	}
	if !s.leasesOnly {
		if err := s.session.begin(s.cfg); err != nil {
			return err
		}
		defer s.session.end()
	}
	err := s.log.Lead(ctx, func(ctx context.Context, term uint64) error {
		var duties sync.WaitGroup
		defer duties.Wait()
		writing, stop := context.WithCancel(ctx)
		defer stop()
		duties.Go(func() { s.writeJobs(writing, term) })
		duties.Go(func() { s.prove(writing) })
		duties.Go(func() { s.compare(writing) })
		duties.Go(func() { s.writeLive(writing, term) })
		return lead(ctx, term)
	})
	if s.broken.Err() != nil {
		return context.Cause(s.broken)
	}
	return err
}

// compare has the nodes that follow the log compare their rows with those of this one, while it leads, until ctx ends.
// One that differs reads its rows again.
func (s *Store) compare(ctx context.Context) {
	s.KeepComparing(ctx, s.cfg.checkEvery, func() bool { return s.followed(ctx) }, func(err error) {
		s.episodes.Failed(slog.LevelWarn, "", "the nodes' rows could not be compared", "err", err)
	})
}

// followed reports whether other nodes have the rows in memory: those with a place, and members, which have a copy. It
// says yes if the database does not answer: a comparison more does no harm.
func (s *Store) followed(ctx context.Context) bool {
	asked, cancel := context.WithTimeout(ctx, s.cfg.patience)
	defer cancel()
	var n int
	err := s.db.QueryRowContext(asked, s.dialect.ask("SELECT (SELECT COUNT(*) FROM carillon_followers WHERE until >= "+s.dialect.clock+" AND node <> ?) + "+
		"(SELECT COUNT(*) FROM carillon_members WHERE until >= "+s.dialect.clock+" AND node <> ?)"), s.cfg.Node, s.cfg.Node).Scan(&n)
	return err != nil || n > 0
}

// Confirmed returns when the last renewal of a term's lease was asked for that the database has granted.
func (s *Store) Confirmed(term uint64) time.Time { return s.log.Confirmed(term) }

// Linearizable returns when reads from now on include all that any node acknowledged before the call. Any node can
// ensure that: it reads the end of the log.
func (s *Store) Linearizable(ctx context.Context) error {
	if s.broken.Err() != nil {
		return kernel.Refuse(jobs.Unavailable, "%v", context.Cause(s.broken))
	}
	return s.log.Linearizable(ctx)
}

// Age is how old the rows of this node may be: the time since they had all of the log. It is 0 on the leader, and grows
// while the database does not answer.
func (s *Store) Age() time.Duration { return s.log.Age() }

// Stats returns measurements of commits, the log, and what waits to be written. Of a process that has no rows, they are
// those of commits.
func (s *Store) Stats() metastore.Stats {
	stats := s.Replica.Stats()
	if !s.Whole() {
		return stats
	}
	index, since, taken := s.machine.Bounds.Now()
	stats.Log = &metastore.LogStats{Term: s.log.Term(), Applied: index, Age: s.Age()}
	if s.log.Leads() { // others take no snapshots, and do not know those of the leader
		stats.Log.Bytes, stats.Log.Snapshot = since, taken
	}
	runs, bytes := s.history.backlog()
	stats.Unwritten = &metastore.UnwrittenStats{Runs: runs, Bytes: bytes}
	return stats
}

// HasLeader reports whether some node leads, as this one last read it. One without rows does not read it, and says yes.
func (s *Store) HasLeader() bool {
	if !s.Whole() {
		return true
	}
	until := s.led.Load()
	return s.log.Leads() || until != nil && time.Now().Before(*until)
}

// Alone reports whether no other node can have acknowledged anything: others may open the database at any time.
func (s *Store) Alone() bool { return false }

// noteLease notes how long a lease lasts.
func (s *Store) noteLease(lasts time.Duration) { s.led.Store(new(time.Now().Add(lasts))) }
