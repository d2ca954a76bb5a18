package jobs

import (
	"errors"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/internal/outcome"
	"github.com/carillon-scheduler/carillon/internal/plain"
)

// NoRetry wraps a handler's error: the run is Terminated, whatever retries are left. NoRetry(nil) is nil.
func NoRetry(err error) error {
	if err == nil {
		return nil
	}
	return outcome.Final{Err: err}
}

// Fail gives a handler's error a code, such as "502" or "card_declined". Retry rules match the code, and lists of
// runs can be filtered by it. Fail(code, nil) is nil. It can be wrapped in NoRetry.
func Fail(code string, err error) error {
	if err == nil {
		return nil
	}
	return outcome.Coded{Code: plain.Code(code), Err: err}
}

// Snooze returns an error with which a handler requests another call after d. It uses up no retry.
func Snooze(d time.Duration) error { return outcome.Snooze{For: d} }

// The causes of an ended context of a run: compare context.Cause(ctx) by errors.Is. See also CancelledError.
var (
	ErrTimeout   = errors.New("the attempt took longer than its timeout")
	ErrLeaseLost = errors.New("the lease was lost: another attempt may be running")
	ErrShutdown  = errors.New("the worker is stopping")
)

// CancelledError is the cause of a context whose run was cancelled by a person or a program.
type CancelledError struct{ By, Reason string }

func (e *CancelledError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("cancelled by %s", e.By)
	}
	return fmt.Sprintf("cancelled by %s: %s", e.By, e.Reason)
}

// ErrNotRunning is returned by Result, Save and Load outside a run.
var ErrNotRunning = errors.New("jobs: this context does not belong to a run")

// Code is the reason for which a request is refused. Errors of clients, stores and the API have one:
//
//	if errors.Is(err, jobs.Unknown) { ... } // send it again under the same ID
type Code string

// The reasons for which a request is refused.
const (
	NotFound    Code = "not found"       // no such job or run
	Conflict    Code = "conflict"        // not possible in the present state
	Stale       Code = "stale"           // an older attempt, revision or term than the current one
	BadInput    Code = "invalid"         // the request breaks a rule; nothing was stored
	Forbidden   Code = "forbidden"       // the role of the sender does not allow this request
	Unknown     Code = "outcome unknown" // it may or may not have been stored: send it again under the same ID
	Unavailable Code = "unavailable"     // not stored; possible later (no leader, no connection)
	Exhausted   Code = "exhausted"       // a quota is used up
)

func (c Code) Error() string { return string(c) }

// CodeOf returns the code of a refusal. Any other error is Unknown: the request may have been stored.
func CodeOf(err error) Code {
	if c, ok := errors.AsType[Code](err); ok {
		return c
	}
	return Unknown
}

// invalid makes a refusal with BadInput.
func invalid(format string, args ...any) error {
	return &outcome.Refusal[Code]{Code: BadInput, Text: fmt.Sprintf(format, args...)}
}
