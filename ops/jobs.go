package ops

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Job is a job for users: its settings, its next due times, and why they may not fire.
type Job struct {
	*kernel.Definition
	Words    string        // its schedule in plain text; "" if it has none
	Next     []time.Time   // next due times
	Silent   kernel.Reason // why these would not get runs now; "" = they would
	Trouble  string        // why its schedule is invalid, or ""
	Warnings []string      // what the schedule may mean without its author's intent
	Finished bool          // its schedule has no due time left
	// Conditions are why it does not run as its settings say, most important first; only of Ops.Job and Ops.Jobs.
	Conditions []Condition
	Known      bool // the conditions are

	global *kernel.Global
}

// Owners returns the kind of owner of each setting that is not built in.
func (j *Job) Owners() map[string]string {
	kinds := map[string]string{}
	for name, o := range DefaultOwners(j.global, j.App) {
		kinds[name] = o.Kind
	}
	for _, name := range j.Code.Given() {
		kinds[name] = OwnerCode
	}
	for _, name := range j.Edits.Given() {
		kinds[name] = OwnerEdit
	}
	return kinds
}

// InCode returns the policy that the job would have without edits.
func (j *Job) InCode() kernel.Policy {
	code := *j.Definition
	code.Edits = kernel.Settings{}
	return code.Resolve(j.global)
}

// JobQuery is a filter of jobs; empty fields do not filter.
type JobQuery struct {
	App    string
	Text   string      // part of the key, the name, the description or a tag, case-insensitive
	Tag    string      // one of its tags
	Bundle string      // the bundle that it belongs to
	Match  string      // a pattern of keys, such as billing.*
	Kind   kernel.Kind // 0 = both
	Paused *bool       // only those that are paused now, or only the others
	State  Condition   // only those in this condition; Active = in none
	After  jobs.Key    // page: keys after this one
	Limit  int         // 0 = all
	Next   int         // number of due times of each
}

// MaxNext is the most due times in one request.
const MaxNext = 100

// Jobs lists jobs by key. more reports that others follow.
func (o *Ops) Jobs(ctx context.Context, who Who, q JobQuery) (list []Job, more bool, err error) {
	if err := checkNext(q.Next); err != nil {
		return nil, false, err
	}
	if err := errors.Join(kernel.CheckText("job key", string(q.After)), metastore.CheckMatch(q.Match), q.checkState()); err != nil {
		return nil, false, err
	}
	// One row beyond the limit shows whether a page follows. A search reads all jobs: they are few.
	query := metastore.DefinitionQuery{Tenant: who.tenant(), App: q.App, After: q.After}
	if all := (JobQuery{App: q.App, After: q.After, Limit: q.Limit, Next: q.Next}); q.Limit > 0 && q == all {
		query.Limit = q.Limit + 1
	}
	rows, err := o.store.Definitions(ctx, query)
	if err != nil {
		return nil, false, err
	}
	global, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return nil, false, err
	}
	standing, err := o.conditioner(ctx, who, global)
	if err != nil {
		return nil, false, err
	}
	for _, d := range rows {
		if !q.selects(o, d) || q.State != "" && !q.in(standing.of(d)) {
			continue
		}
		if q.Limit > 0 && len(list) == q.Limit {
			return list, true, nil
		}
		job := o.job(d, global, q.Next)
		job.Conditions, job.Known = standing.of(d), true
		list = append(list, job)
	}
	return list, false, nil
}

// Job reads one job, with its next due times.
func (o *Ops) Job(ctx context.Context, who Who, key jobs.Key, next int) (Job, error) {
	if err := checkNext(next); err != nil {
		return Job{}, err
	}
	d, err := o.definition(ctx, who, key)
	if err != nil {
		return Job{}, err
	}
	return o.shown(ctx, who, d, next)
}

// definition reads a row by a key of a request.
func (o *Ops) definition(ctx context.Context, who Who, key jobs.Key) (*kernel.Definition, error) {
	if err := key.Check(); err != nil {
		return nil, err
	}
	return o.store.Definition(ctx, who.tenant(), key)
}

// shown converts a definition for users.
func (o *Ops) shown(ctx context.Context, who Who, d *kernel.Definition, next int) (Job, error) {
	global, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return Job{}, err
	}
	standing, err := o.conditioner(ctx, who, global)
	if err != nil {
		return Job{}, err
	}
	job := o.job(d, global, next)
	job.Conditions, job.Known = standing.of(d), true
	return job, errors.Join(o.warnHandler(ctx, who, &job), o.warnFamily(ctx, &job))
}

// Silence is why a due time of a job would not get a run; "" = it would. The due times of a stopped job are not decided
// before a worker has it again.
func Silence(d *kernel.Definition, g *kernel.Global, due time.Time) kernel.Reason {
	if why := d.Silent(g, due); why != "" || d.Stopped.IsZero() {
		return why
	}
	return silentStopped
}

const silentStopped = kernel.Reason(IsStopped)

func (o *Ops) job(d *kernel.Definition, g *kernel.Global, next int) Job {
	job := Job{Definition: d, global: g}
	if d.Policy.Disabled {
		job.Silent = kernel.MissedDisabled // of a triggered job, too
	}
	when, err := o.dueBy(d, g)
	switch {
	case err != nil:
		job.Trouble = err.Error()
		return job
	case when == nil:
		return job
	}
	job.Words, job.Warnings = when.Words(), when.Warnings()
	for _, name := range when.Missing {
		job.Warnings = append(job.Warnings, fmt.Sprintf("there is no calendar %s: it excludes nothing", name))
	}
	from := undecided(d, o.Now())
	if d.Waits() {
		return job // the next due time counts from the end of its run
	}
	job.Next = ahead(when, from, next)
	if d.FixedDelay() && len(job.Next) > 1 {
		job.Next = job.Next[:1] // later ones count from runs that have not begun
	}
	if _, more := when.Schedule.Next(from); !more && len(d.Undecided) == 0 {
		job.Finished = true
	}
	if len(job.Next) > 0 {
		job.Silent = Silence(d, g, job.Next[0])
	}
	return job
}

// undecided returns the time after which due times of a job are still to come: runs of earlier ones may have begun early.
func undecided(d *kernel.Definition, now time.Time) time.Time {
	if since := d.Since(); since.After(now) {
		return since
	}
	return now
}

// ahead lists the next n due times.
func ahead(when *schedule.Plan, after time.Time, n int) []time.Time {
	var list []time.Time
	for range n {
		due, ok := when.Next(after)
		if !ok {
			break
		}
		list = append(list, due)
		after = due
	}
	return list
}

// paused reports whether a job is paused at a time.
func paused(d *kernel.Definition, at time.Time) bool {
	return d.Paused != nil && (d.Paused.Until.IsZero() || at.Before(d.Paused.Until))
}

func mentions(d *kernel.Definition, text string) bool {
	text = strings.ToLower(text)
	for _, s := range append([]string{string(d.Key), d.Policy.Name, d.Policy.Description}, d.Policy.Tags...) {
		if strings.Contains(strings.ToLower(s), text) {
			return true
		}
	}
	return false
}

func checkNext(n int) error {
	if n < 0 || n > MaxNext {
		return kernel.Invalid("invalid number of due times %d: want 0 to %d", n, MaxNext)
	}
	return nil
}
