package sqlstore

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/metastore"
)

// The leader and two standbys have the rows in memory. Any number of other processes may open the database: they wait
// for one of three places, which is theirs for as long as they renew it.

const (
	placeTime  = 4 * time.Second
	placeRenew = time.Second
)

// places are a process's attempts to follow the log.
type places struct {
	nonce     string
	place     int           // 0 = none
	following chan struct{} // closed when the rows are complete
}

func newPlaces() places { return places{nonce: rand.Text(), following: make(chan struct{})} }

// Whole reports whether the rows have been complete at some time since this process began.
func (s *Store) Whole() bool {
	select {
	case <-s.places.following:
		return true
	default:
		return false
	}
}

// beginFollowing follows the log if there is a place, and otherwise as soon as there is one.
func (s *Store) beginFollowing(ctx context.Context) error {
	if s.cfg.Copy {
		return s.followLog(ctx)
	}
	has, err := s.keepPlace(ctx)
	if err != nil {
		return err
	}
	if has {
		// Reading the rows may take longer than the place lasts.
		reading, stop := context.WithCancel(ctx)
		kept := make(chan struct{})
		go func() {
			defer close(kept)
			s.keepPlaces(reading)
		}()
		err := s.followLog(ctx)
		stop()
		if <-kept; err != nil {
			return err
		}
	}
	s.duties.Go(func() { s.keepPlaces(s.ctx) })
	if !has {
		s.duties.Go(func() { s.followLater(s.ctx) })
	}
	return nil
}

// followLog reads the rows, and follows the log from then on.
func (s *Store) followLog(ctx context.Context) error {
	if err := s.log.Follow(ctx); err != nil {
		return s.unread(err)
	}
	close(s.places.following)
	return nil
}

// followLater follows the log when there is a place.
func (s *Store) followLater(ctx context.Context) {
	tick := time.NewTicker(placeRenew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.placing.Lock()
		has := s.places.place > 0
		s.placing.Unlock()
		if !has {
			continue
		}
		switch err := s.followLog(ctx); {
		case err == nil:
			s.logger.Info("this process may lead: it has the rows", "node", s.cfg.Node)
			return
		case errors.Is(err, metastore.ErrTooOld):
			s.fail(err)
			return
		case ctx.Err() == nil:
			s.episodes.Failed(slog.LevelWarn, "", "the rows were not read", "err", err)
		}
	}
}

// keepPlaces keeps a place until ctx ends, or takes one when it has none.
func (s *Store) keepPlaces(ctx context.Context) {
	tick := time.NewTicker(placeRenew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := s.keepPlace(ctx); err != nil && ctx.Err() == nil {
			s.logger.Debug("the place of this process was not renewed", "err", err)
		}
	}
}

// keepPlace renews a place, or takes a free one, and reports whether this process has one. A process that starts again
// takes the place that it had. Without an answer it has what it had: one follower more does no harm.
func (s *Store) keepPlace(ctx context.Context) (has bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, placeTime)
	defer cancel()
	s.placing.Lock()
	defer s.placing.Unlock()
	p := &s.places
	if p.place > 0 {
		done, err := s.db.ExecContext(ctx, s.dialect.ask("UPDATE carillon_followers SET until = "+s.dialect.clock+" + ? WHERE place = ? AND nonce = ?"), int64(placeTime), p.place, p.nonce)
		if err != nil {
			return true, err
		}
		if n, err := done.RowsAffected(); err != nil || n > 0 {
			return true, err
		}
		p.place = 0
	}
	var free []int
	err = s.query(ctx, "look for a place", func(scan func(...any) error) error {
		var place int
		err := scan(&place)
		free = append(free, place)
		return err
	}, "SELECT place FROM carillon_followers WHERE until < "+s.dialect.clock+" OR node = ? ORDER BY place", s.cfg.Node)
	for _, place := range free {
		done, err := s.db.ExecContext(ctx, s.dialect.ask("UPDATE carillon_followers SET node = ?, nonce = ?, until = "+s.dialect.clock+" + ? WHERE place = ? AND (until < "+s.dialect.clock+" OR node = ?)"),
			s.cfg.Node, p.nonce, int64(placeTime), place, s.cfg.Node)
		if err != nil {
			return false, err
		}
		if n, err := done.RowsAffected(); err != nil || n > 0 {
			p.place = place
			return true, err
		}
	}
	return false, err
}

// leavePlace lets another process have this one's place.
func (s *Store) leavePlace() {
	s.placing.Lock()
	defer s.placing.Unlock()
	if s.places.place > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = s.db.ExecContext(ctx, s.dialect.ask("UPDATE carillon_followers SET until = 0 WHERE place = ? AND nonce = ?"), s.places.place, s.places.nonce)
	}
}
