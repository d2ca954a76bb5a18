package jobs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Backoff is the wait before the n-th retry (n from 1): base doubled n-1 times, at most most, less up to half of
// it. What is taken off follows from the run's ID and n, so that runs that failed together do not come back
// together, and every replica computes the same. Zero base means at once.
func Backoff(base, most time.Duration, n int, id ID) time.Duration {
	if base <= 0 {
		return 0
	}
	d := base
	for i := 1; i < n && (most <= 0 || d < most); i++ {
		if d > MaxDuration/2 {
			d = MaxDuration
			break
		}
		d *= 2
	}
	if most > 0 {
		d = min(d, max(most, base))
	}
	x := binary.BigEndian.Uint64(id[8:]) ^ uint64(n)*0x9e3779b97f4a7c15
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9 // the finishing step of splitmix64 (Steele, Lea, Flood 2014)
	x ^= x >> 32
	return d - time.Duration(float64(d)/2*(float64(x>>11)/(1<<53)))
}

// noRetry and snooze are what a handler may wrap its answer in.
type (
	noRetry struct{ err error }
	snooze  struct{ d time.Duration }
)

func (e noRetry) Error() string { return e.err.Error() }
func (e noRetry) Unwrap() error { return e.err }
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

// Snooze, returned by a handler, has it called again after d. It uses up no retry.
func Snooze(d time.Duration) error { return snooze{d} }

// Snoozed says whether err came from Snooze, and for how long.
func Snoozed(err error) (time.Duration, bool) {
	var s snooze
	ok := errors.As(err, &s)
	return s.d, ok
}
