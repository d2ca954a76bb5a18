package ops

import (
	"context"
	"errors"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Runs lists runs: live ones, newest first, then finished ones, last ended first. The tenant of the query is the
// caller's.
func (o *Ops) Runs(ctx context.Context, who Who, q metastore.RunQuery) (metastore.Page, error) {
	if q.Limit < 0 || q.Limit > metastore.MaxPage {
		return metastore.Page{}, kernel.Invalid("invalid page size %d: want 1 to %d", q.Limit, metastore.MaxPage)
	}
	if q.Job != "" {
		if err := q.Job.Check(); err != nil {
			return metastore.Page{}, err
		}
	}
	if err := errors.Join(kernel.CheckText("worker", q.Worker), kernel.CheckText("app", q.App), metastore.CheckMatch(q.Match)); err != nil {
		return metastore.Page{}, err
	}
	q.Tenant = who.tenant()
	return o.store.Runs(ctx, q)
}

// Counts returns the number of runs from maintained counters: no rows are read.
func (o *Ops) Counts(ctx context.Context, who Who, q metastore.CountQuery) (metastore.Counts, error) {
	if q.Job != "" {
		if err := q.Job.Check(); err != nil {
			return metastore.Counts{}, err
		}
	}
	q.Tenant = who.tenant()
	return o.store.Counts(ctx, q)
}

// Run reads one run. A client reads those of the jobs that it may start.
func (o *Ops) Run(ctx context.Context, who Who, id jobs.ID) (*kernel.Run, error) {
	run, err := o.store.Run(ctx, who.tenant(), id)
	if err == nil && who.Role == ClientRole {
		err = o.permitsRun(ctx, who, run)
	}
	if err != nil {
		return nil, err
	}
	return run, nil
}

// Cancel cancels a run. Cancelling it again changes nothing; a run that has ended otherwise cannot be cancelled.
func (o *Ops) Cancel(ctx context.Context, who Who, id jobs.ID) (*kernel.Run, error) {
	effect, err := o.apply(ctx, who, kernel.Cancel{ID: id})
	if err == nil {
		run, err := o.whole(ctx, effect.Run())
		return run, after(err)
	}
	if !errors.Is(err, jobs.NotFound) && !errors.Is(err, jobs.Conflict) {
		return nil, err
	}
	// Not among the live rows, or past cancelling: report which.
	run, lookErr := o.store.Run(ctx, who.tenant(), id)
	switch {
	case lookErr != nil:
		return nil, lookErr
	case who.Scope != nil && o.permitsRun(ctx, who, run) != nil:
		return nil, o.permitsRun(ctx, who, run)
	case run.State == jobs.Cancelled:
		return run, nil
	case run.State.Final():
		return nil, kernel.Refuse(jobs.Conflict, "run %s is %s: it has already finished", id, run.State)
	}
	return nil, err
}

// MaxLines is the most log lines in one request.
const MaxLines = 1_000

// Log lists the lines of a run after a position, oldest first.
func (o *Ops) Log(ctx context.Context, who Who, id jobs.ID, after metastore.LogPosition, limit int) ([]metastore.LogLine, error) {
	if limit < 1 || limit > MaxLines {
		return nil, kernel.Invalid("invalid number of lines %d: want 1 to %d", limit, MaxLines)
	}
	if _, err := o.store.Run(ctx, who.tenant(), id); err != nil {
		return nil, err
	}
	return o.lines(ctx, who, id, after, limit)
}

func (o *Ops) lines(ctx context.Context, who Who, id jobs.ID, after metastore.LogPosition, limit int) ([]metastore.LogLine, error) {
	if o.logs == nil {
		return nil, nil
	}
	return o.logs.Read(ctx, who.tenant(), id, after, limit)
}

// Tail lists the last lines of a run, oldest first, and reports whether earlier ones exist.
func (o *Ops) Tail(ctx context.Context, who Who, id jobs.ID, limit int) (lines []metastore.LogLine, cut bool, err error) {
	var after metastore.LogPosition
	for {
		page, err := o.lines(ctx, who, id, after, MaxLines)
		if err != nil {
			return nil, false, err
		}
		lines = append(lines, page...)
		if len(lines) > limit {
			lines, cut = slices.Clone(lines[len(lines)-limit:]), true
		}
		if len(page) < MaxLines {
			return lines, cut, nil
		}
		after = page[len(page)-1].LogPosition
	}
}
