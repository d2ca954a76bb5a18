package ops

import (
	"context"
	"errors"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// LiveRuns is what happens to the live runs of a deleted job.
type LiveRuns string

// The fates of live runs. Without one, a deletion is refused while there are any.
const (
	CancelLiveRuns LiveRuns = "cancel" // they are cancelled
	FinishLiveRuns LiveRuns = "finish" // they finish
)

func (l LiveRuns) check() error {
	if l != "" && l != CancelLiveRuns && l != FinishLiveRuns {
		return kernel.Invalid("invalid runs %.20q: want one of %q", string(l), []LiveRuns{CancelLiveRuns, FinishLiveRuns})
	}
	return nil
}

// Deleted is the result of a deletion.
type Deleted struct{ Cancelled int }

// Delete deletes a definition. Repeating it continues an interrupted deletion. A worker that still has the job
// registers it again when it starts.
func (o *Ops) Delete(ctx context.Context, who Who, k kernel.Delete, fate LiveRuns) (Deleted, error) {
	if err := fate.check(); err != nil {
		return Deleted{}, err
	}
	d, err := o.definition(ctx, who, k.Key)
	if err != nil {
		return Deleted{}, err
	}
	if k.IfRevision != 0 && k.IfRevision != d.Revision {
		return Deleted{}, kernel.Refuse(jobs.Stale, "job %s has revision %d, the delete was made for %d: read it and try again", k.Key, d.Revision, k.IfRevision)
	}
	if fate == "" {
		n, err := o.living(ctx, who, k.Key)
		if err != nil {
			return Deleted{}, err
		}
		if n > 0 {
			return Deleted{}, kernel.Refuse(jobs.Conflict, "job %s has %d live runs: choose to cancel them or to let them finish", k.Key, n)
		}
	}
	var done Deleted
	if fate == CancelLiveRuns {
		if done.Cancelled, err = o.cancelAll(ctx, who, d); err != nil {
			return done, done.after(err)
		}
	}
	if _, err := o.apply(ctx, who, k); err != nil {
		return done, done.after(err)
	}
	for fate == CancelLiveRuns { // runs that were created or moved meanwhile; no more can be created
		n, err := o.cancelAll(ctx, who, d)
		done.Cancelled += n
		if n == 0 || err != nil {
			return done, after(err)
		}
	}
	return done, nil
}

// after returns the error of a deletion that may have begun.
func (d Deleted) after(err error) error {
	if d.Cancelled > 0 {
		return after(err)
	}
	return err
}

// living counts the unfinished runs of a job.
func (o *Ops) living(ctx context.Context, who Who, key jobs.Key) (int, error) {
	counts, err := o.store.Counts(ctx, metastore.CountQuery{Tenant: who.tenant(), Job: key})
	n := 0
	for state, of := range counts.Live {
		if slices.Contains(kernel.LiveStates(), state) {
			n += of
		}
	}
	return n, err
}

// cancelAll cancels the runs of a job, but not those of a newer job with the same key.
func (o *Ops) cancelAll(ctx context.Context, who Who, d *kernel.Definition) (int, error) {
	who = who.onBehalf("deletion")
	var batch []kernel.Envelope
	for _, state := range kernel.LiveStates() {
		q := metastore.RunQuery{Tenant: who.tenant(), Job: d.Key, State: state, Limit: metastore.MaxPage}
		for {
			page, err := o.store.Runs(ctx, q)
			if err != nil {
				return 0, err
			}
			for _, run := range page.Runs {
				if run.Job == d.UID {
					batch = append(batch, o.envelope(who, kernel.Cancel{ID: run.ID}))
				}
			}
			if page.Next == "" {
				break
			}
			q.Cursor = page.Next
		}
	}
	return o.send(ctx, who, batch)
}

// send applies commands in parts and counts those that had an effect: concurrent requests may have been faster. If some
// had, an error is of unknown outcome.
func (o *Ops) send(ctx context.Context, who Who, batch []kernel.Envelope) (int, error) {
	n := 0
	for some := range slices.Chunk(batch, partCommands) {
		var failed error
		for _, r := range o.gate.commit(ctx, who, some) {
			switch {
			case r.Err == nil:
				n++
			case failed == nil && !errors.Is(r.Err, jobs.NotFound) && !errors.Is(r.Err, jobs.Conflict):
				failed = r.Err
			}
		}
		if failed != nil && n > 0 {
			failed = kernel.Refuse(jobs.Unknown, "%d of %d were done, and then: %v", n, len(batch), failed)
		}
		if failed != nil {
			return n, failed
		}
	}
	return n, nil
}
