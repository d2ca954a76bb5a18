package metastore

import (
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/sabotage"
)

// What becomes of one run: the commands of enqueuers, workers and people, in the order of its life.

func (c *change) create(k jobs.Create) error {
	if in := c.instance(k.ID); in != nil {
		return c.made(in, k.Key)
	}
	if u := c.uniqueRow(jobs.AnswerName(k.ID), "a name"); u != nil {
		switch {
		case u.Digest != k.Digest():
			return jobs.Refuse(jobs.Conflict, "request %s was for something else: send this one under an ID of its own", k.ID)
		case u.Code != "":
			return jobs.Refuse(u.Code, "request %s was refused less than %v ago: send it under another ID", k.ID, KeepFinal)
		}
		return c.existing(c.known(u.ID, k.Key))
	}
	err := c.ask(k)
	if err != nil {
		c.answered(&k, jobs.ID{}, jobs.CodeOf(err))
	}
	return err
}

// made answers a request with its run, which is there already.
func (c *change) made(in *jobs.Instance, key jobs.Key) error {
	if in.Key != key {
		return jobs.Refuse(jobs.Conflict, "run %s exists and belongs to job %s, not %s", in.ID, in.Key, key)
	}
	return c.existing(in)
}

// answered remembers the answer to a request that made no run of its own. A copy of it that comes late is answered in
// the same way, whatever would be answered to a new one by then.
func (c *change) answered(k *jobs.Create, run jobs.ID, refused jobs.Code) {
	c.tx.Put(&jobs.UniqueKey{Tenant: c.env.Tenant, Name: jobs.AnswerName(k.ID), ID: run, Digest: k.Digest(), Until: c.at.Add(KeepFinal), Code: refused})
}

// ask makes the run that is asked for, unless one of its keys leads to another.
func (c *change) ask(k jobs.Create) error {
	d, err := c.job(k.Key)
	if err != nil {
		return err
	}
	idempotency, unique := c.uniqueRow(jobs.IdempotencyName(k.Idempotency), k.Idempotency), c.uniqueRow(jobs.UniqueName(k.Key, k.Unique), k.Unique)
	if idempotency != nil && !sabotage.Off(sabotage.Idempotency) {
		if idempotency.Digest != k.Digest() {
			return jobs.Refuse(jobs.Conflict, "idempotency key %q was used for another request within the last 24 h", k.Idempotency)
		}
		if idempotency.Until.Sub(c.at) < KeepFinal {
			c.answered(&k, idempotency.ID, "")
		}
		return c.existing(c.known(idempotency.ID, k.Key))
	}
	if unique != nil {
		switch { // the same request once more, when that run is over, means no other
		case k.Idempotency != "":
			c.bind(&k, unique.ID)
		case unique.Until.Sub(c.at) < KeepFinal:
			c.answered(&k, unique.ID, "")
		}
		return c.existing(c.known(unique.ID, k.Key))
	}
	in := c.fresh(d, k.Origin)
	in.ID, in.Parent, in.Args, in.Trace = k.ID, k.Parent, k.Args, k.Trace
	nextCreate(in, k)
	if len(k.Args) == 0 {
		in.Args = d.Policy.Args
	}
	in.Place = placed(d, &k, in.Args)
	c.gatesOf(d, in)
	in.Due = k.Due
	if in.Due.IsZero() {
		in.Due = c.at.Add(k.Delay)
	}
	if in.Due.Before(c.at) {
		in.Due = c.at
	}
	if in.Due.Sub(c.at) > jobs.MaxDelay {
		return jobs.Invalid("due time %s is more than 5 years ahead", stamp(in.Due))
	}
	within := d.Policy.StartWithin
	for _, o := range []struct{ set, to *int }{{k.Priority, &in.Priority}, {k.Retries, &in.Terms.Retries}} {
		if o.set != nil {
			*o.to = *o.set
		}
	}
	if f := in.Terms.Failing; k.Retries != nil && *k.Retries == 0 && f != nil && len(f.Rules) > 0 {
		f.Rules = nil // no retry is meant, whatever its code; of a job, no number is no cap
	}
	if k.Timeout != nil {
		in.Terms.Timeout = *k.Timeout
	}
	if k.StartWithin != nil {
		within = *k.StartWithin
	}
	if within > 0 {
		in.StartBy = in.Due.Add(within)
	}
	if k.Unique != "" {
		u := &jobs.UniqueKey{Tenant: in.Tenant, Name: jobs.UniqueName(k.Key, k.Unique), ID: in.ID}
		if k.UniqueFor > 0 {
			u.Until = c.at.Add(k.UniqueFor)
		} else {
			in.Unique = k.Unique
		}
		c.tx.Put(u)
	}
	c.bind(&k, in.ID)
	if made, ok := in.ID.Made(); ok {
		c.named = max(c.named, made.UnixMilli())
	}
	cause, until := c.held(in, d)
	if err := c.begin(in, cause, until); err != nil {
		return err
	}
	if c.byHand() || in.Origin == jobs.FromPerson || in.Origin == jobs.FromAPI {
		c.auditRun(in, nil)
	}
	return nil
}

// bind keeps which run a request was answered with, under its idempotency key.
func (c *change) bind(k *jobs.Create, id jobs.ID) {
	if k.Idempotency != "" {
		c.tx.Put(&jobs.UniqueKey{Tenant: c.env.Tenant, Name: jobs.IdempotencyName(k.Idempotency), ID: id,
			Digest: k.Digest(), Until: c.at.Add(jobs.IdempotencyLife)})
	}
}

// held says why a run that nobody started by hand has to wait now, and until when (zero: until it is released).
// d is its job, or nil.
func (c *change) held(in *jobs.Instance, d *jobs.Definition) (why jobs.Cause, until time.Time) {
	if in.Kind != jobs.Triggered || in.Origin.ByHand() {
		return "", time.Time{}
	}
	if c.global().TriggeredDebug.On {
		return jobs.ByDebug, time.Time{}
	}
	if d != nil && d.UID == in.Job && d.Holds(c.at) {
		return jobs.ByPause, d.Paused.Until
	}
	return "", time.Time{}
}

// uniqueRow is the row that holds a name now, or nil.
func (c *change) uniqueRow(name, chosen string) *jobs.UniqueKey {
	if chosen == "" {
		return nil
	}
	u, _ := c.tx.Get(jobs.UniqueRef(c.env.Tenant, name)).(*jobs.UniqueKey)
	if u == nil || !u.Until.IsZero() && !u.Until.After(c.at) {
		return nil
	}
	return u
}

// known is a run that a unique key leads to. One that has left the live rows is known by its name alone.
func (c *change) known(id jobs.ID, key jobs.Key) *jobs.Instance {
	if in := c.instance(id); in != nil {
		return in
	}
	return &jobs.Instance{Tenant: c.env.Tenant, ID: id, Key: key}
}

// fresh is a new run of a job, under the terms of its policy.
func (c *change) fresh(d *jobs.Definition, origin jobs.Origin) *jobs.Instance {
	p := &d.Policy
	if origin == "" {
		origin = jobs.FromCode
	}
	in := &jobs.Instance{
		Tenant: d.Tenant, Job: d.UID, Key: d.Key, App: d.App, Kind: d.Kind, Revision: d.Revision,
		Origin: origin, Actor: c.env.Actor, Priority: p.Priority,
		Terms: jobs.Terms{Retries: p.Retries, RetryDelay: p.RetryDelay, RetryDelayMax: p.RetryDelayMax, Timeout: p.Timeout,
			OnLost: p.OnLost, LeaseLost: p.LeaseLost, Overlap: p.Overlap, Failing: p.Failing()},
	}
	return in
}

// begin starts the life of a new run.
func (c *change) begin(in *jobs.Instance, held jobs.Cause, until time.Time) error {
	if !in.Due.After(c.at) {
		in.Moves = make([]jobs.Move, 0, 4) // as many as most runs make, and soon
	}
	begun, err := in.Begin(c.at, held, until)
	if err != nil {
		return err
	}
	*in = begun
	if in.State == jobs.Enqueued {
		c.tally(in)
		return c.enter(in, jobs.Enqueued)
	}
	c.store(in, jobs.New)
	return nil
}

func (c *change) release(k jobs.Release) error {
	row, err := c.run(k.ID)
	if err != nil {
		return err
	}
	in := *row
	switch {
	case in.Waits != "":
		if k.Force {
			return c.existing(row)
		}
		return c.opened(row)
	case in.State == jobs.Scheduled:
		if start := in.Due; !k.Force {
			if in.Cause == jobs.ByJitter {
				start = in.RetryAt
			}
			if start.After(c.at) && !sabotage.Off(sabotage.NotEarly) {
				return jobs.Refuse(jobs.Conflict, "run %s is due at %s, not yet", in.ID, start.Format("2006-01-02T15:04:05.000Z07:00"))
			}
		}
		if why, until := c.held(&in, c.definition(in.Key)); why != "" && !k.Force {
			if in.Cause == why && in.RetryAt.Equal(until) {
				return c.existing(row)
			}
			in.Cause, in.RetryAt = why, until
			c.store(&in, in.State)
			return nil
		}
		if in, err = in.Enqueue(c.at); err != nil {
			return err
		}
		c.tally(&in)
		if !in.StartBy.IsZero() && c.at.After(in.StartBy) { // it never starts, and nobody makes room for it
			if in, err = in.Skip(c.at, jobs.ByDeadline, ""); err != nil {
				return err
			}
			c.store(&in, jobs.Enqueued)
		} else if err := c.enter(&in, jobs.Enqueued); err != nil {
			return err
		}
		if k.Force && c.byHand() {
			c.auditRun(&in, nil)
		}
		return nil
	case in.State == jobs.Failed && !in.RetryAt.IsZero() && !in.Lingering:
		if in.RetryAt.After(c.at) && !k.Force {
			return jobs.Refuse(jobs.Conflict, "the retry of run %s is due at %s, not yet", in.ID, in.RetryAt.Format("2006-01-02T15:04:05.000Z07:00"))
		}
		if !k.Force && !c.budgeted(&in) {
			c.store(&in, jobs.Failed)
			return nil
		}
		in = in.Retry()
		if err := c.enter(&in, jobs.Failed); err != nil {
			return err
		}
		if k.Force && c.byHand() {
			c.auditRun(&in, nil)
		}
		return nil
	}
	return c.existing(row)
}

func (c *change) claim(k jobs.Claim) error {
	row, err := c.run(k.ID)
	if err != nil {
		return err
	}
	in := *row
	if in.Worker == k.Worker && (in.State == jobs.Processing && in.Attempt == k.Attempt || in.State == jobs.Skipped && in.Next() == k.Attempt) {
		return c.existing(row)
	}
	if sabotage.Off(sabotage.Claim) && in.State == jobs.Processing {
		in.Worker = k.Worker
		c.store(&in, in.State)
		return nil
	}
	if k.Attempt != in.Next() {
		return jobs.Refuse(jobs.Stale, "run %s: attempt %d cannot begin, %d have begun", in.ID, k.Attempt, in.Attempt)
	}
	if !in.Offerable() {
		return jobs.Refuse(jobs.Conflict, "run %s is %s and cannot be claimed", in.ID, in.State)
	}
	if in.Place.Unspread() {
		return jobs.Refuse(jobs.Conflict, "run %s is a broadcast: it becomes one run for each worker first", in.ID)
	}
	if in.State == jobs.Enqueued {
		why := jobs.Cause("")
		// Whatever became of the job, its runs go on. Only somebody who says that nothing runs under the key stops them.
		if d := c.row(in.Key); d != nil && d.Policy.Disabled {
			why = jobs.ByDisabled
		} else if !in.StartBy.IsZero() && c.at.After(in.StartBy) {
			why = jobs.ByDeadline
		}
		if why != "" {
			in.Worker = k.Worker
			if in, err = in.Skip(c.at, why, ""); err != nil {
				return err
			}
			c.leave(&in, jobs.Enqueued)
			return nil
		}
	}
	from := in.State
	if in, err = in.Claim(c.at, k.Worker); err != nil {
		return err
	}
	c.store(&in, from)
	return nil
}

// own is the run whose attempt a worker speaks of, if it is that worker's.
func (c *change) own(id jobs.ID, worker string, attempt uint32) (*jobs.Instance, error) {
	in, err := c.run(id)
	if err != nil {
		return nil, err
	}
	if sabotage.Off(sabotage.Fence) {
		return in, nil
	}
	if in.Attempt != attempt {
		return nil, jobs.Refuse(jobs.Stale, "run %s: attempt %d is not the current one, %d is", id, attempt, in.Attempt)
	}
	if in.Worker != worker {
		return nil, jobs.Refuse(jobs.Forbidden, "run %s: attempt %d belongs to worker %s", id, attempt, in.Worker)
	}
	return in, nil
}

// endings says by which causes an attempt that ended with an outcome is remembered.
var endings = map[jobs.Outcome]jobs.Cause{
	jobs.OutcomeError: jobs.ByError, jobs.OutcomeFatal: jobs.ByError, jobs.OutcomeTimeout: jobs.ByTimeout,
	jobs.OutcomeHandback: jobs.ByHandback, jobs.OutcomeSnooze: jobs.BySnooze,
}

func (c *change) finish(k jobs.Finish) error {
	row, err := c.own(k.ID, k.Worker, k.Attempt)
	if err != nil {
		return err
	}
	in := *row
	if in.State != jobs.Processing {
		if ended(row, k.Outcome) {
			if !k.Running {
				return c.unlinger(row) // said before while the handler was running; now it has returned
			}
			return c.existing(row)
		}
		return jobs.Refuse(jobs.Conflict, "run %s is %s: attempt %d is over", in.ID, in.State, k.Attempt)
	}
	if k.Outcome == jobs.OutcomeSuccess {
		if in, err = in.Succeed(c.at, k.Result); err != nil {
			return err
		}
		next := c.next(&in)
		c.leave(&in, jobs.Processing)
		return c.follow(&in, next)
	}
	in.Lingering = k.Running
	code := k.Code
	if k.Outcome == jobs.OutcomeTimeout && code == "" {
		code = jobs.CodeTimeout
	}
	if in, err = in.Fail(c.at, endings[k.Outcome], code, k.Error, k.Delay, k.Outcome != jobs.OutcomeFatal); err != nil {
		return err
	}
	return c.after(&in)
}

// ended says that a run stands where an attempt with this outcome has put it: the command was sent twice.
func ended(in *jobs.Instance, o jobs.Outcome) bool {
	switch in.State {
	case jobs.Succeeded:
		return o == jobs.OutcomeSuccess
	case jobs.Failed, jobs.Terminated:
		return o != jobs.OutcomeSuccess && (in.Cause == "" || in.Cause == endings[o])
	}
	return false
}

// after puts a run whose attempt failed: a retry at once keeps its slots, and so does a handler that has not
// returned; everything else frees them.
func (c *change) after(in *jobs.Instance) error {
	next := c.next(in)
	if in.State == jobs.Failed && in.RetryAt.IsZero() {
		c.budgeted(in)
	}
	if in.Lingering || in.State == jobs.Failed && in.RetryAt.IsZero() {
		c.store(in, jobs.Processing)
	} else {
		c.leave(in, jobs.Processing)
	}
	return c.follow(in, next)
}

func (c *change) returned(k jobs.Returned) error {
	row, err := c.own(k.ID, k.Worker, k.Attempt)
	if err != nil {
		return err
	}
	return c.unlinger(row)
}

// unlinger ends the time in which a handler was over for us and still ran.
func (c *change) unlinger(row *jobs.Instance) error {
	if !row.Lingering {
		if row.State == jobs.Processing {
			return jobs.Refuse(jobs.Conflict, "run %s is Processing: attempt %d is not over", row.ID, row.Attempt)
		}
		return c.existing(row)
	}
	in := *row
	in.Lingering = false
	if in.State == jobs.Failed && in.RetryAt.IsZero() {
		c.store(&in, in.State)
		return nil
	}
	c.leave(&in, in.State)
	return nil
}

func (c *change) checkpoint(k jobs.Checkpoint) error {
	row, err := c.own(k.ID, k.Worker, k.Attempt)
	if err != nil {
		return err
	}
	if row.State != jobs.Processing {
		return jobs.Refuse(jobs.Conflict, "run %s is %s: attempt %d is over", row.ID, row.State, k.Attempt)
	}
	in := *row
	in.Checkpoint = k.Data
	c.store(&in, in.State)
	return nil
}

func (c *change) expire(k jobs.Expire) error {
	row, err := c.run(k.ID)
	if err != nil {
		return err
	}
	switch {
	case row.Attempt != k.Attempt:
		return jobs.Refuse(jobs.Stale, "run %s: attempt %d is not the current one, %d is", k.ID, k.Attempt, row.Attempt)
	case row.Lingering && k.Cause == jobs.ByLoss:
		return c.unlinger(row)
	case row.State != jobs.Processing:
		return c.existing(row)
	case k.Cause == jobs.ByTimeout && (row.Deadline.IsZero() || row.Deadline.After(c.at)):
		return jobs.Refuse(jobs.Conflict, "run %s: attempt %d has not timed out", k.ID, k.Attempt)
	}
	in := *row
	code := ""
	if k.Cause == jobs.ByTimeout {
		in.Lingering, code = true, jobs.CodeTimeout
	}
	if in, err = in.Fail(c.at, k.Cause, code, "", 0, true); err != nil {
		return err
	}
	return c.after(&in)
}

func (c *change) cancel(k jobs.Cancel) error {
	row, err := c.run(k.ID)
	if err != nil {
		return err
	}
	if row.State == jobs.Cancelled {
		return c.existing(row)
	}
	in, err := (*row).Cancel(c.at, c.env.Actor, c.env.Reason)
	if err != nil {
		return err
	}
	if in.Lingering {
		c.store(&in, row.State)
	} else {
		c.leave(&in, row.State)
	}
	if c.byHand() {
		c.auditRun(&in, fields{"state": row.State})
	}
	return nil
}

func (c *change) forget(k jobs.Forget) error {
	ref := jobs.UniqueRef(c.env.Tenant, k.Name)
	u, _ := c.tx.Get(ref).(*jobs.UniqueKey)
	if u == nil || u.Until.IsZero() || u.Until.After(c.at) {
		c.effect.Existing = true
		return nil
	}
	c.tx.Delete(ref)
	if gate, ok := idleGate(k.Name); ok {
		c.vacant(jobs.GateRef(c.env.Tenant, gate))
	}
	return nil
}
