package metastore

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Audits are written here, in the commit of the change. Repeated and refused commands write nothing.

// fields are a thing's values in an audit; in JSON, in the order of their names.
type fields map[string]any

// audit writes a line. before and after hold what changed; nil if nothing did.
func (c *change) audit(target string, before, after fields) {
	c.auditBy(c.env.Actor, c.env.Command.Verb().String(), target, before, after)
}

// auditAs is audit with a verb of its own.
func (c *change) auditAs(verb, target string, before, after fields) {
	c.auditBy(c.env.Actor, verb, target, before, after)
}

// auditBy writes a line with a given actor: the rules, and not a person, may have caused the change.
func (c *change) auditBy(actor, verb, target string, before, after fields) {
	reason := c.env.Reason
	if actor != c.env.Actor {
		reason = ""
	}
	c.append(&kernel.Audit{Actor: actor, Reason: reason, Verb: verb, Target: target, Before: before.json(), After: after.json()})
}

// append writes a line, with its place in the tenant's chain.
func (c *change) append(a *kernel.Audit) {
	g := *c.global()
	g.Tenant = c.env.Tenant
	g.Audits++
	a.Tenant, a.N, a.At, a.Prev = g.Tenant, g.Audits, c.at, g.AuditHead
	c.chain(&g, a)
	c.purgeAudits(2)
}

// chain puts the tenant's last line with its hash, which the next line names.
func (c *change) chain(g *kernel.Global, a *kernel.Audit) {
	a.Hash = a.Sum()
	g.AuditHead = a.Hash
	c.tx.Put(g)
	c.tx.Put(a)
	if c.audited == nil {
		c.audited = map[jobs.Tenant]uint64{}
	}
	c.audited[g.Tenant] = a.N
}

// count changes the counters in the tenant's Global.
func (c *change) count(change func(*kernel.Global)) {
	g := *c.global()
	g.Tenant = c.env.Tenant
	change(&g)
	c.tx.Put(&g)
}

func (f fields) json() []byte {
	if len(f) == 0 {
		return nil
	}
	b, err := json.Marshal(f)
	if err != nil {
		return nil // Check refused what cannot be encoded
	}
	return b
}

func stamp(t time.Time) string { return t.Format("2006-01-02T15:04:05Z07:00") }

func jobTarget(key jobs.Key) string { return "job " + string(key) }

func runTarget(run *kernel.Run) string { return "run " + run.ID.String() + " of " + string(run.Key) }

// private are settings that hold a job's data. An audit shows that they changed, and not to what.
var private = map[string]bool{"args": true}

// put notes the former and the new value of a field. was may be nil.
func put(was, is fields, name string, before, after any) {
	if private[name] {
		is[name] = "changed"
		return
	}
	if before != nil {
		was[name] = before
	}
	is[name] = after
}

// held are the effective values of the named fields before and after a change, whoever owns them.
func held(names []string, before, after *kernel.Policy) (was, is fields) {
	was, is = fields{}, fields{}
	for _, name := range names {
		put(was, is, name, before.Field(name), after.Field(name))
	}
	return was, is
}

// defaults are the defaults of a kind of job before and after a change, as far as they differ.
func defaults(before, after *kernel.Settings) (was, is fields) {
	was, is = fields{}, fields{}
	for _, name := range before.Changed(after) {
		put(was, is, name, before.Value(name), after.Value(name))
	}
	return was, is
}

// byPerson reports whether a person caused what happens to a run. The moves of runs record what programs and duties
// do.
func (c *change) byPerson() bool { return kernel.IsPerson(c.env.Actor) }

// lastAudit returns the tenant's last line, or nil.
func (c *change) lastAudit() (last *kernel.Audit) {
	if n := c.global().Audits; n > 0 {
		last, _ = c.tx.Get(kernel.AuditRef(c.env.Tenant, n)).(*kernel.Audit)
	}
	return last
}

// auditRun writes what a person did to a run. What the same commit does to other runs of the job goes to the same
// line: a bulk of a hundred thousand must not push everything else out of the record, and each run records its own
// changes. A line of an earlier commit never changes: it may have been exported.
func (c *change) auditRun(run *kernel.Run, before fields) {
	last := c.lastAudit()
	many := "runs of " + string(run.Key)
	if last == nil || c.audited[c.env.Tenant] != last.N || last.Verb != c.env.Command.Verb().String() || last.Actor != c.env.Actor ||
		last.Reason != c.env.Reason || last.Target != many && !strings.HasSuffix(last.Target, " of "+string(run.Key)) {
		c.audit(runTarget(run), before, nil)
		return
	}
	sum := struct {
		Runs int `json:"runs"`
	}{1}
	if last.Target == many {
		_ = json.Unmarshal(last.After, &sum) // written below
	}
	line := *last
	line.Target, line.Before, line.After = many, nil, fields{"runs": sum.Runs + 1}.json()
	g := *c.global()
	c.chain(&g, &line)
}

// trim drops rows that are old enough. Commands do without them: a purged range is not extended, and an expired
// session stays invalid.
func (c *change) trim(k kernel.PurgeAudit) error {
	before := k.Before
	if oldest := c.at.Add(-kernel.KeepHistory); before.After(oldest) {
		before = oldest
	}
	c.effect.Existing = true
	for _, ref := range k.Refs {
		ref.Tenant = c.env.Tenant
		row := c.tx.Get(ref)
		if row == nil {
			continue
		}
		if t, ok := row.(*kernel.Tally); ok && t.Span == kernel.Hour && !t.End().After(c.at.Add(-kernel.KeepHours)) {
			c.tx.Delete(ref)
			if day := t.Daily(); !day.End().Before(before) { // or it would be purged when this command is sent again
				c.tx.Put(day)
			}
			c.effect.Existing = false
		} else if at, ok := DoneAt(row); ok && at.Before(before) {
			c.tx.Delete(ref)
			c.effect.Existing = false
		}
	}
	return nil
}

// DoneAt is when a row became history, or false if it has not. An expired session is of no interest: it counts as if
// it had been history for as long as history is kept. An hour's tally never is history: it becomes part of its day's.
func DoneAt(row kernel.Row) (time.Time, bool) {
	switch row := row.(type) {
	case *kernel.Tally:
		return row.End(), row.Span == kernel.Day
	case *kernel.Missed:
		return row.To, true
	case *kernel.Session:
		return row.End().Add(-kernel.KeepHistory), true
	case *kernel.Token:
		return row.Until, !row.Until.IsZero()
	case *kernel.Definition:
		return row.Edited, row.Gone()
	}
	return time.Time{}, false
}
