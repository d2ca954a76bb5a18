package sqlstore

import (
	"context"
	"database/sql"
	"log/slog"
	"time"
)

// A process that commits and does not lead notifies the leader, in the commit: a number goes up, and PostgreSQL
// notifies. The leader's memory follows only its own commits.

// notify marks a commit for the leader, in the commit.
func (s *Store) notify(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "UPDATE carillon_beside SET commits = commits + 1 WHERE one = 1")
	if err == nil && s.dialect == postgres {
		_, err = tx.ExecContext(ctx, "SELECT pg_notify('carillon_beside', '')")
	}
	return err
}

// besidePoll is how often WatchCommits polls without notifications.
const besidePoll = 500 * time.Millisecond

// WatchCommits calls fn once, and then soon after a process that does not lead has committed: at once on PostgreSQL,
// within Config.LookEvery on MariaDB. It returns when ctx ends.
func (s *Store) WatchCommits(ctx context.Context, fn func()) error {
	notified := make(chan struct{}, 1)
	every := s.cfg.LookEvery
	if s.dialect == postgres {
		every = besidePoll
		done := make(chan struct{})
		defer func() { <-done }()
		go func() { defer close(done); s.listen(ctx, "carillon_beside", notified) }()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := int64(-1)
	for {
		var n int64
		err := s.query(ctx, "read which processes have committed", func(scan func(...any) error) error { return scan(&n) }, "SELECT commits FROM carillon_beside WHERE one = 1")
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			s.episodes.Failed(slog.LevelWarn, "", "cannot check whether others have committed", "err", err)
		default:
			s.episodes.End("", "cannot check whether others have committed")
		}
		if err == nil && n != last {
			last = n
			fn()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-notified:
		case <-tick.C:
		}
	}
}
