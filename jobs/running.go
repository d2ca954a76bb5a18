package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// Running is what a worker lends to a handler through its context. Handlers use the functions below.
type Running interface {
	Log() *slog.Logger
	Progress(done, total int64, text string)
	Attempt() AttemptInfo
	Result(v any) error
	Save(ctx context.Context, v any) error
	Load(v any) (bool, error)
}

// AttemptInfo says which attempt of which run a handler is.
type AttemptInfo struct {
	Tenant Tenant
	Run    ID
	Key    Key
	Due    time.Time // the due time that the run stands for, however late it is
	Number uint32    // the fencing token: it only grows, and anything done under an older one may be refused
	Worker string
	// Of a broadcast: which of its runs this is, from 0, and how many there are. Otherwise 0 and 0.
	Index, Total int
	// Revision of the job that the run was made of.
	Revision uint64
}

// Part says which part of the work is this run's: of a broadcast to three workers, one run is told 0 and 3, one 1 and 3,
// one 2 and 3. A run that is alone, and what is no run at all, is told 0 and 1.
func Part(ctx context.Context) (index, total int) {
	a := Attempt(ctx)
	return a.Index, max(1, a.Total)
}

type runningKey struct{}

// WithRunning lends r to the handler that gets the context. For workers, and for tests of handlers.
func WithRunning(ctx context.Context, r Running) context.Context {
	return context.WithValue(ctx, runningKey{}, r)
}

func running(ctx context.Context) Running {
	r, _ := ctx.Value(runningKey{}).(Running)
	return r
}

// Log is a logger whose lines appear on the run's page while it runs. Outside a run it discards.
func Log(ctx context.Context) *slog.Logger {
	if r := running(ctx); r != nil {
		return r.Log()
	}
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

// Last says whether err, if a handler returned it now, would be the end of its run: no attempt follows. It is asked for by
// those who tell others how runs end. The store decides in the end: a worker that dies before it has reported may be
// followed by another attempt all the same.
func Last(ctx context.Context, err error) bool {
	r, ok := running(ctx).(interface{ Last(err error) bool })
	return ok && r.Last(err)
}

// Progress shows how far a run is: done of total (0 = unknown), and a few words. It costs next to nothing; at most
// one a second is passed on.
func Progress(ctx context.Context, done, total int64, text string) {
	if r := running(ctx); r != nil {
		r.Progress(done, total, text)
	}
}

// Attempt says which attempt of which run this is. Outside a run it is zero.
func Attempt(ctx context.Context) AttemptInfo {
	if r := running(ctx); r != nil {
		return r.Attempt()
	}
	return AttemptInfo{}
}

// ErrNotRunning is returned by Result, Save and Load outside a run.
var ErrNotRunning = errors.New("jobs: this context does not belong to a run")

// Result is what the run will be remembered by, if it succeeds: anything JSON can carry, up to 64 KiB.
func Result(ctx context.Context, v any) error {
	if r := running(ctx); r != nil {
		return r.Result(v)
	}
	return ErrNotRunning
}

// Save keeps v (up to 64 KiB as JSON) for the next attempt of this run. It has been stored when Save returns nil.
func Save(ctx context.Context, v any) error {
	if r := running(ctx); r != nil {
		return r.Save(ctx, v)
	}
	return ErrNotRunning
}

// Load reads what an earlier attempt saved into v, and says whether there was anything.
func Load(ctx context.Context, v any) (bool, error) {
	if r := running(ctx); r != nil {
		return r.Load(v)
	}
	return false, ErrNotRunning
}

// Why a run's context ended, as context.Cause tells it. Use errors.Is, and errors.As for *CancelledError.
var (
	ErrTimeout   = errors.New("the attempt took longer than its timeout")
	ErrLeaseLost = errors.New("the lease was lost: another attempt may be running")
	ErrShutdown  = errors.New("the worker is stopping")
)

// CancelledError is the cause when somebody cancelled the run.
type CancelledError struct{ By, Reason string }

func (e *CancelledError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("cancelled by %s", e.By)
	}
	return fmt.Sprintf("cancelled by %s: %s", e.By, e.Reason)
}
