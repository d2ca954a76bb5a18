package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Requests in the outbox that were refused stay there with the reason, until a person retries or discards them. Every
// process reads and changes them in the database. Their rows have refused_at; so do rows that a leader could not read,
// but those have no reason, because the next leader may be able to read them.

const (
	refusedPage = 50 // requests in a list without a limit
	refusedPart = 100
	refusedText = 4_096 // bytes of a reason
)

var _ metastore.Outbox = (*Store)(nil)

// decodeRequest decodes a row of the outbox. Its sender is a program that requests runs, even if the row names another.
func decodeRequest(b []byte) (kernel.Envelope, error) {
	one, err := kernel.DecodeSentEnvelopes(b)
	if err == nil && len(one) != 1 {
		err = fmt.Errorf("%d envelopes in one row of the outbox", len(one))
	}
	if err != nil {
		return kernel.Envelope{}, err
	}
	one[0].Sender = &kernel.Sender{As: kernel.AsOutbox}
	return one[0], nil
}

// refusedRequest is a row of the outbox for users.
func refusedRequest(number, at int64, envelope []byte, reason sql.NullString) metastore.RefusedRequest {
	r := metastore.RefusedRequest{Number: number, At: instant(at), Tenant: jobs.DefaultTenant, Reason: reason.String, Unreadable: !reason.Valid}
	e, err := decodeRequest(envelope)
	if err != nil {
		r.Unreadable, r.Reason = true, cmp.Or(r.Reason, "the request cannot be read: "+err.Error())
		return r
	}
	if !reason.Valid {
		r.Reason = "the leader cannot read the request: a newer program wrote it"
	}
	r.Tenant, r.Actor = cmp.Or(e.Tenant, jobs.DefaultTenant), e.Actor
	if k, ok := e.Command.(kernel.Create); ok {
		r.Key, r.Run = k.Key, k.ID
	}
	return r
}

// Refused lists refused requests of a tenant.
func (s *Store) Refused(ctx context.Context, tenant jobs.Tenant, limit int) (list []metastore.RefusedRequest, err error) {
	limit = min(cmp.Or(limit, refusedPage), metastore.MaxPage)
	for last, n := int64(math.MaxInt64), refusedPart; n == refusedPart && len(list) < limit; {
		n = 0
		err := s.query(ctx, "list refused requests", func(scan func(...any) error) error {
			var at int64
			var envelope []byte
			var reason sql.NullString
			if err := scan(&last, &at, &envelope, &reason); err != nil {
				return err
			}
			n++
			if r := refusedRequest(last, at, envelope, reason); r.Tenant == tenant && len(list) < limit {
				list = append(list, r)
			}
			return nil
		}, "SELECT id, refused_at, envelope, refused FROM carillon_outbox WHERE refused_at IS NOT NULL AND id < ? ORDER BY id DESC LIMIT ?", last, refusedPart)
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// RetryRefused has refused requests delivered again. The scheduler remembers a refusal for KeepFinal, and would answer
// an earlier retry with it.
func (s *Store) RetryRefused(ctx context.Context, tenant jobs.Tenant, numbers []int64) (int, error) {
	found, now, err := s.findRefused(ctx, tenant, numbers)
	if err != nil {
		return 0, err
	}
	for _, r := range found {
		if again := r.At.Add(metastore.KeepFinal); !r.Unreadable && now.Before(again) {
			return 0, kernel.Refuse(jobs.Conflict, "request %d was refused less than %v ago: retry it in %v", r.Number, metastore.KeepFinal, again.Sub(now).Truncate(time.Second)+time.Second)
		}
	}
	return s.changeRefused(ctx, found, "UPDATE carillon_outbox SET refused = NULL, refused_at = NULL")
}

// DiscardRefused deletes refused requests.
func (s *Store) DiscardRefused(ctx context.Context, tenant jobs.Tenant, numbers []int64) (int, error) {
	found, _, err := s.findRefused(ctx, tenant, numbers)
	if err != nil {
		return 0, err
	}
	return s.changeRefused(ctx, found, "DELETE FROM carillon_outbox")
}

// findRefused returns the refused requests of a tenant among those with given numbers, and the database's time.
func (s *Store) findRefused(ctx context.Context, tenant jobs.Tenant, numbers []int64) (found []metastore.RefusedRequest, now time.Time, err error) {
	for some := range slices.Chunk(numbers, refusedPart) {
		args := make([]any, len(some))
		for i, n := range some {
			args[i] = n
		}
		err := s.query(ctx, "read refused requests", func(scan func(...any) error) error {
			var number, at, clock int64
			var envelope []byte
			var reason sql.NullString
			if err := scan(&number, &at, &envelope, &reason, &clock); err != nil {
				return err
			}
			now = instant(clock)
			if r := refusedRequest(number, at, envelope, reason); r.Tenant == tenant {
				found = append(found, r)
			}
			return nil
		}, "SELECT id, refused_at, envelope, refused, "+s.dialect.clock+" FROM carillon_outbox WHERE refused_at IS NOT NULL AND id IN "+marks(len(args)), args...)
		if err != nil {
			return nil, now, err
		}
	}
	return found, now, nil
}

// changeRefused changes refused requests, and returns how many there still were.
func (s *Store) changeRefused(ctx context.Context, found []metastore.RefusedRequest, change string) (int, error) {
	if len(found) == 0 {
		return 0, nil
	}
	numbers := make([]any, len(found))
	for i, r := range found {
		numbers[i] = r.Number
	}
	result, err := s.db.ExecContext(ctx, s.dialect.ask(change+" WHERE refused_at IS NOT NULL AND id IN "+marks(len(numbers))), numbers...)
	if err != nil {
		return 0, kernel.OutcomeUnknown("%s did not confirm a change of refused requests: %s", s.dialect.name, quiet(err, s.cfg.URL))
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// refuse stores why a request in the outbox was refused.
func (s *Store) refuse(ctx context.Context, number int64, reason string) error {
	_, err := s.db.ExecContext(ctx, s.dialect.ask("UPDATE carillon_outbox SET refused = ?, refused_at = "+s.dialect.clock+" WHERE id = ?"), plain.Short(reason, refusedText), number)
	return err
}

// listUnreadable lists requests with the refused ones that a leader cannot read, until another one tries.
func (s *Store) listUnreadable(ctx context.Context, numbers []any) error {
	_, err := s.db.ExecContext(ctx, s.dialect.ask("UPDATE carillon_outbox SET refused_at = "+s.dialect.clock+" WHERE refused_at IS NULL AND id IN "+marks(len(numbers))), numbers...)
	return err
}

// openUnreadable has this leader try to read what another one could not.
func (s *Store) openUnreadable(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, "UPDATE carillon_outbox SET refused_at = NULL WHERE refused IS NULL AND refused_at IS NOT NULL")
	return s.failed("open unreadable requests", err)
}
