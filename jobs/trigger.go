package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Trigger starts runs of a triggered job from afar, typed by the job's arguments:
//
//	var ChargeJob = jobs.Trigger[ChargeArgs]("billing.charge")
//	run, err := ChargeJob.Enqueue(ctx, c, ChargeArgs{Customer: "c7"}, jobs.After(time.Hour))
type Trigger[A any] Key

// Enqueuer takes wishes for runs: a client, or an embedded control plane. The answers are in the order of the
// wishes. All of them are checked before the first is sent; an error after that says which were not done.
type Enqueuer interface {
	Enqueue(ctx context.Context, wishes ...Create) ([]Receipt, error)
}

// Run is what an enqueuer gets back: which run it is, and whether it was there before.
type Receipt struct {
	ID        ID
	Key       Key
	State     State
	Due       time.Time
	Duplicate bool // a unique or idempotency key led to a run that was there before
}

// How shapes one run: when, how urgent, under which unique key.
type How func(*Create)

// After makes the run due after d, counted by the store's clock.
func After(d time.Duration) How { return func(c *Create) { c.Delay = d } }

// At makes the run due at t. A time that has passed means now.
func At(t time.Time) How { return func(c *Create) { c.Due = Instant(t) } }

// Unique lets at most one run of the job with this key exist that is not final. A second one is answered by the first.
func Unique(key string) How { return func(c *Create) { c.Unique = key } }

// UniqueFor lets at most one run of the job with this key begin within d.
func UniqueFor(key string, d time.Duration) How {
	return func(c *Create) { c.Unique, c.UniqueFor = key, d }
}

// WithPriority is the run's own priority.
func WithPriority(p int) How { return func(c *Create) { c.Priority = &p } }

// WithRetries is the run's own number of retries; of 0 there are none, whatever rules say.
func WithRetries(n int) How { return func(c *Create) { c.Retries = &n } }

// WithTimeout is the run's own timeout for an attempt.
func WithTimeout(d time.Duration) How { return func(c *Create) { c.Timeout = &d } }

// OnWorker has a worker run it, by its configured name, whatever the job's route is.
func OnWorker(name string) How { return func(c *Create) { c.Pin = name } }

// WithID is the run's own ID, made by [NewID]. Enqueueing it again under its ID makes no second run: after an error that
// leaves the outcome open, pass the ID of the Run that was returned with it.
func WithID(id ID) How { return func(c *Create) { c.ID = id } }

// Wish is the Create for one run, for those who send it themselves.
func (t Trigger[A]) Wish(args A, how ...How) (Create, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return Create{}, Invalid("arguments of %s cannot be written as JSON: %v", t, err)
	}
	c := Create{ID: NewID(time.Now()), Key: Key(t), Args: raw, Origin: FromCode}
	for _, h := range how {
		h(&c)
	}
	return c, c.Check()
}

// Enqueue starts one run. The Run has its ID and key with an error, too, once the arguments and options are valid. If the
// error is [Unknown], the run may have been made: enqueue it again with [WithID] to make sure, without a second run.
func (t Trigger[A]) Enqueue(ctx context.Context, to Enqueuer, args A, how ...How) (Receipt, error) {
	wish, err := t.Wish(args, how...)
	if err != nil {
		return Receipt{}, err
	}
	runs, err := to.Enqueue(ctx, wish)
	if err != nil {
		return Receipt{ID: wish.ID, Key: wish.Key}, fmt.Errorf("enqueue %s: %w", t, err)
	}
	return runs[0], nil
}

// EnqueueAll starts a run for each of args, in as few commits as possible. With an error it returns what the Enqueuer
// does: the runs of a client have their IDs, and its error says which of them were not made.
func (t Trigger[A]) EnqueueAll(ctx context.Context, to Enqueuer, args []A, how ...How) ([]Receipt, error) {
	wishes := make([]Create, len(args))
	for i, a := range args {
		wish, err := t.Wish(a, how...)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		wishes[i] = wish
	}
	runs, err := to.Enqueue(ctx, wishes...)
	if err != nil {
		return runs, fmt.Errorf("enqueue %d of %s: %w", len(args), t, err)
	}
	return runs, nil
}
