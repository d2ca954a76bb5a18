package ops

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/trace"
)

// One action on all the jobs, or all the runs, that a filter selects.

// Action is what happens to each selected job or run.
type Action string

// The actions on jobs, and those on runs.
const (
	PauseJobs   Action = "pause"
	ResumeJobs  Action = "resume"
	TriggerJobs Action = "trigger"
	DeleteJobs  Action = "delete"
	CancelRuns  Action = "cancel"
	RetryRuns   Action = "retry"
)

const (
	// manyRuns and manyJobs are how many are handled in one request. Cursor continues.
	manyRuns = 10_000
	manyJobs = 1_000
	// manyAtOnce is how many jobs are changed at the same time: concurrent changes share a commit.
	manyAtOnce = 16
	// manyShown is how many names, and how many refusals, a result lists.
	manyShown = 20
)

// ManyJobs is an action on the jobs that a filter selects.
type ManyJobs struct {
	Action      Action
	Filter      JobQuery // its Limit and Next are not obeyed
	Dry         bool     // only count
	Until       time.Time
	Resumption  Resumption
	Live        LiveRuns // of deleted jobs
	Origin      kernel.Origin
	Idempotency string // of triggered runs
}

// ManyRuns is an action on the runs that a filter selects.
type ManyRuns struct {
	Action Action
	// Filter's default state is every live one for cancel, and Terminated for retry. Its Limit is not obeyed.
	Filter      RunFilter
	Dry         bool   // only count
	Idempotency string // of new runs
}

// Many is the result of an action on many.
type Many struct {
	Matched int      // selected by the filter; in a dry run, at most those of one request
	Names   []string // the first of these: keys of jobs, IDs of runs
	Done    int
	Refused int
	Why     []Refused // the first of these
	Cursor  string    // there are more: the next request continues here; "" = these are all
}

// Refused is a job or run on which an action was refused.
type Refused struct {
	Name string
	Err  error
}

// ManyJobs does an action on the selected jobs, in the order of their keys. A filter without a condition is refused.
// An error after the first change is jobs.Unknown, and the result says how many were done.
func (o *Ops) ManyJobs(ctx context.Context, who Who, m ManyJobs) (Many, error) {
	var done Many
	if !m.Filter.Any() {
		return done, errNoFilter
	}
	do, err := o.actionOf(who, m)
	if err != nil {
		return done, err
	}
	list, err := o.selected(ctx, who, m.Filter)
	if err != nil {
		return done, err
	}
	list = slices.DeleteFunc(list, func(d *kernel.Definition) bool { return d.Key <= m.Filter.After || kernel.SystemKey(d.Key) })
	if len(list) > manyJobs && !m.Dry {
		list = list[:manyJobs]
		done.Cursor = string(list[manyJobs-1].Key)
	}
	done.Matched = len(list)
	for _, d := range list[:min(len(list), manyShown)] {
		done.Names = append(done.Names, string(d.Key))
	}
	if m.Dry {
		return done, nil
	}
	if m.Action == TriggerJobs {
		return done, o.triggerMany(ctx, who, list, m, &done)
	}
	return done, done.each(list, func(d *kernel.Definition) error { return do(ctx, d) })
}

var errNoFilter = kernel.Invalid("the filter is empty: give a condition, or match * for all")

// actionOf returns what an action does to one job.
func (o *Ops) actionOf(who Who, m ManyJobs) (func(context.Context, *kernel.Definition) error, error) {
	switch m.Action {
	case PauseJobs:
		return func(ctx context.Context, d *kernel.Definition) error {
			_, err := o.Pause(ctx, who, kernel.Pause{Key: d.Key, Reason: who.Reason, Until: m.Until})
			return err
		}, nil
	case ResumeJobs:
		return func(ctx context.Context, d *kernel.Definition) error {
			r := m.Resumption
			if d.Kind == kernel.Triggered {
				r.Missed = ""
			}
			_, _, err := o.Resume(ctx, who, d.Key, r)
			return err
		}, m.Resumption.check()
	case DeleteJobs:
		return func(ctx context.Context, d *kernel.Definition) error {
			_, err := o.Delete(ctx, who, kernel.Delete{Key: d.Key, IfRevision: d.Revision}, m.Live) // as it was selected
			return err
		}, nil
	case TriggerJobs:
		return nil, nil
	}
	return nil, kernel.Invalid("invalid action %.20q: want one of %q", string(m.Action), []Action{PauseJobs, ResumeJobs, TriggerJobs, DeleteJobs})
}

// triggerMany starts a run of each job.
func (o *Ops) triggerMany(ctx context.Context, who Who, list []*kernel.Definition, m ManyJobs, done *Many) error {
	requests := make([]kernel.Create, len(list))
	for i, d := range list {
		requests[i] = kernel.Create{Key: d.Key, Origin: m.Origin, Idempotency: derived(m.Idempotency, string(d.Key))}
	}
	return o.createMany(ctx, who, requests, func(i int) string { return string(list[i].Key) }, done)
}

// derived is the idempotency key of one of many.
func derived(key, name string) string {
	if key == "" {
		return ""
	}
	return kernel.DerivedID("many", key, name).String()
}

// ManyRuns does an action on the selected runs. A filter without a condition is refused. An error after the first
// change is jobs.Unknown, and the result says how many were done.
func (o *Ops) ManyRuns(ctx context.Context, who Who, m ManyRuns) (Many, error) {
	var done Many
	if !m.Filter.Any() {
		return done, errNoFilter
	}
	states, err := m.states()
	if err != nil {
		return done, err
	}
	rows, err := o.selectRuns(ctx, who, m.Filter, states, &done)
	if err != nil || m.Dry {
		return done, err
	}
	// What one commit does to the runs of a job is one line of the audit.
	slices.SortStableFunc(rows, func(a, b *kernel.Run) int { return cmp.Compare(a.Key, b.Key) })
	if m.Action == CancelRuns {
		batch, names := make([]kernel.Envelope, len(rows)), make([]string, len(rows))
		for i, run := range rows {
			batch[i], names[i] = o.envelope(who, kernel.Cancel{ID: run.ID}), run.ID.String()
		}
		return done, o.applyMany(ctx, who, batch, names, &done)
	}
	requests := make([]kernel.Create, len(rows))
	for i, run := range rows {
		requests[i] = again(run, run.Args, derived(m.Idempotency, run.ID.String()))
	}
	return done, o.createMany(ctx, who, requests, func(i int) string { return rows[i].ID.String() }, &done)
}

// states returns the states whose runs are selected.
func (m *ManyRuns) states() ([]jobs.State, error) {
	state := m.Filter.State
	switch m.Action {
	case CancelRuns:
		if state == kernel.New {
			return kernel.LiveStates(), nil
		}
		if state.Final() {
			return nil, kernel.Invalid("%s runs have finished: only live runs can be cancelled", state)
		}
	case RetryRuns:
		if state == kernel.New {
			state = jobs.Terminated
		}
		if !state.Final() {
			return nil, kernel.Invalid("%s runs are live: only finished runs can be run again", state)
		}
	default:
		return nil, kernel.Invalid("invalid action %.20q: want one of %q", string(m.Action), []Action{CancelRuns, RetryRuns})
	}
	return []jobs.State{state}, nil
}

// selectRuns lists the runs of a request, state by state.
func (o *Ops) selectRuns(ctx context.Context, who Who, f RunFilter, states []jobs.State, done *Many) (rows []*kernel.Run, err error) {
	at, cursor := 0, ""
	if f.Cursor != "" {
		var index string
		index, cursor, _ = strings.Cut(f.Cursor, ".")
		if at, err = strconv.Atoi(index); err != nil || at < 0 || at >= len(states) {
			return nil, kernel.Invalid("cursor %.60q is not from this list: use the cursor of the previous request", f.Cursor)
		}
	}
	q, err := o.runQuery(ctx, who, f)
	if err != nil {
		return nil, err
	}
	for q.Limit = metastore.MaxPage; at < len(states); at, cursor = at+1, "" {
		for more := true; more; more = cursor != "" {
			if len(rows) >= manyRuns {
				done.Cursor = strconv.Itoa(at) + "." + cursor
				return rows, nil
			}
			q.State, q.Cursor = states[at], cursor
			page, err := o.Runs(ctx, who, q)
			if err != nil {
				return nil, err
			}
			page = f.lately(page, o.Now())
			for _, run := range page.Runs {
				rows = append(rows, run)
				if done.Matched++; len(done.Names) < manyShown {
					done.Names = append(done.Names, run.ID.String())
				}
			}
			cursor = page.Next
		}
	}
	return rows, nil
}

// createMany starts the requested runs. name names what each of them is for.
func (o *Ops) createMany(ctx context.Context, who Who, requests []kernel.Create, name func(i int) string, done *Many) error {
	known := map[jobs.Key]target{}
	var batch []kernel.Envelope
	var names []string
	traced := trace.Inject(ctx)
	for i, request := range requests {
		request.Trace = traced
		env, err := o.wrap(ctx, who, request, known)
		if err == nil {
			batch, names = append(batch, env), append(names, name(i))
		} else if err := done.refuse(name(i), err); err != nil {
			return err
		}
	}
	return o.applyMany(ctx, who, batch, names, done)
}

// applyMany applies commands in parts, each for the job or run of a name.
func (o *Ops) applyMany(ctx context.Context, who Who, batch []kernel.Envelope, names []string, done *Many) error {
	for len(batch) > 0 {
		n := part(batch)
		var failed error
		for i, r := range o.gate.commit(ctx, who, batch[:n]) {
			if r.Err == nil {
				done.Done++
			} else if err := done.refuse(names[i], r.Err); err != nil && failed == nil {
				failed = err
			}
		}
		if failed != nil {
			return done.interrupted(failed)
		}
		batch, names = batch[n:], names[n:]
	}
	return nil
}

// each does an action on several jobs at a time.
func (m *Many) each(list []*kernel.Definition, do func(*kernel.Definition) error) error {
	for some := range slices.Chunk(list, manyAtOnce) {
		results := make([]error, len(some))
		var wait sync.WaitGroup
		for i, d := range some {
			wait.Go(func() { results[i] = do(d) })
		}
		wait.Wait()
		var failed error
		for i, err := range results {
			if err == nil {
				m.Done++
			} else if err := m.refuse(string(some[i].Key), err); err != nil && failed == nil {
				failed = err
			}
		}
		if failed != nil {
			return m.interrupted(failed)
		}
	}
	return nil
}

// refuse counts a refusal. An error that the next job or run would meet as well, or of unknown outcome, is returned.
func (m *Many) refuse(name string, err error) error {
	switch jobs.CodeOf(err) {
	case jobs.NotFound, jobs.Conflict, jobs.Stale, jobs.BadInput, jobs.Forbidden, jobs.Exhausted:
		m.Refused++
		if len(m.Why) < manyShown {
			m.Why = append(m.Why, Refused{Name: name, Err: err})
		}
		return nil
	}
	return err
}

// interrupted returns the error of an action that may have begun.
func (m *Many) interrupted(err error) error {
	if m.Done > 0 {
		return kernel.Refuse(jobs.Unknown, "%d of %d were done, and then: %v", m.Done, m.Matched, err)
	}
	return err
}
