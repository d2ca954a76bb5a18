package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/outcome"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// mostProgress bounds the text of a progress.
const mostProgress = 200

// lent is what a handler gets through its context: jobs.Running.
type lent struct {
	worker  *Worker
	attempt *attempt
}

// Log returns the attempt's logger.
func (l *lent) Log() *slog.Logger {
	a := l.attempt
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.logger == nil {
		a.logger = slog.New(newLogHandler(l.worker.lines, a))
		if echo := l.worker.config.Echo; echo != nil {
			a.logger = slog.New(slog.NewMultiHandler(a.logger.Handler(), echo.With(a.facts()...).Handler()))
		}
	}
	return a.logger
}

// Progress keeps the latest progress until the next heartbeat sends it.
func (l *lent) Progress(done, total int64, text string) {
	p := &bus.Progress{Done: max(done, 0), Total: max(total, 0), Text: plain.Short(text, mostProgress)}
	l.attempt.mu.Lock()
	defer l.attempt.mu.Unlock()
	l.attempt.progress = p
}

// Attempt returns which attempt this is.
func (l *lent) Attempt() jobs.AttemptInfo {
	run := l.attempt.in
	info := jobs.AttemptInfo{Tenant: run.Tenant, Run: run.ID, Key: run.Key, Job: run.Job, Due: run.Due, Number: run.Attempt, Worker: l.worker.name, Revision: run.Revision, Execution: run.Execution}
	if p := run.Place; p != nil {
		info.Index, info.Total = int(p.Index), int(p.Total)
	}
	return info
}

// Last reports whether no attempt follows one that fails with err, by the policy of the run when it started.
func (l *lent) Last(err error) bool {
	if _, put := outcome.Snoozed(err); put {
		return false
	}
	cause, code := kernel.ByError, outcome.CodeOf(err)
	if errors.Is(err, jobs.ErrTimeout) {
		cause, code = kernel.ByTimeout, kernel.CodeTimeout
	}
	run := *l.attempt.in
	run.Moves = slices.Clip(run.Moves) // an embedded worker shares the row with the store, which uses the room behind it
	run, refused := run.Fail(time.Now(), cause, code, "", 0, !outcome.IsFinal(err))
	return refused == nil && run.State == jobs.Terminated
}

// Result keeps the result until the handler returns; the last one counts.
func (l *lent) Result(v any) error {
	raw, err := encode("result", v, kernel.CheckResult)
	if err != nil {
		return err
	}
	l.attempt.mu.Lock()
	defer l.attempt.mu.Unlock()
	l.attempt.result = raw
	return nil
}

// Save stores a checkpoint, as long as the attempt is still this worker's.
func (l *lent) Save(ctx context.Context, v any) error {
	raw, err := encode("checkpoint", v, kernel.CheckCheckpoint)
	if err != nil {
		return err
	}
	a, w := l.attempt, l.worker
	command := kernel.Checkpoint{ID: a.ID, Worker: w.name, Attempt: a.Attempt, Data: raw}
	w.send(ctx, []kernel.Envelope{w.envelope(command)}, forSave, func(_ int, r metastore.Result) { err = r.Err })
	if err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.checkpoint = raw
	return nil
}

// Load reads the latest checkpoint: of this attempt, or of an earlier one.
func (l *lent) Load(v any) (bool, error) {
	a := l.attempt
	a.mu.Lock()
	raw := a.checkpoint
	a.mu.Unlock()
	if raw == nil {
		raw = a.in.Checkpoint
	}
	if len(raw) == 0 {
		return false, nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return true, fmt.Errorf("load checkpoint: %w", err)
	}
	return true, nil
}

func encode(what string, v any, check func([]byte) error) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, kernel.Invalid("%s cannot be written as JSON: %v", what, err)
	}
	return raw, check(raw)
}
