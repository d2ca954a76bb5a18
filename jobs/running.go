package jobs

import (
	"context"
	"io"
	"log/slog"
	"time"
)

// Running is what a worker provides to a handler through its context. Handlers call Log, Progress and so on instead.
type Running interface {
	Log() *slog.Logger
	Progress(done, total int64, text string)
	Attempt() AttemptInfo
	Result(v any) error
	Save(ctx context.Context, v any) error
	Load(v any) (bool, error)
}

// AttemptInfo describes the attempt that a handler runs.
type AttemptInfo struct {
	Tenant Tenant
	Run    ID
	Key    Key
	Due    time.Time // the due time of the run, not its start
	Number uint32    // from 1; a fencing token: it only grows, so a resource can refuse an older one
	Worker string
	// Of a broadcast: the index of this run, from 0, and the total. Otherwise 0 and 0.
	Index, Total int
	// Job is the ID of the job. One that is deleted and created again has the key of the former one, and another ID.
	Job ID
	// Revision of the job when the run was created.
	Revision uint64
	// Number of the run among the runs of its HTTP job, from 1; 0 for other jobs.
	Execution uint32
}

// Part returns the index of this run in its broadcast and the number of the broadcast's runs: a broadcast to three
// workers has the parts (0, 3), (1, 3) and (2, 3). Other runs, and callers outside a run, get (0, 1).
func Part(ctx context.Context) (index, total int) {
	a := Attempt(ctx)
	return a.Index, max(1, a.Total)
}

type runningKey struct{}

// WithRunning returns a context for a handler. It is for workers, and for tests that workertest does not support.
func WithRunning(ctx context.Context, r Running) context.Context {
	return context.WithValue(ctx, runningKey{}, r)
}

func running(ctx context.Context) Running {
	r, _ := ctx.Value(runningKey{}).(Running)
	return r
}

// Log returns a logger whose lines appear on the run's page while it runs. Outside a run it discards them.
func Log(ctx context.Context) *slog.Logger {
	if r := running(ctx); r != nil {
		return r.Log()
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

// Last reports whether err, if the handler returned it now, would end the run without another attempt. It is a
// forecast: if the worker crashes before it reports, another attempt may follow. Use it to notify of final failures
// only.
func Last(ctx context.Context, err error) bool {
	r, ok := running(ctx).(interface{ Last(err error) bool })
	return ok && r.Last(err)
}

// Progress reports the progress of a run: done of total (0 = unknown), and a short text. Call it as often as you like:
// the worker sends at most one report a second.
func Progress(ctx context.Context, done, total int64, text string) {
	if r := running(ctx); r != nil {
		r.Progress(done, total, text)
	}
}

// Attempt describes the attempt of ctx. Outside a run it is zero.
func Attempt(ctx context.Context) AttemptInfo {
	if r := running(ctx); r != nil {
		return r.Attempt()
	}
	return AttemptInfo{}
}

// Result sets the result of the run, which is stored if the run succeeds: v as JSON, up to 64 KiB and 62 levels.
func Result(ctx context.Context, v any) error {
	if r := running(ctx); r != nil {
		return r.Result(v)
	}
	return ErrNotRunning
}

// Save stores v (as JSON, up to 64 KiB and 64 levels) for the next attempt of this run. It is durable when Save returns nil.
func Save(ctx context.Context, v any) error {
	if r := running(ctx); r != nil {
		return r.Save(ctx, v)
	}
	return ErrNotRunning
}

// Load reads into v what an earlier attempt saved, and reports whether one did.
func Load(ctx context.Context, v any) (bool, error) {
	if r := running(ctx); r != nil {
		return r.Load(v)
	}
	return false, ErrNotRunning
}
