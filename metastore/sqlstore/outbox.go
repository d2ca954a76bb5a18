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

	headEvery = 100 * time.Millisecond // how often requests are tried again that are over a limit
	passShare = 4                      // a pass begins, and the head is read again, after so many times what the last took
	passMost  = 10_000                 // tenants over a limit
)

// pass is a way through the outbox behind requests that stay, because their tenant is over a limit: they may be more
// than are read at once. Behind the head of the table it leaves that tenant's requests, for their order. The next pass
// finds rows that were committed after rows with higher numbers. So nothing depends on what a pass remembers.
type pass struct {
	began time.Time
	head  time.Time            // when the head is read again, of which not all was taken
	after int64                // it has read the rows up to this one
	held  map[jobs.Tenant]bool // whose requests stay; none = only the head is read
	why   error
	next  time.Time // when the next one begins; zero = this one has not reached the end
}

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
	var p pass
	for {
		n, more := 0, false
		var err error
		if now := leads(); now != led {
			p = pass{}
			if err = s.openUnreadable(ctx); err == nil || !now {
				led = now
			}
		}
		if led && err == nil {
			delivering, cancel := context.WithTimeout(ctx, 2*patience)
			n, more, err = s.deliver(delivering, to, &p)
			cancel()
		}
		if err != nil && ctx.Err() == nil {
			s.episodes.Failed(slog.LevelWarn, "", "the outbox was not delivered", "err", err)
		} else {
			s.episodes.End("", "the outbox was not delivered")
		}
		wait := outboxIdle
		switch {
		case more:
			wait = 0
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

// deliver passes on the oldest requests, or those behind what a pass has read. It returns how many it has read, and
// whether it can go on at once.
func (s *Store) deliver(ctx context.Context, to metastore.Applier, p *pass) (n int, more bool, err error) {
	now, from := time.Now(), p.after
	if !now.Before(p.head) {
		if from = 0; !p.next.IsZero() && now.After(p.next) {
			*p = pass{}
		}
	}
	if len(p.held) == 0 {
		p.began = now
	}
	var batch []kernel.Envelope
	var ids []int64
	var unreadable []any
	last, size, taken := from, 0, true
	err = s.query(ctx, "read the outbox", func(scan func(...any) error) error {
		var b []byte
		if err := scan(&last, &b); err != nil {
			return err
		}
		n++
		e, err := decodeRequest(b)
		if b == nil {
			err = fmt.Errorf("it has more than %d bytes", outboxMost)
		}
		switch {
		case err != nil:
			s.logger.Error("a request from a transaction cannot be read", "row", last, "err", err)
			unreadable = append(unreadable, last)
		case from == 0 || !p.held[e.Tenant]:
			ids, batch = append(ids, last), append(batch, e)
		}
		if size += len(b); size > outboxBytes {
			return errEnough
		}
		return nil
	}, "SELECT id, CASE WHEN OCTET_LENGTH(envelope) <= "+strconv.Itoa(outboxMost)+" THEN envelope END FROM carillon_outbox WHERE refused_at IS NULL AND id > ? ORDER BY id LIMIT ?", from, outboxPart)
	if err == nil && len(unreadable) > 0 {
		err = s.listUnreadable(ctx, unreadable)
	}
	if err != nil {
		return n, false, err
	}
	var done []any
	var later error
	for i, r := range metastore.Checked(batch, func(batch []kernel.Envelope) []metastore.Result { return to.Apply(ctx, batch) }) {
		switch code := jobs.CodeOf(r.Err); {
		case r.Err == nil:
			done = append(done, ids[i])
		case code == jobs.Unknown || code == jobs.Unavailable:
			later = r.Err // it stays: a repetition does no harm
		case code == jobs.Exhausted:
			if p.held == nil {
				p.held = map[jobs.Tenant]bool{}
			}
			p.held[batch[i].Tenant], p.why, taken = true, r.Err, false
		default:
			s.logger.Error("a request from a transaction was refused", "row", ids[i], "err", r.Err)
			err = errors.Join(err, s.refuse(ctx, ids[i], r.Err.Error()))
		}
	}
	if len(done) > 0 {
		_, e := s.db.ExecContext(ctx, s.dialect.ask(s.dialect.unbox+marks(len(done))), done...)
		err = errors.Join(err, e)
	}
	if err = errors.Join(later, err); err != nil || len(p.held) > passMost {
		err = errors.Join(err, p.why)
		*p = pass{}
		return n, false, err
	}
	end := n < outboxPart && size <= outboxBytes
	if len(p.held) == 0 || taken && end && from == 0 {
		*p = pass{}
		return n, !end, nil
	}
	if p.after = max(p.after, last); end && p.next.IsZero() {
		p.next = time.Now().Add(max(headEvery, passShare*time.Since(p.began)))
	}
	if from == 0 && !taken {
		p.head = time.Now().Add(max(headEvery, passShare*time.Since(now)))
	}
	return n, p.next.IsZero() || from == 0 && taken, p.why
}
