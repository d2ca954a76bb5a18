package metastore

import (
	"bytes"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/sabotage"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The life of one run: the commands of enqueuers, workers and people, in its order.

func (c *change) create(k kernel.Create) error {
	if run := c.live(k.ID); run != nil {
		return c.made(run, k.Key)
	}
	if u := c.uniqueRow(kernel.AnswerName(k.ID), "a name"); u != nil {
		switch {
		case u.Digest != k.Digest():
			return kernel.Refuse(jobs.Conflict, "request ID %s was used for another request: send this one under a new ID", k.ID)
		case u.Code != "":
			return kernel.Refuse(u.Code, "request %s was refused less than %v ago: send it under another ID", k.ID, KeepFinal)
		}
		return c.existing(c.known(u.ID, k.Key))
	}
	err := c.ask(k)
	if err != nil {
		c.answered(&k, jobs.ID{}, jobs.CodeOf(err))
	}
	return err
}

// made answers a request whose run exists already.
func (c *change) made(run *kernel.Run, key jobs.Key) error {
	if run.Key != key {
		return kernel.Refuse(jobs.Conflict, "run %s exists and belongs to job %s, not %s", run.ID, run.Key, key)
	}
	return c.existing(run)
}

// answered remembers the answer to a request that made no run of its own. A late copy gets the same answer, whatever
// a new request would get by then.
func (c *change) answered(k *kernel.Create, run jobs.ID, refused jobs.Code) {
	c.tx.Put(&kernel.UniqueKey{Tenant: c.env.Tenant, Name: kernel.AnswerName(k.ID), ID: run, Digest: k.Digest(), Until: c.at.Add(KeepFinal), Code: refused})
}

// ask makes the requested run, unless one of its keys leads to another.
func (c *change) ask(k kernel.Create) error {
	if err := c.suspended(); err != nil {
		return err
	}
	d, err := c.job(k.Key)
	if err != nil {
		return err
	}
	made, timed := kernel.MadeAt(k.ID)
	if timed && made.Sub(c.at) > kernel.MaxAhead { // named stays a time that passes: see MayBeFinished
		return kernel.Invalid("the time in ID %s is %s, more than %v after the server's time %s: make IDs with a clock that is right",
			k.ID, stamp(made), kernel.MaxAhead, stamp(c.at))
	}
	if k.Idempotency != "" {
		before, err := c.requested(k.Idempotency, k.Digest())
		if err != nil {
			return err
		}
		if before != nil {
			if before.Until.Sub(c.at) < KeepFinal {
				c.answered(&k, before.ID, "")
			}
			return c.existing(c.known(before.ID, k.Key))
		}
	}
	if unique := c.uniqueRow(kernel.UniqueName(k.Key, k.Unique), k.Unique); unique != nil {
		switch { // the same request again, after that run has ended, means no other
		case k.Idempotency != "":
			c.bind(k.Idempotency, unique.ID, k.Digest())
		case unique.Until.Sub(c.at) < KeepFinal:
			c.answered(&k, unique.ID, "")
		}
		return c.existing(c.known(unique.ID, k.Key))
	}
	batch, err := c.batchOf(k.Batch)
	if err != nil {
		return err
	}
	run := c.fresh(d, k.Origin)
	run.Batch = k.Batch
	run.ID, run.Parent, run.Args, run.Trace, run.Occasion = k.ID, k.Parent, k.Args, k.Trace, k.Occasion
	nextCreate(run, k)
	if len(k.Args) == 0 {
		run.Args = d.Policy.Args
	}
	run.Place = placed(d, &k, run.Args)
	c.gatesOf(d, run)
	run.Due = k.Due
	if run.Due.IsZero() {
		run.Due = c.at.Add(k.Delay)
	}
	if run.Due.Before(c.at) {
		run.Due = c.at
	}
	if run.Due.Sub(c.at) > kernel.MaxDelay {
		return kernel.Invalid("due time %s is more than 5 years ahead", stamp(run.Due))
	}
	within := d.Policy.StartWithin
	for _, o := range []struct{ set, to *int }{{k.Priority, &run.Priority}, {k.Retries, &run.Terms.Retries}} {
		if o.set != nil {
			*o.to = *o.set
		}
	}
	if f := run.Terms.Failing; k.Retries != nil && *k.Retries == 0 && f != nil && len(f.Rules) > 0 {
		f.Rules = nil // no retry is meant, whatever its code; of a job, no number is no cap
	}
	if k.Timeout != nil {
		run.Terms.Timeout = *k.Timeout
	}
	if k.StartWithin != nil {
		within = *k.StartWithin
	}
	if within > 0 {
		run.StartBy = run.Due.Add(within)
	}
	if k.Unique != "" {
		u := &kernel.UniqueKey{Tenant: run.Tenant, Name: kernel.UniqueName(k.Key, k.Unique), ID: run.ID}
		if k.UniqueFor > 0 {
			u.Until = c.at.Add(k.UniqueFor)
		} else {
			run.Unique = k.Unique
		}
		c.tx.Put(u)
	}
	if k.Idempotency != "" {
		c.bind(k.Idempotency, run.ID, k.Digest())
	}
	if timed {
		c.named = max(c.named, made.UnixMilli())
	}
	cause, until := c.held(run, d)
	c.executes(d, run)
	c.addTo(batch)
	if err := c.begin(run, cause, until); err != nil {
		return err
	}
	if c.byPerson() || run.Origin == kernel.FromPerson || run.Origin == kernel.FromAPI {
		c.auditRun(run, nil)
	}
	return nil
}

// requested is what an earlier request under an idempotency key led to, or nil.
func (c *change) requested(key string, digest jobs.ID) (*kernel.UniqueKey, error) {
	before := c.uniqueRow(kernel.IdempotencyName(key), key)
	if before == nil || sabotage.Off(sabotage.Idempotency) {
		return nil, nil
	}
	if before.Digest != digest {
		return nil, kernel.Refuse(jobs.Conflict, "idempotency key %q was used for another request within the last 24 h", key)
	}
	return before, nil
}

// bind stores which run a request was answered with, under its idempotency key.
func (c *change) bind(key string, id, digest jobs.ID) {
	c.tx.Put(&kernel.UniqueKey{Tenant: c.env.Tenant, Name: kernel.IdempotencyName(key), ID: id,
		Digest: digest, Until: c.at.Add(kernel.IdempotencyLife)})
}

// uniqueRow is the row that reserves a name now, or nil.
func (c *change) uniqueRow(name, chosen string) *kernel.UniqueKey {
	if chosen == "" {
		return nil
	}
	u, _ := c.tx.Get(kernel.UniqueRef(c.env.Tenant, name)).(*kernel.UniqueKey)
	if u == nil || !u.Until.IsZero() && !u.Until.After(c.at) {
		return nil
	}
	return u
}

// known is a run that a unique key leads to. One that has left the live rows is known by its name alone.
func (c *change) known(id jobs.ID, key jobs.Key) *kernel.Run {
	if run := c.live(id); run != nil {
		return run
	}
	return &kernel.Run{Tenant: c.env.Tenant, ID: id, Key: key}
}

// fresh is a new run of a job, under the terms of its policy.
func (c *change) fresh(d *kernel.Definition, origin kernel.Origin) *kernel.Run {
	p := &d.Policy
	if origin == "" {
		origin = kernel.FromCode
	}
	run := &kernel.Run{
		Tenant: d.Tenant, Job: d.UID, Key: d.Key, App: d.App, Kind: d.Kind, Revision: d.Revision, Handler: jobs.Key(p.Handler), Work: p.Work(),
		Origin: origin, Actor: c.env.Actor, Priority: p.Priority, Late: origin == kernel.FromMisfire || origin == kernel.FromBackfill,
		Terms: kernel.Terms{Retries: p.Retries, RetryDelay: p.RetryDelay, RetryDelayMax: p.RetryDelayMax, Timeout: p.Timeout,
			OnLost: p.OnLost, LeaseLost: p.LeaseLost, Overlap: p.Overlap, Failing: p.Failing()},
	}
	return run
}

// executes numbers a new run of an HTTP job.
func (c *change) executes(d *kernel.Definition, run *kernel.Run) {
	if kernel.NoWork(d.Policy.HTTP) {
		return
	}
	next := *c.row(d.Key)
	next.Executions++
	run.Execution = next.Executions
	c.tx.Put(&next)
}

// begin starts the life of a new run.
func (c *change) begin(run *kernel.Run, held kernel.Cause, until time.Time) error {
	if !run.Due.After(c.at) {
		run.Moves = make([]kernel.Move, 0, 4) // enough for most runs
	}
	begun, err := run.Begin(c.at, held, until)
	if err != nil {
		return err
	}
	*run = begun
	if run.State == jobs.Enqueued {
		c.tally(run)
		return c.enter(run, jobs.Enqueued)
	}
	c.store(run, kernel.New)
	return nil
}

func (c *change) start(k kernel.Start) error {
	row, err := c.run(k.ID)
	if err != nil {
		return err
	}
	run := *row
	if run.Worker == k.Worker && (run.State == jobs.Processing && run.Attempt == k.Attempt || run.State == jobs.Skipped && run.Next() == k.Attempt) {
		return c.existing(row)
	}
	// What a former leader starts would not be pushed, and its successor would not know of it.
	if s := stateOf(c.tx); k.Term > 0 && k.Term < s.Term && !sabotage.Off(sabotage.StaleTerm) {
		return kernel.Refuse(jobs.Stale, "start of run %s by term %d: term %d is current", k.ID, k.Term, s.Term)
	}
	if sabotage.Off(sabotage.Start) && run.State == jobs.Processing {
		run.Worker = k.Worker
		c.store(&run, run.State)
		return nil
	}
	if k.Attempt != run.Next() {
		return kernel.Refuse(jobs.Stale, "run %s: attempt %d cannot begin, %d have begun", run.ID, k.Attempt, run.Attempt)
	}
	if !run.Ready() {
		if run.Waits != "" && run.First && c.gate(run.Waits, &run).Rate.Max > 0 {
			return c.existing(row) // this start has sent it there
		}
		if run.Held() && k.Attempt == run.Next() {
			return c.existing(row) // as this start has found
		}
		return kernel.Refuse(jobs.Conflict, "run %s is %s and cannot start", run.ID, run.State)
	}
	if err := c.suspended(); err != nil {
		return err
	}
	if run.Place.Unexpanded() {
		return kernel.Refuse(jobs.Conflict, "run %s is a broadcast: it becomes one run for each worker first", run.ID)
	}
	if skills, plain := run.Skills(); k.Skills != nil && (!plain || skills != *k.Skills) {
		return kernel.Refuse(jobs.Stale, "run %s needs another worker than %s", run.ID, k.Worker)
	}
	if run.State == jobs.Enqueued {
		why := kernel.Cause("")
		// The runs of a deleted job continue. Only a disabled job under the key stops them.
		if d := c.row(run.Key); d != nil && d.Policy.Disabled {
			why = kernel.ByDisabled
		} else if !run.StartBy.IsZero() && c.at.After(run.StartBy) {
			why = kernel.ByDeadline
		}
		if why != "" {
			run.Worker = k.Worker
			if run, err = run.Skip(c.at, why, ""); err != nil {
				return err
			}
			c.leave(&run, jobs.Enqueued)
			return nil
		}
	}
	if held, err := c.hold(&run); held || err != nil {
		return err
	}
	if full := c.throttled(&run); full != "" {
		c.yield(full, &run)
		return nil
	}
	from := run.State
	if run, err = run.Start(c.at, k.Worker); err != nil {
		return err
	}
	c.store(&run, from)
	if !isPart(&run) {
		c.spend(&run, false)
	}
	return nil
}

func (c *change) unstart(k kernel.Unstart) error {
	row, err := c.run(k.ID)
	switch {
	case err != nil:
		return err
	case row.Attempt != k.Attempt:
		return kernel.Refuse(jobs.Stale, "run %s: attempt %d is not the current one, %d is", k.ID, k.Attempt, row.Attempt)
	case row.State != jobs.Processing:
		return c.existing(row)
	}
	run, err := row.Unstart()
	if err != nil {
		return err
	}
	c.store(&run, run.State) // counted when it became due
	if !isPart(&run) {
		c.spend(&run, true)
	}
	return nil
}

// own is the run of an attempt, if it is that worker's.
func (c *change) own(id jobs.ID, worker string, attempt uint32) (*kernel.Run, error) {
	run, err := c.run(id)
	if err != nil {
		return nil, err
	}
	if sabotage.Off(sabotage.Fence) {
		return run, nil
	}
	if run.Attempt != attempt {
		return nil, kernel.Refuse(jobs.Stale, "run %s: attempt %d is not the current one, %d is", id, attempt, run.Attempt)
	}
	if run.Worker != worker {
		return nil, kernel.Refuse(jobs.Forbidden, "run %s: attempt %d belongs to worker %s", id, attempt, run.Worker)
	}
	return run, nil
}

// endings are the causes that are stored for the outcomes of attempts.
var endings = map[kernel.Outcome]kernel.Cause{
	kernel.OutcomeError: kernel.ByError, kernel.OutcomeFatal: kernel.ByError, kernel.OutcomeTimeout: kernel.ByTimeout,
	kernel.OutcomeHandback: kernel.ByHandback, kernel.OutcomeSnooze: kernel.BySnooze,
}

func (c *change) finish(k kernel.Finish) error {
	row, err := c.own(k.ID, k.Worker, k.Attempt)
	if err != nil {
		return err
	}
	run := *row
	if run.State != jobs.Processing {
		if ended(row, k.Outcome) {
			if !k.Running {
				return c.unlinger(row) // reported before while the handler was running; now it has returned
			}
			return c.existing(row)
		}
		return kernel.Refuse(jobs.Conflict, "run %s is %s: attempt %d has ended", run.ID, run.State, k.Attempt)
	}
	if k.Outcome == kernel.OutcomeSuccess {
		if run, err = run.Succeed(c.at, k.Result); err != nil {
			return err
		}
		next := c.next(&run)
		c.leave(&run, jobs.Processing)
		return c.follow(&run, next)
	}
	run.Lingering = k.Running
	code := k.Code
	if k.Outcome == kernel.OutcomeTimeout && code == "" {
		code = kernel.CodeTimeout
	}
	if run, err = run.Fail(c.at, endings[k.Outcome], code, k.Error, k.Delay, k.Outcome != kernel.OutcomeFatal); err != nil {
		return err
	}
	return c.after(&run)
}

// ended reports that an attempt with this outcome has already put the run into its state: the command was sent twice.
func ended(run *kernel.Run, o kernel.Outcome) bool {
	switch run.State {
	case jobs.Succeeded:
		return o == kernel.OutcomeSuccess
	case jobs.Failed, jobs.Terminated:
		return o != kernel.OutcomeSuccess && (run.Cause == "" || run.Cause == endings[o])
	}
	return false
}

// after puts a run whose attempt failed: a retry at once keeps its slots, and so does a handler that has not
// returned; everything else frees them.
func (c *change) after(run *kernel.Run) error {
	next := c.next(run)
	if run.State == jobs.Failed && run.RetryAt.IsZero() {
		c.budgeted(run)
	}
	if run.Lingering || run.State == jobs.Failed && run.RetryAt.IsZero() {
		c.store(run, jobs.Processing)
	} else {
		c.leave(run, jobs.Processing)
	}
	return c.follow(run, next)
}

func (c *change) returned(k kernel.Returned) error {
	row, err := c.own(k.ID, k.Worker, k.Attempt)
	if err != nil {
		return err
	}
	return c.unlinger(row)
}

// unlinger ends the time in which an attempt has ended and its handler still runs.
func (c *change) unlinger(row *kernel.Run) error {
	if !row.Lingering {
		if row.State == jobs.Processing {
			return kernel.Refuse(jobs.Conflict, "run %s is Processing: attempt %d has not ended", row.ID, row.Attempt)
		}
		return c.existing(row)
	}
	run := *row
	run.Lingering = false
	if run.State == jobs.Failed && run.RetryAt.IsZero() {
		c.store(&run, run.State)
		return nil
	}
	c.leave(&run, run.State)
	return nil
}

func (c *change) checkpoint(k kernel.Checkpoint) error {
	row, err := c.own(k.ID, k.Worker, k.Attempt)
	if err != nil {
		return err
	}
	if row.State != jobs.Processing {
		return kernel.Refuse(jobs.Conflict, "run %s is %s: attempt %d has ended", row.ID, row.State, k.Attempt)
	}
	if bytes.Equal(row.Checkpoint, k.Data) {
		return c.existing(row) // sent twice: it is no other version
	}
	run := *row
	run.Checkpoint = k.Data
	c.store(&run, run.State)
	return nil
}

func (c *change) expire(k kernel.Expire) error {
	row, err := c.run(k.ID)
	if err != nil {
		return err
	}
	switch {
	case row.Attempt != k.Attempt:
		return kernel.Refuse(jobs.Stale, "run %s: attempt %d is not the current one, %d is", k.ID, k.Attempt, row.Attempt)
	case row.Lingering && k.Cause == kernel.ByLoss:
		return c.unlinger(row)
	case row.State != jobs.Processing:
		return c.existing(row)
	case k.Cause == kernel.ByTimeout && (row.Deadline.IsZero() || row.Deadline.After(c.at)):
		return kernel.Refuse(jobs.Conflict, "run %s: attempt %d has not timed out", k.ID, k.Attempt)
	}
	run := *row
	if k.Cause == kernel.ByLoss {
		run, err = run.Lose(c.at, k.Unbegun)
	} else {
		run.Lingering = true
		run, err = run.Fail(c.at, k.Cause, kernel.CodeTimeout, "", 0, true)
	}
	if err != nil {
		return err
	}
	return c.after(&run)
}

func (c *change) cancel(k kernel.Cancel) error {
	row, err := c.run(k.ID)
	if err != nil {
		return err
	}
	if row.State == jobs.Cancelled {
		return c.existing(row)
	}
	run, err := (*row).Cancel(c.at, c.env.Actor, c.env.Reason)
	if err != nil {
		return err
	}
	if run.Lingering {
		c.store(&run, row.State)
	} else {
		c.leave(&run, row.State)
	}
	if c.byPerson() {
		c.auditRun(&run, fields{"state": row.State})
	}
	return nil
}

func (c *change) forget(k kernel.Forget) error {
	ref := kernel.UniqueRef(c.env.Tenant, k.Name)
	u, _ := c.tx.Get(ref).(*kernel.UniqueKey)
	if u == nil || u.Until.IsZero() || u.Until.After(c.at) {
		c.effect.Existing = true
		return nil
	}
	c.tx.Delete(ref)
	if gate, ok := idleGate(k.Name); ok {
		c.vacant(kernel.GateRef(c.env.Tenant, gate))
	}
	if ref, ok := kernel.TimedOccasion(c.env.Tenant, k.Name); ok {
		c.expireOccasion(ref)
	}
	if ref, ok := kernel.TimedBatch(c.env.Tenant, k.Name); ok {
		return c.expireBatch(ref)
	}
	return nil
}
