package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/outbox"
)

// Requests for runs from transactions of programs (package outbox) are in a table until the leader has made runs of
// them: an entry of the log could only be followed by others when the program's transaction has ended. A request is
// deleted after its run is in the log; one that is delivered twice finds its run there.

const (
	outboxPoll  = 20 * time.Millisecond  // how often the leader reads the table while requests come
	outboxIdle  = 100 * time.Millisecond // and while none have come for outboxLull
	outboxLull  = 5 * time.Second
	outboxPart  = 1_000
	outboxBytes = 16 << 20 // that are read at once
	outboxMost  = 4 << 20  // of a request
)

// Outbox is where programs leave requests for this store, by the actor.
func (s *Store) Outbox(tenant jobs.Tenant, actor string) outbox.Outbox {
	kind := outbox.PostgreSQL
	if s.dialect == mariadb {
		kind = outbox.MariaDB
	}
	return outbox.Outbox{Database: kind, Tenant: tenant, Actor: actor}
}

// Deliver passes requests to a store until ctx ends, while leads is true: to that of the leading control plane, so that
// workers learn of them at once.
func (s *Store) Deliver(ctx context.Context, leads func() bool, to metastore.Applier) error {
	last, led := time.Time{}, false // when a request was there, and whether this process led when it looked
	for {
		n := 0
		var err error
		if now := leads(); now != led {
			if err = s.openUnreadable(ctx); err == nil || !now {
				led = now
			}
		}
		if led && err == nil {
			delivering, cancel := context.WithTimeout(ctx, 2*patience)
			n, err = s.deliver(delivering, to)
			cancel()
		}
		if err != nil && ctx.Err() == nil {
			s.episodes.Failed(slog.LevelWarn, "", "the outbox was not delivered", "err", err)
		} else {
			s.episodes.End("", "the outbox was not delivered")
		}
		wait := outboxIdle
		switch {
		case n == outboxPart && err == nil:
			wait = 0 // there are more
		case n > 0:
			last = time.Now()
			fallthrough
		case time.Since(last) < outboxLull:
			wait = outboxPoll
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// deliver passes on the oldest requests, and returns how many there were.
func (s *Store) deliver(ctx context.Context, to metastore.Applier) (n int, err error) {
	var batch []kernel.Envelope
	var ids []int64
	var unreadable []any
	size := 0
	err = s.query(ctx, "read the outbox", func(scan func(...any) error) error {
		var id int64
		var b []byte
		if err := scan(&id, &b); err != nil {
			return err
		}
		n++
		e, err := decodeRequest(b)
		if size += len(b); b == nil {
			err = fmt.Errorf("it has more than %d bytes", outboxMost)
		}
		if err != nil {
			s.logger.Error("a request from a transaction cannot be read", "row", id, "err", err)
			unreadable = append(unreadable, id)
			return nil
		}
		ids, batch = append(ids, id), append(batch, e)
		if size > outboxBytes {
			return errEnough
		}
		return nil
	}, "SELECT id, CASE WHEN OCTET_LENGTH(envelope) <= "+strconv.Itoa(outboxMost)+" THEN envelope END FROM carillon_outbox WHERE refused_at IS NULL ORDER BY id LIMIT ?", outboxPart)
	if err == nil && len(unreadable) > 0 {
		err = s.listUnreadable(ctx, unreadable)
	}
	if err != nil {
		return n, err
	}
	var done []any
	var later error
	for i, r := range metastore.Sieved(batch, (*kernel.Envelope).CheckOutboxed, func(batch []kernel.Envelope) []metastore.Result { return to.Apply(ctx, batch) }) {
		switch code := jobs.CodeOf(r.Err); {
		case r.Err == nil:
			done = append(done, ids[i])
		case code == jobs.Unknown || code == jobs.Unavailable || code == jobs.Exhausted:
			later = r.Err // it stays: a repetition does no harm
		default:
			s.logger.Error("a request from a transaction was refused", "row", ids[i], "err", r.Err)
			err = errors.Join(err, s.refuse(ctx, ids[i], r.Err.Error()))
		}
	}
	if len(done) > 0 {
		_, e := s.db.ExecContext(ctx, s.dialect.ask(s.dialect.unbox+marks(len(done))), done...)
		err = errors.Join(err, e)
	}
	return n, errors.Join(later, err)
}
