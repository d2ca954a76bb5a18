package metastore

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Local makes a Store of an Engine, in one process: it stamps the time and applies batch after batch. Only what the
// engine stores survives.
type Local struct {
	Engine
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	mu   sync.Mutex
	last time.Time
}

// Apply applies a batch in one Update.
func (l *Local) Apply(ctx context.Context, batch []kernel.Envelope) []Result {
	now := time.Now
	if l.Now != nil {
		now = l.Now
	}
	return Admitted(batch, Archived(ctx, l, now()), func(batch []kernel.Envelope) (results []Result) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return Refused(batch, kernel.Refuse(jobs.Unavailable, "not done: %v", err))
		}
		l.last = Stamp(batch, now(), l.last)
		l.Update(func(tx Tx) {
			state := stateOf(tx)
			rules := Rules{Known: kernel.ApplyVersion, InForce: func(uint32) (uint32, error) { return state.InForce(), nil }}
			results = rules.Allowed(batch, func(batch []kernel.Envelope) []Result { return ApplyBatch(tx, batch) })
		})
		return results
	})
}

// Stamp gives a commit its time: now, but never before the last commit's. It returns that time.
func Stamp(batch []kernel.Envelope, now, last time.Time) time.Time {
	at := kernel.Instant(now)
	if at.Before(last) {
		at = last
	}
	for i := range batch {
		batch[i].At = at
	}
	return at
}

// Refused answers a whole batch with one error.
func Refused(batch []kernel.Envelope, err error) []Result {
	results := make([]Result, len(batch))
	for i := range results {
		results[i].Err = err
	}
	return results
}
