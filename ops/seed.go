package ops

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Requests of seed 002 that no other interface has.

// mostSearched limits the runs that are searched for one with a due time, or for deleted jobs.
const mostSearched = 5_000

// walk calls fn for the runs of a job ("" = of all), newest first, until fn stops it or the limit is reached.
func (o *Ops) walk(ctx context.Context, who Who, job jobs.Key, fn func(*kernel.Run) (more bool)) error {
	q := metastore.RunQuery{Tenant: who.tenant(), Job: job, Limit: metastore.MaxPage}
	for n := 0; n < mostSearched; {
		page, err := o.store.Runs(ctx, q)
		if err != nil {
			return err
		}
		for _, run := range page.Runs {
			if n++; !fn(run) {
				return nil
			}
		}
		if q.Cursor = page.Next; page.Next == "" {
			return nil
		}
	}
	return nil
}

// Execution finds a run of an HTTP job by its number.
func (o *Ops) Execution(ctx context.Context, who Who, key jobs.Key, number uint32) (found *kernel.Run, err error) {
	if _, err := o.definition(ctx, who, key); err != nil {
		return nil, err
	}
	err = o.walk(ctx, who, key, func(run *kernel.Run) bool {
		if run.Execution == number {
			found = run
		}
		return found == nil
	})
	if err == nil && found == nil {
		err = kernel.Refuse(jobs.NotFound, "job %s has no execution %d among its latest ones", key, number)
	}
	return found, err
}

// ParentExecution is the tag of a job that belongs to only one execution of its parent.
const ParentExecution = "parentJobExecution="

// SeedChildren lists the children of an execution of a job: its child runs, and the newest run of each child job, with
// the last lines of each.
func (o *Ops) SeedChildren(ctx context.Context, who Who, run *kernel.Run, lines int) ([]ChildLog, error) {
	list, err := o.ChildrenLogs(ctx, who, run.ID, lines)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(c ChildLog) bool { return kernel.SystemKey(c.Key) }) // notifications
	all, err := o.store.Definitions(ctx, metastore.DefinitionQuery{Tenant: who.tenant()})
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		if d.Policy.Parent != string(run.Key) || !slices.Contains(d.Policy.Tags, ParentExecution+strconv.FormatUint(uint64(run.Execution), 10)) || len(list) >= maxChildLogs {
			continue
		}
		page, err := o.store.Runs(ctx, metastore.RunQuery{Tenant: who.tenant(), Job: d.Key, Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(page.Runs) == 0 {
			continue
		}
		r := page.Runs[0]
		if slices.ContainsFunc(list, func(c ChildLog) bool { return c.ID == r.ID }) {
			continue
		}
		c := ChildLog{Run: r}
		if c.Lines, c.Cut, err = o.Tail(ctx, who, r.ID, lines); err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// PurgeApp purges finished runs of the jobs of an app: all but the newest of each job, and, with destroyed, all runs of
// deleted jobs. beside is a job of the app whose runs belong to those of the others: of it, runs as old as the oldest
// kept run are kept. It returns the purged jobs, in order. Only the latest runs are searched; the others follow the
// retention of their jobs.
func (o *Ops) PurgeApp(ctx context.Context, who Who, app string, keep int, destroyed bool, beside jobs.Key) ([]jobs.Key, error) {
	if keep < 0 || keep > metastore.MaxPage {
		return nil, kernel.Invalid("invalid number of executions to keep %d: want 0 to %d", keep, metastore.MaxPage)
	}
	now := o.Now()
	all, err := o.store.Definitions(ctx, metastore.DefinitionQuery{Tenant: who.tenant(), App: app})
	if err != nil {
		return nil, err
	}
	before, oldest := map[jobs.Key]time.Time{}, now
	there := map[jobs.Key]bool{}
	for _, d := range all {
		if there[d.Key] = true; d.Key == beside {
			continue
		}
		kept, first := 0, now
		err := o.walk(ctx, who, d.Key, func(run *kernel.Run) bool {
			switch {
			case !run.State.Final():
				first = earlier(first, run.Created)
			case kept < keep:
				kept++
				first = earlier(first, earlier(run.Created, run.Ended))
			default:
				before[d.Key] = first
				return false
			}
			return true
		})
		if err != nil {
			return nil, err
		}
		oldest = earlier(oldest, first)
	}
	if destroyed {
		if err := o.walk(ctx, who, "", func(run *kernel.Run) bool {
			if run.App == app && !there[run.Key] && run.State.Final() {
				before[run.Key] = now
			}
			return true
		}); err != nil {
			return nil, err
		}
	}
	if there[beside] {
		before[beside] = oldest
	}
	var batch []kernel.Envelope
	var keys []jobs.Key
	for key, at := range before {
		keys = append(keys, key)
		batch = append(batch, o.envelope(who, kernel.Purge{Key: key, Before: at}))
	}
	slices.Sort(keys)
	_, err = o.send(ctx, who, batch)
	return keys, err
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
