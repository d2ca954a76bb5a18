package metastore

import (
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// ApplyBatch applies a commit's commands, in order, to the rows of tx, and stores its time: the only code that knows
// what a command means. It has no clock, no random source and no other input than its arguments, so that every
// replica computes the same. A command is refused before it puts anything. The committer has checked (Envelope.Check)
// and stamped the envelopes.
func ApplyBatch(tx Tx, batch []kernel.Envelope) []Result {
	results := make([]Result, len(batch))
	if len(batch) == 0 {
		return results
	}
	last, at := stateOf(tx), batch[len(batch)-1].At
	n := numbers{turns: last.Turns, version: last.Version, named: last.Named, before: last.NamedBefore}
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
	s.At, s.Turns, s.Version, s.Named, s.NamedBefore, s.ApplyVersion = at, n.turns, n.version, n.named, n.before, s.InForce()
	tx.Put(&s)
	return results
}

// numbers are the counters in the store's row (see kernel.StoreRow), and the last audit of each tenant that the commit
// has written to.
type numbers struct {
	turns         uint64
	version       uint64
	named, before int64
	audited       map[jobs.Tenant]uint64
}

// change is one command under way.
type change struct {
	tx  Tx
	env *kernel.Envelope
	at  time.Time
	*numbers
	effect kernel.Effect
	final  []*kernel.Run // with followers, or of batches: see followed

	misfires bool // a decision that has misfires beside what is on time: see ringAll
}

func (c *change) apply() error {
	if err := c.inTenant(); err != nil {
		return err
	}
	if err := c.permitted(); err != nil {
		return err
	}
	if err := c.command(); err != nil {
		return err
	}
	for len(c.final) > 0 { // a follower that is Skipped at once is final, too
		run := c.final[0]
		c.final = c.final[1:]
		if err := c.occasions(run); err != nil {
			return err
		}
		if err := c.inBatch(run); err != nil {
			return err
		}
	}
	return nil
}

func (c *change) command() error {
	switch k := c.env.Command.(type) {
	case kernel.Create:
		return c.create(k)
	case kernel.Start:
		return c.start(k)
	case kernel.Unstart:
		return c.unstart(k)
	case kernel.Finish:
		return c.finish(k)
	case kernel.Fire:
		return c.fire(k)
	case kernel.Release:
		return c.release(k)
	case kernel.Returned:
		return c.returned(k)
	case kernel.Checkpoint:
		return c.checkpoint(k)
	case kernel.Expect:
		return c.expect(k)
	case kernel.Report:
		return c.report(k)
	case kernel.Expire:
		return c.expire(k)
	case kernel.Cancel:
		return c.cancel(k)
	case kernel.Hand:
		return c.handOn(k)
	case kernel.Forget:
		return c.forget(k)
	case kernel.Register:
		return c.register(k)
	case kernel.Edit:
		return c.edit(k)
	case kernel.Pause:
		return c.pause(k)
	case kernel.Resume:
		return c.resume(k)
	case kernel.Refresh:
		return c.refresh(k)
	case kernel.Configure:
		return c.configure(k)
	case kernel.Lead:
		return c.lead(k)
	case kernel.Delete:
		return c.delete(k)
	case kernel.Grant:
		return c.grant(k)
	case kernel.Revoke:
		return c.revoke(k)
	case kernel.SignIn:
		return c.signIn(k)
	case kernel.Touch:
		return c.seen(k)
	case kernel.SignOut:
		return c.signOut(k)
	case kernel.PurgeAudit:
		return c.trim(k)
	case kernel.Invite:
		return c.invite(k)
	case kernel.Join:
		return c.join(k)
	case kernel.Members:
		return c.members(k)
	case kernel.Expand:
		return c.expand(k)
	case kernel.SetCalendar:
		return c.setCalendar(k)
	case kernel.DropCalendar:
		return c.dropCalendar(k)
	case kernel.Drain:
		return c.drain(k)
	case kernel.Mark:
		return c.mark(k)
	case kernel.Purge:
		return c.purge(k)
	case kernel.Backfill:
		return c.backfill(k)
	case kernel.Notify:
		return c.notify(k)
	case kernel.SetTenant:
		return c.setTenant(k)
	case kernel.SuspendTenant:
		return c.suspendTenant(k)
	case kernel.DeleteTenant:
		return c.deleteTenant(k)
	case kernel.DropTenant:
		return c.dropTenant(k)
	case kernel.LedgerKey:
		return c.ledgerKey(k)
	case kernel.FinalizeUpgrade:
		return c.finalizeUpgrade(k)
	case kernel.SetAlarmTarget:
		return c.setAlarmTarget(k)
	case kernel.DropAlarmTarget:
		return c.dropAlarmTarget(k)
	case kernel.SetAlarmRule:
		return c.setAlarmRule(k)
	case kernel.DropAlarmRule:
		return c.dropAlarmRule(k)
	case kernel.RaiseAlarm:
		return c.raiseAlarm(k)
	case kernel.EndAlarm:
		return c.endAlarm(k)
	case kernel.SentAlarm:
		return c.sentAlarm(k)
	case kernel.PurgeAlarms:
		return c.purgeAlarms(k)
	case kernel.Exported:
		return c.exported(k)
	case kernel.Denied:
		return c.denied(k)
	case kernel.CheckIn:
		return c.checkIn(k)
	case kernel.OpenBatch:
		return c.openBatch(k)
	case kernel.CloseBatch:
		return c.closeBatch(k)
	}
	return c.applyNext()
}

// existing answers with a row that exists already.
func (c *change) existing(run *kernel.Run) error {
	c.effect.Existing = true
	c.effect.Runs = append(c.effect.Runs, run)
	return nil
}

// definition is an existing job, or nil.
func (c *change) definition(key jobs.Key) *kernel.Definition {
	if d := c.row(key); d != nil && !d.Gone() {
		return d
	}
	return nil
}

// row is the row under a job's key: the job, or what remains of a deleted one, or nil.
func (c *change) row(key jobs.Key) *kernel.Definition {
	d, _ := c.tx.Get(kernel.DefinitionRef(c.env.Tenant, key)).(*kernel.Definition)
	return d
}

func (c *change) live(id jobs.ID) *kernel.Run {
	run, _ := c.tx.Get(kernel.RunRef(c.env.Tenant, id)).(*kernel.Run)
	return run
}

// run is the run, or the refusal that there is none.
func (c *change) run(id jobs.ID) (*kernel.Run, error) {
	if run := c.live(id); run != nil {
		return run, nil
	}
	return nil, kernel.Refuse(jobs.NotFound, "there is no live run %s", id)
}

// job is the definition, or the refusal that there is none.
func (c *change) job(key jobs.Key) (*kernel.Definition, error) {
	if d := c.definition(key); d != nil {
		return d, nil
	}
	return nil, kernel.Refuse(jobs.NotFound, "there is no job %q: has a worker that serves it been started?", key)
}

var noGlobal = kernel.Global{}

func (c *change) global() *kernel.Global {
	if g, ok := c.tx.Get(kernel.GlobalRef(c.env.Tenant)).(*kernel.Global); ok {
		return g
	}
	return &noGlobal
}

func stateOf(tx Tx) kernel.StoreRow {
	if s, ok := tx.Get(kernel.StoreRef()).(*kernel.StoreRow); ok {
		return *s
	}
	return kernel.StoreRow{}
}

// store puts a run as a command leaves it. from is its former state.
func (c *change) store(run *kernel.Run, from jobs.State) {
	if run.State != from {
		c.tally(run)
		if run.State.Final() {
			if run.Terms.Failing != nil {
				c.inRow(run)
			}
			c.alarms(run)
			c.followed(run)
		}
	}
	c.turn(run)
	if len(run.Gates) > 0 {
		c.admit(run)
	}
	if crowds(run) {
		c.crowd(run)
	}
	if run.State.Final() && run.Unique != "" {
		ref := kernel.UniqueRef(run.Tenant, kernel.UniqueName(run.Key, run.Unique))
		if u, ok := c.tx.Get(ref).(*kernel.UniqueKey); ok && u.ID == run.ID && u.Until.IsZero() {
			c.tx.Delete(ref)
		}
	}
	c.put(run)
	c.effect.Runs = append(c.effect.Runs, run)
	if run.Kind == kernel.Recurring && run.Settled() {
		c.overOf(run)
	}
}

// put puts a row of a run as its newest version.
func (c *change) put(run *kernel.Run) {
	if run.Version = 0; !run.Settled() {
		c.version++
		run.Version = c.version
	}
	c.tx.Put(run)
}

// turn numbers a run that is ready from now on. One that was ready before keeps its place, and so does one that is
// Processing, in case its start is taken back.
func (c *change) turn(run *kernel.Run) {
	if run.State == jobs.Processing {
		return
	}
	if !run.Ready() {
		run.Turn = 0
		return
	}
	switch before := c.live(run.ID); {
	case before != nil && (before.Ready() || c.env.Command.Verb() == kernel.VerbUnstart):
		run.Turn = before.Turn
	default:
		c.turns++
		run.Turn, run.Queued = c.turns, c.at
	}
}

// tally counts what the dashboard's charts show: runs that became due, and how attempts and runs ended.
func (c *change) tally(run *kernel.Run) {
	if run.State == jobs.Scheduled || run.State == jobs.Processing && !c.nextTally() {
		return
	}
	t := kernel.Tally{Tenant: run.Tenant, Job: run.Job, Span: kernel.Hour, At: kernel.Hour.Start(c.at)}
	if t.Runs[run.State] = 1; run.State == jobs.Succeeded {
		t.Took = c.at.Sub(run.Started)
	}
	c.tx.Put(&t)
}
