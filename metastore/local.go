package metastore

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Local makes a Store of an Engine, in one process: it stamps the time and applies batch after batch. Nothing
// survives beyond what the engine keeps.
type Local struct {
	Engine
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	mu   sync.Mutex
	last time.Time
}

// Apply applies a batch in one Update.
func (l *Local) Apply(ctx context.Context, batch []jobs.Envelope) []Result {
	return Checked(batch, func(batch []jobs.Envelope) (results []Result) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return Refused(batch, jobs.Refuse(jobs.Unavailable, "not done: %v", err))
		}
		now := time.Now
		if l.Now != nil {
			now = l.Now
		}
		l.last = Stamp(batch, now(), l.last)
		l.Update(func(tx Tx) { results = ApplyBatch(tx, batch) })
		return results
	})
}

// Stamp gives a commit its time: now, but never before the last commit's. It answers with the time given.
func Stamp(batch []jobs.Envelope, now, last time.Time) time.Time {
	at := jobs.Instant(now)
	if at.Before(last) {
		at = last
	}
	for i := range batch {
		batch[i].At = at
	}
	return at
}

// Checked keeps envelopes that are wrong by themselves away from apply, which gets a copy of the others, and puts
// the answers together again. This is the edge: behind it, Apply can rely on Envelope.Check, and replicas of two
// versions cannot disagree about it.
func Checked(batch []jobs.Envelope, apply func([]jobs.Envelope) []Result) []Result {
	good := make([]jobs.Envelope, 0, len(batch))
	results := make([]Result, len(batch))
	for i := range batch {
		if err := batch[i].Check(); err != nil {
			results[i].Err = err
			continue
		}
		good = append(good, batch[i])
	}
	if len(good) == 0 {
		return results
	}
	answers := apply(good)
	if len(good) == len(batch) {
		return answers
	}
	next := 0
	for i := range results {
		if results[i].Err == nil {
			results[i] = answers[next]
			next++
		}
	}
	return results
}

// Refused answers a whole batch with one error.
func Refused(batch []jobs.Envelope, err error) []Result {
	results := make([]Result, len(batch))
	for i := range results {
		results[i].Err = err
	}
	return results
}
