package metastore

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Changes of definitions and of a tenant's settings.

// changed puts a definition after a change and numbers it.
func (c *change) changed(d *kernel.Definition, before *kernel.Definition) {
	g := c.global()
	d.Policy, d.Defaults = d.Resolve(g), g.Revision
	if before != nil && !d.Policy.SameTimes(&before.Policy) {
		c.reschedule(d, before)
	}
	if before != nil {
		d.Silenced(before, c.at)
	}
	d.Revision++
	d.Edited = c.at
	d.Change = c.number()
	c.tx.Put(d)
	c.effect.Definitions = append(c.effect.Definitions, d)
	c.limits(d, before)
	switch {
	case before == nil:
		c.index(d.Key, nil, &d.Policy)
	case !slices.Equal(before.Policy.After, d.Policy.After):
		c.index(d.Key, &before.Policy, &d.Policy)
	}
}

// remember stores a job's policy as it was before a change.
func (c *change) remember(before *kernel.Definition) {
	h, ok := c.tx.Get(kernel.HistoryRef(before.Tenant, before.UID)).(*kernel.History)
	if !ok {
		h = &kernel.History{Tenant: before.Tenant, Job: before.UID}
	}
	c.tx.Put(h.And(kernel.Version{Revision: before.Revision, App: before.App, Number: before.Version, Code: before.Code, Edits: before.Edits,
		Until: c.at, Verb: c.env.Command.Verb(), By: c.env.Actor, Reason: c.env.Reason}))
}

// reschedule begins a new schedule, which does not cover the past. The leader puts the undecided due times of the old
// one into the ledger: this code knows no schedules.
func (c *change) reschedule(d, before *kernel.Definition) {
	d.Reschedule(before, c.at)
	if before.Policy.Schedule != "" {
		c.scheduled(before)
	}
	if before.Policy.Schedule != "" && !before.Waits() && before.Since().Before(c.at) {
		d.Undecided = append(slices.Clip(before.Undecided), before.Earlier(c.at))
	}
	if len(d.Undecided) > 0 {
		return
	}
	if before.Cursor.After(c.at) { // a due time whose run began early stays decided, those of the new schedule are not
		if before.FixedDelay() && d.FixedDelay() {
			return // but they are later if they count from the end of that run
		}
		ahead := before.Earlier(c.at)
		ahead.Decided = before.Cursor
		d.Ahead = append(slices.Clip(before.Ahead), ahead)
	}
	d.Cursor = c.at
}

// number is the next change number.
func (c *change) number() uint64 {
	s := stateOf(c.tx)
	s.Changes++
	c.tx.Put(&s)
	return s.Changes
}

func (c *change) same(d *kernel.Definition) error {
	c.effect.Existing = true
	c.effect.Definitions = append(c.effect.Definitions, d)
	return nil
}

func (c *change) register(k kernel.Register) error {
	job := &k.Job
	row := c.definition(job.Key)
	if row == nil {
		return c.registerNew(k)
	}
	switch {
	case len(k.Set.Given()) > 0 && !row.Edits.Equal(&k.Set):
		return kernel.Refuse(jobs.Stale, "job %s was created meanwhile: read it and try again", job.Key)
	case row.Kind != job.Kind:
		return kernel.Refuse(jobs.Conflict, "job %s is registered as a %s job; a key never changes its kind: choose another key", job.Key, row.Kind)
	case row.App != k.App && job.Version <= row.Version:
		return kernel.Refuse(jobs.Conflict, "job %s belongs to app %s: to move it to app %s, register it with a Version above %d", job.Key, row.App, k.App, row.Version)
	case !k.Start || job.Version < row.Version:
		return c.registered(k, row)
	case row.App == k.App && row.Version == job.Version && row.Code.Equal(&job.Code) && bytes.Equal(row.Schema, job.Schema):
		return c.registered(k, row)
	}
	d := *row
	d.Registered = row.Registered || k.Worker != kernel.NoWorker
	d.App, d.Version, d.Code, d.Schema = k.App, job.Version, job.Code, job.Schema
	p := d.Resolve(c.global())
	if err := checkPolicy(&d, &p, c.others()); err != nil {
		return err
	}
	c.changed(&d, row)
	c.remember(row)
	was, is := held(row.Code.Changed(&d.Code), &row.Policy, &d.Policy)
	if row.App != d.App {
		was["app"], is["app"] = row.App, d.App
	}
	is["version"] = d.Version
	if row.Version != d.Version {
		was["version"] = row.Version
	}
	c.audit(jobTarget(d.Key), was, is)
	return nil
}

// registered records that a worker's code declares a job that a user or a bundle created.
func (c *change) registered(k kernel.Register, row *kernel.Definition) error {
	if row.Registered || k.Worker == kernel.NoWorker {
		return c.same(row)
	}
	d := *row
	d.Registered = true
	d.Change = c.number()
	c.tx.Put(&d)
	c.effect.Definitions = append(c.effect.Definitions, &d)
	c.audit(jobTarget(d.Key), nil, fields{"registered": true})
	return nil
}

// registerNew makes a job. A worker that still serves a deleted job does not bring it back. A new job under its key
// is another job, but the revision continues, so that an edit meant for the old one does not fit it.
func (c *change) registerNew(k kernel.Register) error {
	job := &k.Job
	d := &kernel.Definition{Tenant: c.env.Tenant, Key: job.Key, Kind: job.Kind, App: k.App, Version: job.Version,
		Code: job.Code, Schema: job.Schema, Created: c.at, Cursor: c.at, SetAt: c.at, Anchor: c.at, TTLFrom: c.at,
		UID: definitionID(c.env, job.Key), Registered: k.Worker != kernel.NoWorker, Bundle: k.Bundle}
	if gone := c.remains(job.Key); gone != nil {
		if !k.Start {
			return c.missed(gone)
		}
		d.Revision, d.Purged = gone.Revision, gone.Purged // a node that was down has yet to purge up to there
	}
	if g := c.global(); g.Jobs >= g.Quota() {
		return kernel.Exhausted(kernel.BoundJobs, "too many jobs: %d of %d (job %s): delete some, or raise maxJobs in the settings", g.Jobs, g.Quota(), job.Key)
	}
	if c.global().NewJobs == kernel.NewDisabled && k.Worker != kernel.NoWorker {
		d.Edits.Disabled = new(true) // to start it takes an edit
	}
	if given := k.Set.Given(); len(given) > 0 {
		d.Edits = k.Set
		if d.Bundle != "" {
			d.BundleFields = given
		}
	}
	p := d.Resolve(c.global())
	if err := checkPolicy(d, &p, c.others()); err != nil {
		return err
	}
	c.changed(d, nil)
	c.count(func(g *kernel.Global) { g.Jobs++ })
	_, is := held(k.Set.Given(), &kernel.Policy{}, &p)
	maps.Copy(is, fields{"version": d.Version, "app": d.App, "kind": d.Kind.String(), "registered": true})
	if d.Bundle != "" {
		is["bundle"] = d.Bundle
	}
	c.audit(jobTarget(d.Key), nil, is)
	return nil
}

// missed answers a worker that serves a deleted job. What remains of the job stays while there are such workers: once
// a day, one of them is noted.
func (c *change) missed(gone *kernel.Definition) error {
	if c.at.Sub(gone.Edited) > 24*time.Hour {
		d := *gone
		d.Edited = c.at
		c.tx.Put(&d)
		gone = &d
	}
	return c.same(gone)
}

// remains is what remains of a deleted job, or nil.
func (c *change) remains(key jobs.Key) *kernel.Definition {
	if d := c.row(key); d != nil && d.Gone() {
		return d
	}
	return nil
}

// delete removes a job and leaves a row that reports it as deleted.
func (c *change) delete(k kernel.Delete) error {
	if gone := c.remains(k.Key); gone != nil {
		return c.same(gone)
	}
	row, err := c.job(k.Key)
	if err != nil {
		return err
	}
	if k.IfRevision != 0 && k.IfRevision != row.Revision {
		return kernel.Refuse(jobs.Stale, "job %s has revision %d, the delete was made for %d: read it and try again", k.Key, row.Revision, k.IfRevision)
	}
	switch {
	case k.Bundle == "":
	case k.Bundle != row.Bundle:
		return kernel.Refuse(jobs.Conflict, "job %s is not in bundle %s, which may not delete it", k.Key, k.Bundle)
	case row.Registered:
		return kernel.Refuse(jobs.Conflict, "job %s is registered by a worker: bundle %s may not delete it", k.Key, k.Bundle)
	}
	d := *row
	d.Deleted, d.Edited = c.at, c.at
	d.Registered, d.Bundle, d.BundleFields = false, "", nil
	d.Schema, d.Code, d.Edits, d.Paused, d.Undecided = nil, kernel.Settings{}, kernel.Settings{}, nil, nil
	d.AfterPause = nil
	d.Ahead, d.Silences = nil, nil
	d.Revision++
	d.Change = c.number()
	c.tx.Put(&d)
	c.effect.Definitions = append(c.effect.Definitions, &d)
	c.count(func(g *kernel.Global) { g.Jobs = max(0, g.Jobs-1) })
	c.vacant(kernel.GateRef(d.Tenant, kernel.JobGate(d.UID)))
	c.tx.Delete(kernel.HistoryRef(d.Tenant, d.UID))
	c.index(d.Key, &row.Policy, nil)
	c.tx.Delete(kernel.GateRef(d.Tenant, kernel.RetryGate(d.UID)))
	was := fields{"version": row.Version, "app": row.App, "kind": row.Kind.String()}
	if row.Bundle != "" {
		was["bundle"] = row.Bundle
	}
	for _, name := range kernel.Fields() {
		if v := row.Policy.Field(name); v != nil && !private[name] && !reflect.ValueOf(v).IsZero() && v != "0s" {
			was[name] = v
		}
	}
	c.audit(jobTarget(k.Key), was, nil)
	return nil
}

// definitionID is the uid of a job that an envelope makes.
func definitionID(e *kernel.Envelope, key jobs.Key) jobs.ID {
	return kernel.DerivedID("definition", string(e.Tenant), string(key), string(e.ID[:]))
}

func (c *change) edit(k kernel.Edit) error {
	row, err := c.job(k.Key)
	if err != nil {
		return err
	}
	after, err := k.Apply(row)
	if err != nil {
		return err
	}
	d := *after
	// A repeated restart finds what the first did: its revision, and a schedule that began with it.
	done := k.IfRevision != 0 && row.Revision == k.IfRevision+1 && row.Anchor.Equal(row.Edited)
	same := d.Edits.Equal(&row.Edits) && (!k.Restart || done)
	if same && d.SameBundle(row) {
		return c.same(row)
	}
	if k.IfRevision != 0 && k.IfRevision != row.Revision {
		return kernel.Refuse(jobs.Stale, "job %s has revision %d, the edit was made for %d: read it and try again", k.Key, row.Revision, k.IfRevision)
	}
	bundleWas, bundleIs := fields{}, fields{}
	if d.Bundle != row.Bundle {
		bundleWas["bundle"], bundleIs["bundle"] = row.Bundle, d.Bundle
	}
	if same { // the effective settings stay, and so does the revision
		d.Change = c.number()
		c.tx.Put(&d)
		c.effect.Definitions = append(c.effect.Definitions, &d)
		if d.Bundle != row.Bundle {
			c.audit(jobTarget(k.Key), bundleWas, bundleIs)
		}
		return nil
	}
	p := d.Resolve(c.global())
	restarts := k.Restart && p.SameTimes(&row.Policy)
	if len(row.Undecided) >= kernel.MaxUndecided && (restarts || !p.SameTimes(&row.Policy)) {
		return kernel.Refuse(jobs.Conflict, "job %s: its schedule was changed %d times before a leader read it: try again when there is a leader", k.Key, kernel.MaxUndecided)
	}
	if err := checkPolicy(&d, &p, c.others()); err != nil {
		return err
	}
	if restarts {
		c.reschedule(&d, row)
	}
	if k.Restart {
		d.Restart(c.at)
	}
	c.changed(&d, row)
	c.remember(row)
	was, is := held(row.Edits.Changed(&d.Edits), &row.Policy, &d.Policy)
	maps.Copy(was, bundleWas)
	maps.Copy(is, bundleIs)
	if restarts {
		is["restarted"] = true
	}
	c.audit(jobTarget(k.Key), was, is)
	return nil
}

func (c *change) pause(k kernel.Pause) error {
	row, err := c.job(k.Key)
	if err != nil {
		return err
	}
	if p := row.Paused; p != nil && p.Reason == k.Reason && p.By == c.env.Actor && p.Until.Equal(k.Until) {
		return c.same(row)
	}
	if !k.Until.IsZero() && !k.Until.After(c.at) {
		return kernel.Invalid("pause of %s until %s: that time has passed", k.Key, stamp(k.Until))
	}
	d := *row
	d.Paused, d.AfterPause = &kernel.Held{Reason: k.Reason, By: c.env.Actor, At: c.at, Until: k.Until}, nil
	c.changed(&d, row)
	c.audit(jobTarget(k.Key), pausing(row.Paused), pausing(d.Paused))
	return nil
}

// pausing is a pause in an audit.
func pausing(p *kernel.Held) fields {
	if p == nil {
		return nil
	}
	f := fields{"reason": p.Reason}
	if p.Failed > 0 {
		f["failed"], f["run"] = p.Failed, p.Run.String()
	}
	if !p.Until.IsZero() {
		f["until"] = p.Until
	}
	return f
}

func (c *change) resume(k kernel.Resume) error {
	row, err := c.job(k.Key)
	if err != nil {
		return err
	}
	if row.Paused == nil {
		return c.same(row)
	}
	d := *row
	d.Paused, d.Failing, d.AfterPause = nil, 0, nil
	var decided fields
	if k.Discard || !k.From.IsZero() {
		d.AfterPause = &kernel.AfterPause{Discard: k.Discard, From: k.From, By: c.env.Actor}
		decided = fields{}
		if k.Discard {
			decided["discard"] = true
		}
		if !k.From.IsZero() {
			decided["from"] = k.From
		}
	}
	c.changed(&d, row)
	c.audit(jobTarget(k.Key), pausing(row.Paused), decided)
	return nil
}

func (c *change) refresh(k kernel.Refresh) error {
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

func (c *change) lead(k kernel.Lead) error {
	s := stateOf(c.tx)
	if s.Term == k.Term && s.Leader == k.Node {
		c.effect.Existing = true
		return nil
	}
	if s.Term >= k.Term {
		return kernel.Refuse(jobs.Stale, "term %d of node %s is current, %d is not above it", s.Term, s.Leader, k.Term)
	}
	s.Term, s.Leader = k.Term, k.Node
	c.tx.Put(&s)
	return nil
}
