package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/trace"
)

const (
	mostBatch      = 1000             // runs in one commit
	mostBatchBytes = 512 << 10        // and their arguments: a commit must fit into a message
	patience       = 30 * time.Second // how long requests without a response are retried
)

// BulkError lists the runs of a bulk that were not enqueued, with their errors. The others were enqueued.
type BulkError struct {
	Total  int
	Failed map[int]error // by their place in the bulk
}

// Error returns the number of failed runs and the first error.
func (e *BulkError) Error() string {
	first := slices.Min(e.places())
	return fmt.Sprintf("%d of %d runs were not enqueued, the first is number %d: %v", len(e.Failed), e.Total, first, e.Failed[first])
}

// Unwrap returns the errors, for errors.Is.
func (e *BulkError) Unwrap() []error {
	places := e.places()
	slices.Sort(places)
	errs := make([]error, len(places))
	for i, p := range places {
		errs[i] = e.Failed[p]
	}
	return errs
}

func (e *BulkError) places() []int {
	places := make([]int, 0, len(e.Failed))
	for p := range e.Failed {
		places = append(places, p)
	}
	return places
}

// Enqueue sends requests for runs, and returns a receipt for each, in their order. Called with a handler's context, it
// makes children of the handler's run. It checks all requests before it sends the first. If the store refuses some of
// several (no such job), the error is a *BulkError, and their receipts have no State. If no control plane answers for
// 30 s, it sends no further requests, and their error is jobs.Unavailable. If ctx ends before that, requests that were
// sent may yet be stored until then: their error is jobs.Unknown.
func (c *Client) Enqueue(ctx context.Context, requests ...jobs.Request) (_ []jobs.Receipt, err error) {
	if c.store == nil {
		return nil, jobs.ErrNotRunning
	}
	creates := make([]kernel.Create, len(requests))
	for i, r := range requests {
		creates[i] = kernel.CreateOf(r)
	}
	ctx, span := trace.Enqueue(ctx, c.config.Tenant, creates)
	defer func() { span.Close(err) }()
	batch, err := c.check(ctx, requests, creates, trace.Inject(ctx))
	if err != nil {
		return nil, err
	}
	runs := make([]jobs.Receipt, len(creates))
	failed := map[int]error{}
	var unsent error // why the remaining batches are not sent
	for at := 0; at < len(batch); {
		end := cutBatch(batch, at)
		var results []metastore.Result
		if unsent != nil {
			results = metastore.Refused(batch[at:end], unsent)
		} else if results = c.send(ctx, batch[at:end]); !slices.ContainsFunc(results, answered) {
			// The store does not answer: every further batch would wait as long.
			unsent = kernel.Refuse(jobs.Unavailable, "not sent, because the runs before it got no response: %v", results[0].Err)
		}
		for i, r := range results {
			create := batch[at+i].Command.(kernel.Create)
			runs[at+i] = jobs.Receipt{ID: create.ID, Key: create.Key}
			if r.Err != nil {
				failed[at+i] = r.Err
				continue
			}
			run, some := r.Stands()
			if !some {
				continue
			}
			if run.State == kernel.New { // a unique key led to a run that is known by name alone: it has been archived
				if whole, err := c.store.Run(ctx, c.config.Tenant, run.ID); err == nil {
					run = whole.Summary()
				}
			}
			// The same run answers a Create that was sent twice: that is no duplicate.
			runs[at+i] = jobs.Receipt{ID: run.ID, Key: run.Key, State: run.State, Due: run.Due, Duplicate: r.Existing && run.ID != create.ID}
		}
		at = end
	}
	switch {
	case len(failed) == 0:
		return runs, nil
	case len(creates) == 1:
		return runs, failed[0]
	}
	return runs, &BulkError{Total: len(creates), Failed: failed}
}

// answered reports whether the store has decided.
func answered(r metastore.Result) bool {
	code := jobs.CodeOf(r.Err)
	return r.Err == nil || code != jobs.Unknown && code != jobs.Unavailable
}

// check makes envelopes of all creates, which are those of requests, or returns an error.
func (c *Client) check(ctx context.Context, requests []jobs.Request, creates []kernel.Create, traced string) ([]kernel.Envelope, error) {
	if len(creates) > kernel.MaxBulk {
		return nil, kernel.Invalid("a bulk of %d runs: at most %d are allowed", len(creates), kernel.MaxBulk)
	}
	batch := make([]kernel.Envelope, len(creates))
	for i, create := range creates {
		if create.ID.IsZero() {
			create.ID = jobs.NewID(time.Now())
		}
		create.Under(ctx, c.config.Tenant)
		if create.Trace == "" {
			create.Trace = traced
		}
		batch[i] = c.envelope(create)
		err := batch[i].Check()
		if err == nil && kernel.SystemKey(create.Key) {
			err = kernel.Refuse(jobs.Forbidden, "runs of %s are started by the scheduler only", create.Key)
		}
		if err == nil {
			err = c.checkArgs(ctx, create.Key, requests[i].ArgsType, create.Args)
		}
		if err != nil {
			if len(creates) > 1 {
				err = fmt.Errorf("run number %d of the bulk: %w", i, err)
			}
			return nil, err
		}
	}
	return batch, nil
}

// cutBatch returns the end of the commit that begins at a place.
func cutBatch(batch []kernel.Envelope, at int) int {
	size := 0
	for end := at; end < len(batch); end++ {
		size += len(batch[end].Command.(kernel.Create).Args) + 256
		if end > at && (size > mostBatchBytes || end-at == mostBatch) {
			return end
		}
	}
	return len(batch)
}

// mayYet says how long a request without a response may yet be stored: the store's client repeats it for as long as this
// one would.
func mayYet(left time.Duration) string {
	if left <= 0 {
		return ""
	}
	return fmt.Sprintf(" (it may yet be stored within %v)", max(left.Round(time.Second), time.Second))
}

// send applies a batch, and retries commands that have no response or are refused as unavailable. It gives up after
// 30 s, well within the minute for which the store remembers commands.
func (c *Client) send(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var results []metastore.Result
	var open []int             // to be retried, in order; nil = the whole batch, not sent yet
	doubtful := map[int]bool{} // those of open that may have been applied
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		retry := batch
		if open != nil {
			retry = make([]kernel.Envelope, len(open))
			for at, i := range open {
				retry[at] = batch[i]
			}
		}
		answers := c.store.Apply(ctx, retry)
		if results == nil {
			results = answers
		}
		var left []int
		for at, r := range answers {
			i := at
			if open != nil {
				i = open[at]
			}
			results[i] = r
			if r.Err == nil {
				continue
			}
			code := jobs.CodeOf(r.Err)
			if code == jobs.Unknown {
				doubtful[i] = true
			}
			if code == jobs.Unknown || code == jobs.Unavailable {
				left = append(left, i)
			}
		}
		if open = left; len(open) == 0 {
			return results
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if ctx.Err() == nil {
			continue
		}
		for _, i := range open {
			if err := results[i].Err; doubtful[i] {
				results[i].Err = kernel.OutcomeUnknown("no response in time%s: %v", mayYet(patience-time.Since(began)), err)
			} else {
				results[i].Err = kernel.Refuse(jobs.Unavailable, "not stored in time: %v", err)
			}
		}
		return results
	}
}
