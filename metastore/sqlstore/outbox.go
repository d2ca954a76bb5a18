package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// A program that writes to the same database can request a run in a transaction of its own: the run exists if that
// commits, and only then. The request is in a table meanwhile, because an entry of the log could only be
// followed by others when the program's transaction has ended. The leader passes it to the store right after.

// EnqueueTx requests runs inside tx. They begin after tx commits: on PostgreSQL at once, on MariaDB within half a
// second. An unknown job is refused here; tenant "" means the default one. A request that is sent twice under its ID
// makes no second run.
func (s *Store) EnqueueTx(ctx context.Context, tx *sql.Tx, tenant jobs.Tenant, actor string, requests ...jobs.Request) error {
	return s.enqueue(ctx, tenant, actor, requests, func(query string, args ...any) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
}

// EnqueuePgx is EnqueueTx for a transaction of pgx.
func (s *Store) EnqueuePgx(ctx context.Context, tx pgx.Tx, tenant jobs.Tenant, actor string, requests ...jobs.Request) error {
	return s.enqueue(ctx, tenant, actor, requests, func(query string, args ...any) error {
		_, err := tx.Exec(ctx, query, args...)
		return err
	})
}

func (s *Store) enqueue(ctx context.Context, tenant jobs.Tenant, actor string, requests []jobs.Request, exec func(query string, args ...any) error) error {
	if tenant == "" {
		tenant = jobs.DefaultTenant
	}
	for _, r := range requests {
		if r.ID.IsZero() {
			r.ID = jobs.NewID(time.Now())
		}
		e := kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: tenant, Actor: actor, Command: kernel.CreateOf(r)}
		if err := cmp.Or(e.Check(), outboxed(&e)); err != nil {
			return err
		}
		if err := s.defined(ctx, tenant, r.Key); err != nil {
			return err
		}
		if err := exec(s.dialect.ask("INSERT INTO carillon_outbox (envelope) VALUES (?)"), kernel.AppendEnvelopes(nil, []kernel.Envelope{e})); err != nil {
			return err
		}
	}
	if s.dialect == postgres && len(requests) > 0 {
		return exec("SELECT pg_notify('carillon_outbox', '')")
	}
	return nil
}

// defined returns an error if there is no such job, or if that is not known. The rows here may lack a new one.
func (s *Store) defined(ctx context.Context, tenant jobs.Tenant, key jobs.Key) error {
	_, err := s.Definition(ctx, tenant, key)
	if !errors.Is(err, jobs.NotFound) {
		return err
	}
	if err := s.Linearizable(ctx); err != nil {
		return err
	}
	_, err = s.Definition(ctx, tenant, key)
	return err
}

// outboxed returns why an envelope may not be in the outbox, or nil. A program that can write to the table may
// request runs, and nothing else.
func outboxed(e *kernel.Envelope) error {
	k, ok := e.Command.(kernel.Create)
	switch {
	case !ok:
		return kernel.Refuse(jobs.Forbidden, "the outbox takes requests for runs only, not %s", e.Command.Verb())
	case kernel.SystemKey(k.Key):
		return kernel.Refuse(jobs.Forbidden, "only the scheduler starts runs of %s", k.Key)
	}
	return nil
}

const (
	outboxPoll = 500 * time.Millisecond // how often the outbox is read without notifications
	outboxPart = 1_000
)

// Deliver passes requests from transactions of programs to a store, until ctx ends: to the announced one of the
// leading control plane, so that workers learn of them at once. Two concurrent deliveries do no harm.
func (s *Store) Deliver(ctx context.Context, to metastore.Applier) error {
	notified := make(chan struct{}, 1)
	if s.dialect == postgres {
		go s.listen(ctx, "carillon_outbox", notified)
	}
	tick := time.NewTicker(outboxPoll)
	defer tick.Stop()
	unread := map[int64]bool{}
	for {
		if err := s.deliver(ctx, to, unread); err != nil && ctx.Err() == nil && jobs.CodeOf(err) != jobs.Unavailable {
			s.episodes.Failed(slog.LevelWarn, "", "the outbox was not delivered", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-notified:
		case <-tick.C:
		}
	}
}

// deliver passes on all requests. Unreadable ones stay for a leader that can read them, mostly a newer program's, and
// block no others; unread has those that were logged.
func (s *Store) deliver(ctx context.Context, to metastore.Applier, unread map[int64]bool) error {
	for last := int64(0); ; {
		n := 0
		var ids []int64
		var batch []kernel.Envelope
		err := s.query(ctx, "read the outbox", func(scan func(...any) error) error {
			var b []byte
			if err := scan(&last, &b); err != nil {
				return err
			}
			n++
			one, err := kernel.DecodeSentEnvelopes(b)
			if err == nil && len(one) != 1 {
				err = fmt.Errorf("%d envelopes in one row of the outbox", len(one))
			}
			switch {
			case err == nil:
				ids, batch = append(ids, last), append(batch, one...)
			case !unread[last]:
				unread[last] = true
				s.logger.Error("a request in the outbox cannot be read", "row", last, "err", err)
			}
			return nil
		}, "SELECT id, envelope FROM carillon_outbox WHERE refused IS NULL AND id > ? ORDER BY id LIMIT ?", last, outboxPart)
		if err == nil && len(batch) > 0 {
			err = s.bring(ctx, to, ids, batch)
		}
		if err != nil || n < outboxPart {
			return err
		}
	}
}

// bring passes requests to a store, and deletes those that were done or refused.
func (s *Store) bring(ctx context.Context, to metastore.Applier, ids []int64, batch []kernel.Envelope) (err error) {
	for i, r := range metastore.Sieved(batch, outboxed, func(batch []kernel.Envelope) []metastore.Result { return to.Apply(ctx, batch) }) {
		switch code := jobs.CodeOf(r.Err); {
		case r.Err == nil:
			_, err = s.db.ExecContext(ctx, s.dialect.ask("DELETE FROM carillon_outbox WHERE id = ?"), ids[i])
		case code == jobs.Unknown || code == jobs.Unavailable:
			return r.Err // again later: repeating is idempotent
		default:
			s.logger.Error("a request in the outbox was refused after its transaction had committed", "row", ids[i], "err", r.Err)
			_, err = s.db.ExecContext(ctx, s.dialect.ask("UPDATE carillon_outbox SET refused = ? WHERE id = ?"), r.Err.Error(), ids[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// listen waits for PostgreSQL's notifications of committed transactions. While it cannot, the poll reads.
func (s *Store) listen(ctx context.Context, channel string, notified chan<- struct{}) {
	for ctx.Err() == nil {
		if err := s.await(ctx, channel, notified); err != nil && ctx.Err() == nil {
			s.logger.Debug("the database does not notify", "cause", channel, "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

func (s *Store) await(ctx context.Context, channel string, notified chan<- struct{}) error {
	c, err := pgx.Connect(ctx, s.cfg.URL)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	if _, err := c.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	for {
		if _, err := c.WaitForNotification(ctx); err != nil {
			return err
		}
		select {
		case notified <- struct{}{}:
		default:
		}
	}
}
