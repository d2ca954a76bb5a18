package jobs

import (
	"errors"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/internal/plain"
)

// Jitter says how much is taken off a retry's delay.
type Jitter string

// How much is taken off.
const (
	JitterHalf Jitter = "half" // up to half of it
	JitterFull Jitter = "full" // up to all of it
	JitterNone Jitter = "none" // nothing: runs that failed together come back together
)

// RetryRule says how runs that failed with one of some codes are tried again.
type RetryRule struct {
	Codes    []string      `json:"codes"`              // as Fail gives them; CodeTimeout, CodePanic, CodeError; "*" = any
	Attempts int           `json:"attempts"`           // retries by this rule; 0 = none: such a failure is the last
	Delay    time.Duration `json:"delay,omitempty"`    // before the first of them; 0 = at once
	Factor   float64       `json:"factor,omitempty"`   // what the delay grows by; 0 = as the job's retryFactor says
	MaxDelay time.Duration `json:"maxDelay,omitempty"` // 0 = as the job's retryDelayMax says
}

// noRetry, coded and snooze are what a handler may wrap its answer in.
type (
	noRetry struct{ err error }
	coded   struct {
		code string
		err  error
	}
	snooze struct{ d time.Duration }
)

func (e noRetry) Error() string { return e.err.Error() }
func (e noRetry) Unwrap() error { return e.err }
func (e coded) Error() string   { return e.err.Error() }
func (e coded) Unwrap() error   { return e.err }
func (e snooze) Error() string  { return fmt.Sprintf("snoozed for %v", e.d) }

// NoRetry wraps a handler's error: the run is Terminated whatever retries are left.
func NoRetry(err error) error {
	if err == nil {
		return nil
	}
	return noRetry{err}
}

// IsFinal says that err, or what it wraps, came from NoRetry.
func IsFinal(err error) bool { return errors.As(err, new(noRetry)) }

// Fail gives a handler's error a code, such as "502" or "card_declined": retry rules choose by it, and lists are searched
// by it. It can be wrapped in NoRetry.
func Fail(code string, err error) error {
	if err == nil {
		return nil
	}
	return coded{plain.Code(code), err}
}

// FailCode is the code that err, or what it wraps, got from Fail; or "".
func FailCode(err error) string {
	var c coded
	if errors.As(err, &c) {
		return c.code
	}
	return ""
}

// Snooze, returned by a handler, has it called again after d. It uses up no retry.
func Snooze(d time.Duration) error { return snooze{d} }

// Snoozed says whether err came from Snooze, and for how long.
func Snoozed(err error) (time.Duration, bool) {
	var s snooze
	ok := errors.As(err, &s)
	return s.d, ok
}
