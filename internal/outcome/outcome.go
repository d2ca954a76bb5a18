// Package outcome has the errors by which a handler says what becomes of its run: package jobs makes them, and a worker
// reads them. It is not promised.
package outcome

import (
	"errors"
	"fmt"
	"time"
)

// Final is an error after which no retry follows.
type Final struct{ Err error }

// Coded is an error with a code by which retry rules choose.
type Coded struct {
	Code string
	Err  error
}

// Snooze asks for another call after a time.
type Snooze struct{ For time.Duration }

func (e Final) Error() string  { return e.Err.Error() }
func (e Final) Unwrap() error  { return e.Err }
func (e Coded) Error() string  { return e.Err.Error() }
func (e Coded) Unwrap() error  { return e.Err }
func (e Snooze) Error() string { return fmt.Sprintf("snoozed for %v", e.For) }

// IsFinal reports whether err, or an error that it wraps, is Final.
func IsFinal(err error) bool { return errors.As(err, new(Final)) }

// CodeOf returns the code of err, or of an error that it wraps; "" if there is none.
func CodeOf(err error) string {
	var c Coded
	if errors.As(err, &c) {
		return c.Code
	}
	return ""
}

// Snoozed reports whether err, or an error that it wraps, is a Snooze, and for how long.
func Snoozed(err error) (time.Duration, bool) {
	var s Snooze
	ok := errors.As(err, &s)
	return s.For, ok
}

// Refusal is a code with the sentence that explains it. Its code is a jobs.Code everywhere; package jobs cannot be
// named here.
type Refusal[C error] struct {
	Code C
	Text string
}

func (r *Refusal[C]) Error() string { return r.Text }

// Unwrap makes errors.Is(err, code) work.
func (r *Refusal[C]) Unwrap() error { return r.Code }
