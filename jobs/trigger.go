package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"
)

// Trigger enqueues runs of a triggered job from any program, typed by the job's arguments:
//
//	var ChargeJob = jobs.Trigger[ChargeArgs]("billing.charge")
//	receipt, err := ChargeJob.Enqueue(ctx, c, ChargeArgs{Customer: "c7"}, jobs.After(time.Hour))
type Trigger[A any] Key

// Enqueuer sends requests for runs to a control plane: a client of package client is one. The receipts are in the order
// of the requests. It checks all requests before it sends the first; a later error names the requests that were not
// stored.
type Enqueuer interface {
	Enqueue(ctx context.Context, requests ...Request) ([]Receipt, error)
}

// Request describes one run to enqueue. [Trigger.Request] makes one; a program that has only a job's key fills in the
// fields.
type Request struct {
	ID          ID // made by NewID; zero = the Enqueuer makes one. A request that is sent again under its ID makes no second run.
	Key         Key
	Args        json.RawMessage // a JSON object; nil = the job's default arguments
	ArgsType    reflect.Type    // what Args were encoded from; nil = unknown. Those of the job's own type need no check.
	Due         time.Time       // zero = now
	Delay       time.Duration   // after the time at which the request is stored; used when Due is zero
	Unique      string          // at most one live run of the job has this key
	UniqueFor   time.Duration   // the unique key is kept for this long from the request on, instead of until the run is final
	Idempotency string          // a second request with this key, within 24 h, returns the run of the first
	Priority    *int            // nil = that of the job, as for the next three
	Retries     *int
	Timeout     *time.Duration
	StartWithin *time.Duration
	Batch       ID     // that the run is in, see client.Client.OpenBatch; zero = none
	Worker      string // the worker that runs it, by its configured name; the job's route is ignored then
}

// Receipt is what an Enqueuer returns for a request: which run it is, and whether it existed before.
type Receipt struct {
	ID        ID
	Key       Key
	State     State // zero if the request was refused
	Due       time.Time
	Duplicate bool // a unique or idempotency key led to a run that existed before
}

// EnqueueOption sets a field of a Request.
type EnqueueOption func(*Request)

// After makes the run due after d, counted by the store's clock.
func After(d time.Duration) EnqueueOption { return func(r *Request) { r.Delay = d } }

// At makes the run due at t. A time in the past means now.
func At(t time.Time) EnqueueOption { return func(r *Request) { r.Due = t } }

// Unique allows at most one live run of the job with this key. A second request returns that run.
func Unique(key string) EnqueueOption { return func(r *Request) { r.Unique = key } }

// UniqueFor allows at most one run of the job with this key within d.
func UniqueFor(key string, d time.Duration) EnqueueOption {
	return func(r *Request) { r.Unique, r.UniqueFor = key, d }
}

// WithPriority sets the run's own priority, -100 to 100.
func WithPriority(p int) EnqueueOption { return func(r *Request) { r.Priority = &p } }

// WithRetries sets the run's own number of retries; 0 means none, even if a retry rule matches.
func WithRetries(n int) EnqueueOption { return func(r *Request) { r.Retries = &n } }

// WithTimeout sets the run's own timeout of one attempt.
func WithTimeout(d time.Duration) EnqueueOption { return func(r *Request) { r.Timeout = &d } }

// OnWorker selects the worker that runs it, by its configured name, whatever the job's route is.
func OnWorker(name string) EnqueueOption { return func(r *Request) { r.Worker = name } }

// WithID sets the run's ID, made by [NewID]. A request that is sent again under its ID makes no second run. After the
// error [Unknown], send the request again with the ID of its Receipt.
func WithID(id ID) EnqueueOption { return func(r *Request) { r.ID = id } }

// Request makes the request for one run, for programs that pass requests of several jobs to an Enqueuer.
func (t Trigger[A]) Request(args A, options ...EnqueueOption) (Request, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return Request{}, invalid("arguments of %s cannot be written as JSON: %v", t, err)
	}
	r := Request{ID: NewID(time.Now()), Key: Key(t), Args: raw, ArgsType: reflect.TypeFor[A]()}
	for _, o := range options {
		o(&r)
	}
	return r, nil
}

// Enqueue requests one run. The receipt has the run's ID and key even with an error, unless args cannot be written as
// JSON. If the error is [Unknown], the run may have been stored: enqueue it again with [WithID] to make sure.
func (t Trigger[A]) Enqueue(ctx context.Context, to Enqueuer, args A, options ...EnqueueOption) (Receipt, error) {
	r, err := t.Request(args, options...)
	if err != nil {
		return Receipt{}, err
	}
	receipts, err := to.Enqueue(ctx, r)
	if err != nil {
		return Receipt{ID: r.ID, Key: r.Key}, fmt.Errorf("enqueue %s: %w", t, err)
	}
	return receipts[0], nil
}

// EnqueueAll requests one run for each of args, in as few commits as possible. It returns what the Enqueuer returns: a
// client's receipts have the runs' IDs even with an error, and its *client.BulkError names the runs that were not
// stored.
func (t Trigger[A]) EnqueueAll(ctx context.Context, to Enqueuer, args []A, options ...EnqueueOption) ([]Receipt, error) {
	requests := make([]Request, len(args))
	for i, a := range args {
		r, err := t.Request(a, options...)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		requests[i] = r
	}
	receipts, err := to.Enqueue(ctx, requests...)
	if err != nil {
		return receipts, fmt.Errorf("enqueue %d of %s: %w", len(args), t, err)
	}
	return receipts, nil
}
