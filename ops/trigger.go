package ops

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/trace"
)

// Created is a run that was requested.
type Created struct {
	*kernel.Run
	Duplicate bool // it existed before: its unique or idempotency key matched
}

// ItemError is the error of one item of a bulk.
type ItemError struct {
	Index int
	Err   error
}

func (e *ItemError) Error() string { return fmt.Sprintf("item %d: %v", e.Index, e.Err) }

// Unwrap returns the cause.
func (e *ItemError) Unwrap() error { return e.Err }

// A bulk is sent to the store in parts, so that a commit stays small enough to be shared with others.
const (
	partCommands = 1_000
	partBytes    = 1 << 20
)

// Trigger starts one run. A request without an ID gets one.
func (o *Ops) Trigger(ctx context.Context, who Who, request kernel.Create) (Created, error) {
	made, err := o.TriggerAll(ctx, who, []kernel.Create{request})
	if item, ok := err.(*ItemError); ok {
		err = item.Err
	}
	if err != nil {
		return Created{}, err
	}
	return made[0], nil
}

// TriggerAll starts a run for each item, in order. All are checked before the first is sent: an invalid one is named by
// an *ItemError, and nothing is done. If the store fails in between, the result has the runs that were created, and the
// *ItemError names the first that was not.
func (o *Ops) TriggerAll(ctx context.Context, who Who, requests []kernel.Create) (_ []Created, err error) {
	if len(requests) == 0 || len(requests) > kernel.MaxBulk {
		return nil, kernel.Invalid("invalid number of runs %d: want 1 to %d", len(requests), kernel.MaxBulk)
	}
	ctx, span := trace.Enqueue(ctx, who.tenant(), requests)
	defer func() { span.Close(err) }()
	batch, err := o.envelopes(ctx, who, requests)
	if err != nil {
		return nil, err
	}
	made := make([]Created, 0, len(requests))
	for len(batch) > 0 {
		n := part(batch)
		results := o.gate.commit(ctx, who, batch[:n])
		for i, r := range results {
			if r.Err != nil {
				if partly(made, results[i+1:], jobs.CodeOf(r.Err)) {
					r.Err = kernel.Refuse(jobs.Unknown, "some of the runs were created, others were not: %v", r.Err)
				}
				return made, &ItemError{Index: len(made), Err: r.Err}
			}
			run, err := o.whole(ctx, r.Run())
			if err != nil {
				return made, &ItemError{Index: len(made), Err: after(err)}
			}
			made = append(made, Created{Run: run, Duplicate: r.Existing})
		}
		batch = batch[n:]
	}
	return made, nil
}

// partly reports whether a bulk with a refused run may have created others. A conflict beside runs that existed before
// created none: the idempotency key of the bulk was used for another bulk.
func partly(made []Created, others []metastore.Result, code jobs.Code) bool {
	counts := func(existing bool) bool { return !existing || code != jobs.Conflict }
	return slices.ContainsFunc(made, func(m Created) bool { return counts(m.Duplicate) }) ||
		slices.ContainsFunc(others, func(other metastore.Result) bool { return other.Err == nil && counts(other.Existing) })
}

// envelopes checks all items and wraps them in envelopes.
func (o *Ops) envelopes(ctx context.Context, who Who, requests []kernel.Create) ([]kernel.Envelope, error) {
	known := map[jobs.Key]target{}
	traced := trace.Inject(ctx)
	batch := make([]kernel.Envelope, len(requests))
	for i, request := range requests {
		if request.Trace == "" {
			request.Trace = traced
		}
		var err error
		if batch[i], err = o.wrap(ctx, who, request, known); err != nil {
			return nil, &ItemError{Index: i, Err: err}
		}
	}
	return batch, nil
}

// wrap checks a request and wraps it in an envelope. known caches the jobs of earlier requests.
func (o *Ops) wrap(ctx context.Context, who Who, request kernel.Create, known map[jobs.Key]target) (env kernel.Envelope, err error) {
	if request.ID.IsZero() {
		request.ID = jobs.NewID(o.now())
	}
	if who.Role == ClientRole && request.Origin == kernel.FromPerson { // a pause holds what programs start
		request.Origin = kernel.FromAPI
	}
	if err := kernel.CheckCommand(request); err != nil {
		return env, err
	}
	if ahead := request.Due.Sub(o.Now()); ahead > kernel.MaxDelay { // here, too: one such item fails a bulk
		return env, kernel.Invalid("due time %s is more than 5 years ahead", request.Due.Format("2006-01-02T15:04:05Z07:00"))
	}
	of, looked := known[request.Key]
	if !looked {
		of = o.target(ctx, who, request.Key)
		known[request.Key] = of
	}
	if err = o.takes(of, request.Args); err != nil && request.Origin == kernel.FromRetry {
		if own, changed := kernel.WithoutParents(request.Args); changed && o.takes(of, own) == nil {
			err = nil // a handler need not declare what the scheduler adds
		}
	}
	return o.envelope(who, request), err
}

// target is a job that runs are requested of: why it accepts none, and the check of their arguments.
type target struct {
	refused error
	schema  []byte
}

func (o *Ops) target(ctx context.Context, who Who, key jobs.Key) target {
	d, err := o.store.Definition(ctx, who.tenant(), key)
	if err != nil {
		return target{refused: err}
	}
	if err := who.permits(d); err != nil { // here, too: a bulk with one job outside the scope does nothing
		return target{refused: err}
	}
	if d.Policy.Disabled {
		return target{refused: kernel.Refuse(jobs.Conflict, "job %s is disabled: a run of it would only be skipped; enable it first", key)}
	}
	schema, err := o.schema(ctx, who, d)
	return target{refused: err, schema: schema}
}

// takes returns why there can be no run with these arguments. The job's own ones, which nil means, were checked before.
func (o *Ops) takes(t target, args []byte) error {
	if t.refused != nil || args == nil {
		return t.refused
	}
	return o.args.Check(t.schema, args)
}

// part returns how many envelopes of a batch go together.
func part(batch []kernel.Envelope) int {
	size := 0
	for i := range min(len(batch), partCommands) {
		if c, ok := batch[i].Command.(kernel.Create); ok {
			size += len(c.Args)
		}
		if size > partBytes && i > 0 {
			return i
		}
	}
	return min(len(batch), partCommands)
}

// whole returns the run itself. Of a run that a key matched, and that has left the live rows, the store returns only
// the ID.
func (o *Ops) whole(ctx context.Context, run *kernel.Run) (*kernel.Run, error) {
	if run == nil {
		return nil, fmt.Errorf("the store returned no run")
	}
	if run.State != kernel.New && !run.Created.IsZero() {
		return run, nil
	}
	return o.store.Run(ctx, run.Tenant, run.ID)
}

// Again starts a new run with the arguments of a finished one, or with others.
func (o *Ops) Again(ctx context.Context, who Who, id jobs.ID, args []byte, idempotency string) (Created, error) {
	run, err := o.store.Run(ctx, who.tenant(), id)
	if err != nil {
		return Created{}, err
	}
	if err := o.permitsRun(ctx, who, run); err != nil { // also if it cannot be run again
		return Created{}, err
	}
	if !run.State.Final() {
		return Created{}, kernel.Refuse(jobs.Conflict, "run %s is %s: only a finished run can be run again", id, run.State)
	}
	switch {
	case args == nil:
		args = run.Args
	case kernel.SystemKey(run.Key) && !bytes.Equal(args, run.Args):
		return Created{}, kernel.Refuse(jobs.Forbidden, "run %s belongs to the scheduler: it can be run again with its own arguments only", id)
	}
	return o.Trigger(ctx, who, again(run, args, idempotency))
}

// again is the request of a new run with arguments, after a finished one.
func again(run *kernel.Run, args []byte, idempotency string) kernel.Create {
	request := kernel.Create{Key: run.Key, Args: args, Origin: kernel.FromRetry, Parent: run.ID, Occasion: run.OccasionName(), Idempotency: idempotency}
	if p := run.Place; p != nil && p.Total > 0 { // one run of a broadcast: only it, with the same part of the work
		request.Index, request.Total, request.Pin = p.Index, p.Total, run.Worker
	}
	return request
}
