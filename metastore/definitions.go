package metastore

import (
	"bytes"
	"reflect"

	"github.com/carillon-scheduler/carillon/jobs"
)

// What becomes of definitions and of what holds for a whole tenant.

// changed puts a definition after a change and numbers it.
func (c *change) changed(d *jobs.Definition, before *jobs.Definition) {
	g := c.global()
	d.Policy, d.Defaults = d.Resolve(g), g.Revision
	if before != nil && !d.Policy.SameTimes(&before.Policy) {
		d.Cursor, d.Anchor = c.at, c.at // a new schedule says nothing about the past
	}
	d.Revision++
	d.Edited = c.at
	d.Change = c.number()
	c.tx.Put(d)
	c.effect.Definitions = append(c.effect.Definitions, d)
	c.limits(d)
}

// number is the next change number.
func (c *change) number() uint64 {
	s := stateOf(c.tx)
	s.Changes++
	c.tx.Put(&s)
	return s.Changes
}

func (c *change) same(d *jobs.Definition) error {
	c.effect.Existing = true
	c.effect.Definitions = append(c.effect.Definitions, d)
	return nil
}

func (c *change) register(k jobs.Register) error {
	job := &k.Job
	row := c.definition(job.Key)
	if row == nil {
		d := &jobs.Definition{Tenant: c.env.Tenant, Key: job.Key, Kind: job.Kind, App: k.App, Version: job.Version,
			Code: job.Code, Schema: job.Schema, Created: c.at, Cursor: c.at, Anchor: c.at,
			UID: definitionID(c.env, job.Key)}
		c.changed(d, nil)
		return nil
	}
	switch {
	case row.Kind != job.Kind:
		return jobs.Refuse(jobs.Conflict, "job %s is registered as a %s job; a key never changes its kind: choose another key", job.Key, row.Kind)
	case row.App != k.App && job.Version <= row.Version:
		return jobs.Refuse(jobs.Conflict, "job %s belongs to app %s: to move it to app %s, register it with a Version above %d", job.Key, row.App, k.App, row.Version)
	case !k.Start || job.Version < row.Version:
		return c.same(row)
	case row.App == k.App && row.Version == job.Version && row.Code.Equal(&job.Code) && bytes.Equal(row.Schema, job.Schema):
		return c.same(row)
	}
	d := *row
	d.App, d.Version, d.Code, d.Schema = k.App, job.Version, job.Code, job.Schema
	c.changed(&d, row)
	return nil
}

// definitionID is the uid of a job that an envelope makes.
func definitionID(e *jobs.Envelope, key jobs.Key) jobs.ID {
	return jobs.DerivedID("definition", string(e.Tenant), string(key), string(e.ID[:]))
}

func (c *change) edit(k jobs.Edit) error {
	row, err := c.job(k.Key)
	if err != nil {
		return err
	}
	edits := k.Set.Over(row.Edits.Without(k.Clear))
	if edits.Equal(&row.Edits) {
		return c.same(row)
	}
	if k.IfRevision != 0 && k.IfRevision != row.Revision {
		return jobs.Refuse(jobs.Stale, "job %s has revision %d, the edit was made for %d: look again", k.Key, row.Revision, k.IfRevision)
	}
	d := *row
	d.Edits = edits
	if p := d.Resolve(c.global()); !p.Start.IsZero() && !p.End.IsZero() && p.Start.After(p.End) {
		return jobs.Invalid("job %s: start %s would be after end %s", k.Key, p.Start.Format("2006-01-02T15:04:05Z07:00"), p.End.Format("2006-01-02T15:04:05Z07:00"))
	}
	c.changed(&d, row)
	return nil
}

func (c *change) pause(k jobs.Pause) error {
	row, err := c.job(k.Key)
	if err != nil {
		return err
	}
	if row.Kind != jobs.Recurring {
		return jobs.Refuse(jobs.Conflict, "job %s is triggered: it has no schedule to pause; disable it instead", k.Key)
	}
	if p := row.Paused; p != nil && p.Reason == k.Reason && p.By == c.env.Actor && p.Until.Equal(k.Until) {
		return c.same(row)
	}
	if !k.Until.IsZero() && !k.Until.After(c.at) {
		return jobs.Invalid("pause of %s until %s: that time has passed", k.Key, k.Until.Format("2006-01-02T15:04:05Z07:00"))
	}
	d := *row
	d.Paused = &jobs.Held{Reason: k.Reason, By: c.env.Actor, At: c.at, Until: k.Until}
	c.changed(&d, row)
	return nil
}

func (c *change) resume(k jobs.Resume) error {
	row, err := c.job(k.Key)
	if err != nil {
		return err
	}
	if row.Paused == nil {
		return c.same(row)
	}
	d := *row
	d.Paused = nil
	c.changed(&d, row)
	return nil
}

func (c *change) refresh(k jobs.Refresh) error {
	row, err := c.job(k.Key)
	if err != nil {
		return err
	}
	if row.Defaults == c.global().Revision {
		return c.same(row)
	}
	d := *row
	c.changed(&d, row)
	return nil
}

func (c *change) configure(k jobs.Configure) error {
	row := c.global()
	g := *row
	g.Tenant = c.env.Tenant
	for _, m := range []struct {
		want *bool
		mode *jobs.Debug
	}{{k.RecurringDebug, &g.RecurringDebug}, {k.TriggeredDebug, &g.TriggeredDebug}} {
		if m.want != nil && *m.want != m.mode.On {
			*m.mode = jobs.Debug{On: *m.want, By: c.env.Actor, At: c.at}
		}
	}
	if k.RecurringDefaults != nil {
		g.RecurringDefaults = *k.RecurringDefaults
	}
	if k.TriggeredDefaults != nil {
		g.TriggeredDefaults = *k.TriggeredDefaults
	}
	if k.MisfireAfter != nil {
		g.MisfireAfter = *k.MisfireAfter
	}
	if row.Tenant == g.Tenant && reflect.DeepEqual(g, *row) {
		c.effect.Existing, c.effect.Global = true, row
		return nil
	}
	g.Revision++
	c.number()
	c.tx.Put(&g)
	c.effect.Global = &g
	return nil
}

func (c *change) lead(k jobs.Lead) error {
	s := stateOf(c.tx)
	if s.Epoch == k.Epoch && s.Leader == k.Node {
		c.effect.Existing = true
		return nil
	}
	if s.Epoch >= k.Epoch {
		return jobs.Refuse(jobs.Stale, "epoch %d of node %s is current, %d is not above it", s.Epoch, s.Leader, k.Epoch)
	}
	s.Epoch, s.Leader = k.Epoch, k.Node
	c.tx.Put(&s)
	return nil
}
