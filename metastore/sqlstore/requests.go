package sqlstore

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A process that cannot connect to the leader leaves its requests in a table, where the leader answers them.

const (
	requestTime = 30 * time.Second       // how long a request lasts whose caller sets no limit
	requestPoll = 20 * time.Millisecond  // how often its caller looks for the answer, and the leader for more requests
	requestIdle = 200 * time.Millisecond // and the leader while none have come for requestLull
	requestLull = 5 * time.Second
	requestPart = 32 // that are read at once
)

// Ask leaves a request for the leader and waits for its answer. What does not succeed in time may have been done.
func (s *Store) Ask(ctx context.Context, service string, request []byte) ([]byte, error) {
	patience := requestTime
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	id := bytesOf(jobs.NewID(time.Now()))
	_, err := s.db.ExecContext(ctx, s.dialect.ask("INSERT INTO carillon_requests (id, until, service, caller, request) VALUES (?, "+s.dialect.clock+" + ?, ?, ?, ?)"), id, int64(patience), service, s.cfg.Node, request)
	if err != nil {
		return nil, kernel.OutcomeUnknown("%s did not take a request: %s", s.dialect.name, quiet(err, s.cfg.URL))
	}
	defer s.forgetRequest(id)
	tick := time.NewTicker(requestPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, kernel.Refuse(jobs.Unknown, "the leader did not answer through the database")
		case <-tick.C:
		}
		var code sql.NullString
		var answer []byte
		err := s.query(ctx, "look for an answer", func(scan func(...any) error) error { return scan(&code, &answer) },
			"SELECT code, answer FROM carillon_requests WHERE id = ? AND code IS NOT NULL", id)
		switch {
		case err != nil || !code.Valid:
		case code.String == "":
			return answer, nil
		default:
			return nil, &kernel.Refusal{Code: jobs.Code(code.String), Text: string(answer)}
		}
	}
}

// forgetRequest deletes a request whose caller is gone. What it misses the leader deletes.
func (s *Store) forgetRequest(id []byte) {
	ctx, cancel := context.WithTimeout(s.ctx, time.Second)
	defer cancel()
	_, _ = s.db.ExecContext(ctx, s.dialect.ask("DELETE FROM carillon_requests WHERE id = ?"), id)
}

// Answer answers requests until ctx ends: while this node leads.
func (s *Store) Answer(ctx context.Context, fn func(ctx context.Context, service string, from bus.Principal, request []byte) ([]byte, error)) {
	a := answering{store: s, answer: fn, open: map[string]bool{}}
	defer a.work.Wait()
	swept, last := time.Time{}, time.Time{}
	for {
		n, err := a.read(ctx)
		if err != nil && ctx.Err() == nil {
			s.episodes.Failed(slog.LevelWarn, "", "requests in the database were not read", "err", err)
		}
		if time.Since(swept) > requestTime {
			swept = time.Now()
			_, _ = s.db.ExecContext(ctx, s.dialect.ask("DELETE FROM carillon_requests WHERE until < "+s.dialect.clock)) // later, then
		}
		wait := requestIdle
		if n > 0 {
			last = time.Now()
		}
		if time.Since(last) < requestLull {
			wait = requestPoll
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// answering is a leader's work on requests.
type answering struct {
	store  *Store
	answer func(ctx context.Context, service string, from bus.Principal, request []byte) ([]byte, error)
	work   sync.WaitGroup

	mu   sync.Mutex
	open map[string]bool // IDs of requests that are worked on
}

// read begins to answer what is new, and returns how many are worked on.
func (a *answering) read(ctx context.Context) (n int, err error) {
	s := a.store
	a.mu.Lock()
	defer a.mu.Unlock()
	err = s.query(ctx, "read requests", func(scan func(...any) error) error {
		var id, request []byte
		var service, caller string
		if err := scan(&id, &service, &caller, &request); err != nil || a.open[string(id)] {
			return err
		}
		a.open[string(id)] = true
		a.work.Go(func() {
			answer, err := a.answer(ctx, service, bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: caller}, request)
			s.answered(ctx, id, answer, err)
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.open, string(id))
		})
		return nil
	}, "SELECT id, service, caller, request FROM carillon_requests WHERE code IS NULL AND until >= "+s.dialect.clock+" ORDER BY id LIMIT ?", len(a.open)+requestPart)
	return len(a.open), err
}

// answered stores an answer.
func (s *Store) answered(ctx context.Context, id []byte, answer []byte, err error) {
	code := ""
	if err != nil {
		code, answer = string(jobs.CodeOf(err)), []byte(err.Error())
	}
	if answer == nil {
		answer = []byte{}
	}
	if _, err := s.db.ExecContext(ctx, s.dialect.ask("UPDATE carillon_requests SET code = ?, answer = ? WHERE id = ?"), code, answer, id); err != nil && ctx.Err() == nil {
		s.episodes.Failed(slog.LevelWarn, "", "an answer was not stored in the database", "err", err)
	}
}
