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
	case jobs.Spread:
		return c.spread(k)
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
func (c *change) existing(in *jobs.Instance) error {
	c.effect.Existing = true
	c.effect.Instances = append(c.effect.Instances, in)
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

func (c *change) instance(id jobs.ID) *jobs.Instance {
	in, _ := c.tx.Get(jobs.InstanceRef(c.env.Tenant, id)).(*jobs.Instance)
	return in
}

// run is the instance, or the refusal that there is none.
func (c *change) run(id jobs.ID) (*jobs.Instance, error) {
	if in := c.instance(id); in != nil {
		return in, nil
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
func (c *change) store(in *jobs.Instance, from jobs.State) {
	if in.State != from {
		c.tally(in)
		if in.Terms.Failing != nil && in.State.Final() {
			c.inRow(in)
		}
	}
	c.turn(in)
	if crowds(in) {
		c.crowd(in)
	}
	if in.State.Final() && in.Unique != "" {
		ref := jobs.UniqueRef(in.Tenant, jobs.UniqueName(in.Key, in.Unique))
		if u, ok := c.tx.Get(ref).(*jobs.UniqueKey); ok && u.ID == in.ID && u.Until.IsZero() {
			c.tx.Delete(ref)
		}
	}
	c.tx.Put(in)
	c.effect.Instances = append(c.effect.Instances, in)
	if in.Kind == jobs.Recurring && in.Settled() {
		c.overOf(in)
	}
}

// turn numbers a run that can be claimed from now on. One that could be claimed before keeps its place.
func (c *change) turn(in *jobs.Instance) {
	if !in.Offerable() {
		in.Turn = 0
		return
	}
	if before := c.instance(in.ID); before != nil && before.Offerable() {
		in.Turn = before.Turn
		return
	}
	c.turns++
	in.Turn = c.turns
}

// tally counts what the dashboard's charts show: runs that became due, and how attempts and runs ended.
func (c *change) tally(in *jobs.Instance) {
	if in.State == jobs.Scheduled || in.State == jobs.Processing && !c.nextTally() {
		return
	}
	c.tx.Put(&jobs.Tally{Tenant: in.Tenant, Job: in.Job, State: in.State, Hour: c.at.Truncate(time.Hour).UnixNano(), N: 1})
}
