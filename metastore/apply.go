package metastore

import (
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// ApplyBatch applies a commit's commands, in order, to the rows of tx, and remembers its time: the only code that knows
// what a command means. It has no clock, no random source and no other input than its arguments, so that every replica
// computes the same. A command is refused before it puts anything. The envelopes have been checked (Envelope.Check) and
// stamped by whoever commits.
func ApplyBatch(tx Tx, batch []jobs.Envelope) []Result {
	results := make([]Result, len(batch))
	if len(batch) == 0 {
		return results
	}
	last, at := stateOf(tx), batch[len(batch)-1].At
	n := numbers{last.Turns, last.Named, last.NamedBefore}
	if Period(at) > Period(last.At) {
		n.named, n.before = 0, max(n.before, n.named)
	}
	for i := range batch {
		c := change{tx: tx, env: &batch[i], at: batch[i].At, numbers: &n}
		if err := c.apply(); err != nil {
			results[i].Err = err
		} else {
			results[i].Effect = c.effect
		}
	}
	s := stateOf(tx)
	s.At, s.Turns, s.Named, s.NamedBefore, s.ApplyVersion = at, n.turns, n.named, n.before, s.InForce()
	tx.Put(&s)
	return results
}

// numbers are what a commit counts in the store's row: see jobs.StoreRow.
type numbers struct {
	turns         uint64
	named, before int64
}

// change is one command under way.
type change struct {
	tx  Tx
	env *jobs.Envelope
	at  time.Time
	*numbers
	effect jobs.Effect
}

func (c *change) apply() error {
	switch k := c.env.Command.(type) {
	case jobs.Create:
		return c.create(k)
	case jobs.Claim:
		return c.claim(k)
	case jobs.Finish:
		return c.finish(k)
	case jobs.Fire:
		return c.fire(k)
	case jobs.Release:
		return c.release(k)
	case jobs.Returned:
		return c.returned(k)
	case jobs.Checkpoint:
		return c.checkpoint(k)
	case jobs.Expect:
		return c.expect(k)
	case jobs.Hear:
		return c.hear(k)
	case jobs.Expire:
		return c.expire(k)
	case jobs.Cancel:
		return c.cancel(k)
	case jobs.Hand:
		return c.handOn(k)
	case jobs.Forget:
		return c.forget(k)
	case jobs.Register:
		return c.register(k)
	case jobs.Edit:
		return c.edit(k)
	case jobs.Pause:
		return c.pause(k)
	case jobs.Resume:
		return c.resume(k)
	case jobs.Refresh:
		return c.refresh(k)
	case jobs.Configure:
		return c.configure(k)
	case jobs.Lead:
		return c.lead(k)
	case jobs.Delete:
		return c.delete(k)
	case jobs.Grant:
		return c.grant(k)
	case jobs.Revoke:
		return c.revoke(k)
	case jobs.SignIn:
		return c.signIn(k)
	case jobs.SignOut:
		return c.signOut(k)
	case jobs.Trim:
		return c.trim(k)
	case jobs.Invite:
		return c.invite(k)
	case jobs.Join:
		return c.join(k)
	case jobs.Members:
		return c.members(k)
	case jobs.Expand:
		return c.expand(k)
	case jobs.SetCalendar:
		return c.setCalendar(k)
	case jobs.DropCalendar:
		return c.dropCalendar(k)
	case jobs.Drain:
		return c.drain(k)
	case jobs.Mark:
		return c.mark(k)
	case jobs.Clean:
		return c.clean(k)
	case jobs.Backfill:
		return c.backfill(k)
	case jobs.Notify:
		return c.notify(k)
	case jobs.FinalizeUpgrade:
		return c.finalizeUpgrade(k)
	}
	return c.applyNext()
}

// existing answers with a row that is there already.
func (c *change) existing(run *jobs.Run) error {
	c.effect.Existing = true
	c.effect.Runs = append(c.effect.Runs, run)
	return nil
}

// definition is a job that is there, or nil.
func (c *change) definition(key jobs.Key) *jobs.Definition {
	if d := c.row(key); d != nil && !d.Gone() {
		return d
	}
	return nil
}

// row is the row under a job's key: the job, or what is left of one that was deleted, or nil.
func (c *change) row(key jobs.Key) *jobs.Definition {
	d, _ := c.tx.Get(jobs.DefinitionRef(c.env.Tenant, key)).(*jobs.Definition)
	return d
}

func (c *change) live(id jobs.ID) *jobs.Run {
	run, _ := c.tx.Get(jobs.RunRef(c.env.Tenant, id)).(*jobs.Run)
	return run
}

// run is the run, or the refusal that there is none.
func (c *change) run(id jobs.ID) (*jobs.Run, error) {
	if run := c.live(id); run != nil {
		return run, nil
	}
	return nil, jobs.Refuse(jobs.NotFound, "there is no live run %s", id)
}

// job is the definition, or the refusal that there is none.
func (c *change) job(key jobs.Key) (*jobs.Definition, error) {
	if d := c.definition(key); d != nil {
		return d, nil
	}
	return nil, jobs.Refuse(jobs.NotFound, "there is no job %q: has a worker that serves it been started?", key)
}

var noGlobal = jobs.Global{}

func (c *change) global() *jobs.Global {
	if g, ok := c.tx.Get(jobs.GlobalRef(c.env.Tenant)).(*jobs.Global); ok {
		return g
	}
	return &noGlobal
}

func stateOf(tx Tx) jobs.StoreRow {
	if s, ok := tx.Get(jobs.StoreRef()).(*jobs.StoreRow); ok {
		return *s
	}
	return jobs.StoreRow{}
}

// store puts a run as a command leaves it. from is the state it was in before.
func (c *change) store(run *jobs.Run, from jobs.State) {
	if run.State != from {
		c.tally(run)
		if run.Terms.Failing != nil && run.State.Final() {
			c.inRow(run)
		}
	}
	c.turn(run)
	if crowds(run) {
		c.crowd(run)
	}
	if run.State.Final() && run.Unique != "" {
		ref := jobs.UniqueRef(run.Tenant, jobs.UniqueName(run.Key, run.Unique))
		if u, ok := c.tx.Get(ref).(*jobs.UniqueKey); ok && u.ID == run.ID && u.Until.IsZero() {
			c.tx.Delete(ref)
		}
	}
	c.tx.Put(run)
	c.effect.Runs = append(c.effect.Runs, run)
	if run.Kind == jobs.Recurring && run.Settled() {
		c.overOf(run)
	}
}

// turn numbers a run that can be claimed from now on. One that could be claimed before keeps its place.
func (c *change) turn(run *jobs.Run) {
	if !run.Offerable() {
		run.Turn = 0
		return
	}
	if before := c.live(run.ID); before != nil && before.Offerable() {
		run.Turn = before.Turn
		return
	}
	c.turns++
	run.Turn = c.turns
}

// tally counts what the dashboard's charts show: runs that became due, and how attempts and runs ended.
func (c *change) tally(run *jobs.Run) {
	if run.State == jobs.Scheduled || run.State == jobs.Processing && !c.nextTally() {
		return
	}
	c.tx.Put(&jobs.Tally{Tenant: run.Tenant, Job: run.Job, State: run.State, Hour: c.at.Truncate(time.Hour).UnixNano(), N: 1})
}
