package metastore

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Jobs that follow several others: "run X after A and B have ended". The commit that ends the last run that an occasion
// lacks creates the follower's run, under an ID derived from the occasion, and deletes the occasion's row. An occasion
// that is not complete in time ends with an entry of the follower's ledger.

// followed notes a run that has just become final, if jobs follow its own, or its batch counts it.
func (c *change) followed(run *kernel.Run) {
	if _, ok := c.tx.Get(kernel.FollowersRef(run.Tenant, run.Key)).(*kernel.Followers); ok || !run.Batch.IsZero() {
		c.final = append(c.final, run)
	}
}

// occasions counts a run that has become final for the occasions of the jobs that follow its own.
func (c *change) occasions(run *kernel.Run) error {
	row, _ := c.tx.Get(kernel.FollowersRef(run.Tenant, run.Key)).(*kernel.Followers)
	if row == nil {
		return nil
	}
	for _, key := range row.Jobs {
		if d := c.definition(key); d != nil {
			if err := c.occasion(d, run); err != nil {
				return err
			}
		}
	}
	return nil
}

// occasion counts a final run for an occasion of one follower.
func (c *change) occasion(d *kernel.Definition, run *kernel.Run) error {
	name := run.OccasionName()
	due, err := time.Parse(time.RFC3339Nano, name)
	if err != nil {
		due = time.Time{}
	}
	slot, row := c.openOccasion(d, name, due)
	o := kernel.Occasion{Tenant: d.Tenant, Job: d.UID, Key: d.Key, Name: name, Slot: slot, Due: due, Opened: c.at, Until: c.at.Add(d.Policy.AfterWithin)}
	switch {
	case row != nil:
		o = *row
	case !run.OpensOccasion():
		return nil
	}
	if !o.Open() || !counted(&o, run, &d.Policy) {
		return nil
	}
	if len(o.Missing(&d.Policy)) == 0 {
		return c.complete(&o, d, run)
	}
	if row == nil {
		c.keepOccasion(&o)
	} else {
		c.tx.Put(&o)
	}
	return nil
}

// openOccasion returns the row of an occasion, or nil, and what identifies it. With a span, it is the nearest one
// whose first due time is less than a span away: there is at most one in each part of time of that length.
func (c *change) openOccasion(d *kernel.Definition, name string, due time.Time) (slot string, found *kernel.Occasion) {
	get := func(slot string) *kernel.Occasion {
		row, _ := c.tx.Get(kernel.OccasionRef(d.Tenant, d.UID, slot)).(*kernel.Occasion)
		return row
	}
	span := d.Policy.AfterSpan
	if span == 0 || due.IsZero() {
		return name, get(name)
	}
	part := due.UnixNano() / int64(span)
	for _, n := range []int64{part, part - 1, part + 1} {
		row := get("span " + strconv.FormatInt(n, 10))
		if row == nil || row.Due.Sub(due).Abs() >= span {
			continue
		}
		if found == nil || row.Due.Sub(due).Abs() < found.Due.Sub(due).Abs() {
			found = row
		}
	}
	if found != nil {
		return found.Slot, found
	}
	return "span " + strconv.FormatInt(part, 10), nil
}

// counted adds the end of a run to an occasion, and reports whether anything changed. An end that the follower wants
// stays; any other is replaced by a later one.
func counted(o *kernel.Occasion, run *kernel.Run, p *kernel.Policy) bool {
	next := kernel.Ended{Job: run.Key, Run: run.ID, State: run.State, Cause: run.Cause}
	i := slices.IndexFunc(o.Ended, func(e kernel.Ended) bool { return e.Job == run.Key })
	if at := run.Place; at != nil && at.Total > 0 {
		if run.Origin == kernel.FromRetry { // one part of many: it says nothing about the others
			return false
		}
		next.Run, next.Parts, next.Total = at.Group, 1, at.Total
		if i >= 0 && o.Ended[i].Run == at.Group {
			was := o.Ended[i]
			if next.Parts = was.Parts + 1; worse(was.State, next.State) {
				next.State, next.Cause = was.State, was.Cause
			}
		}
	}
	if i < 0 {
		o.Ended = append(slices.Clip(o.Ended), next)
		slices.SortFunc(o.Ended, func(a, b kernel.Ended) int { return strings.Compare(string(a.Job), string(b.Job)) })
		return true
	}
	if was := &o.Ended[i]; was.Run != next.Run && was.Final() && wanted(p, was) {
		return false
	}
	o.Ended = slices.Clone(o.Ended)
	o.Ended[i] = next
	return true
}

// worse reports whether a broadcast with parts that came to both ends came to the first one, whatever their order.
func worse(a, b jobs.State) bool {
	order := []jobs.State{jobs.Succeeded, jobs.Skipped, jobs.Cancelled, jobs.Terminated}
	return slices.Index(order, a) > slices.Index(order, b)
}

// wanted reports whether a policy wants this end.
func wanted(p *kernel.Policy, e *kernel.Ended) bool {
	for _, text := range p.After {
		if key, when := kernel.AfterOf(text); key == e.Job {
			return when.Wants(e.State)
		}
	}
	return false
}

// complete begins the run of an occasion. run ended last.
func (c *change) complete(o *kernel.Occasion, d *kernel.Definition, run *kernel.Run) error {
	id := o.FollowerID()
	if d.Policy.AfterSpan > 0 && !o.Due.IsZero() { // later runs of the same span must not begin another
		o.Done = id
		c.keepOccasion(o)
	} else {
		c.dropOccasion(o)
	}
	return c.child(run, d, id, kernel.WithParents(d.Policy.Args, o), o.Name)
}

// keepOccasion stores an occasion until its time is over.
func (c *change) keepOccasion(o *kernel.Occasion) {
	c.tx.Put(&kernel.UniqueKey{Tenant: o.Tenant, Name: o.TimerName(), Until: o.Until})
	c.tx.Put(o)
}

func (c *change) dropOccasion(o *kernel.Occasion) {
	c.tx.Delete(o.Ref())
	c.tx.Delete(kernel.UniqueRef(o.Tenant, o.TimerName()))
}

// expireOccasion ends an occasion whose time is over. The follower's ledger names what was missing.
func (c *change) expireOccasion(ref kernel.Ref) {
	o, _ := c.tx.Get(ref).(*kernel.Occasion)
	if o == nil {
		return
	}
	c.dropOccasion(o)
	d := c.definition(o.Key)
	if d == nil || d.UID != o.Job || !o.Open() {
		return
	}
	over := *o
	over.Over, over.Until = true, c.at.Add(d.Policy.AfterWithin) // a late end must not begin it again
	c.keepOccasion(&over)
	missing, why := o.Missing(&d.Policy), kernel.MissedParents
	if len(missing) == 0 { // an edit begins no run
		why = kernel.MissedEdited
	}
	m := &kernel.Missed{Tenant: o.Tenant, Job: o.Job, Key: o.Key, From: o.Due, Count: 1, Reason: why, Parents: missing}
	if m.From.IsZero() {
		m.From = c.freeTime(m, o)
	}
	m.To = m.From
	c.tx.Put(m)
	c.effect.Missed = append(c.effect.Missed, m)
}

// freeTime returns a time for the entry of an occasion of a run. Many of them may have been opened at once, and an entry
// is found by its time: so their names scatter them over the next millisecond.
func (c *change) freeTime(m *kernel.Missed, o *kernel.Occasion) time.Time {
	at := *m
	at.From = o.Opened
	taken := func() bool { return c.tx.Get(at.Ref()) != nil }
	if taken() {
		id := o.FollowerID()
		at.From = o.Opened.Add(time.Duration(binary.BigEndian.Uint32(id[:])) % time.Millisecond)
	}
	for taken() {
		at.From = at.From.Add(1)
	}
	return at.From
}

// index updates the lists of the jobs that a job follows.
func (c *change) index(key jobs.Key, before, after *kernel.Policy) {
	var was, is []jobs.Key
	if before != nil {
		was = before.AfterKeys()
	}
	if after != nil {
		is = after.AfterKeys()
	}
	for _, of := range was {
		if !slices.Contains(is, of) {
			c.follower(of, func(list []jobs.Key) []jobs.Key {
				return slices.DeleteFunc(list, func(k jobs.Key) bool { return k == key })
			})
		}
	}
	for _, of := range is {
		c.follower(of, func(list []jobs.Key) []jobs.Key {
			if !slices.Contains(list, key) {
				list = append(list, key)
				slices.Sort(list)
			}
			return list
		})
	}
}

func (c *change) follower(of jobs.Key, edit func([]jobs.Key) []jobs.Key) {
	next := kernel.Followers{Tenant: c.env.Tenant, Key: of, Jobs: edit(slices.Clone(c.followersOf(of)))}
	if len(next.Jobs) == 0 {
		c.tx.Delete(next.Ref())
		return
	}
	c.tx.Put(&next)
}

// followersOf returns the jobs that name a job in their setting after.
func (c *change) followersOf(key jobs.Key) []jobs.Key {
	if row, ok := c.tx.Get(kernel.FollowersRef(c.env.Tenant, key)).(*kernel.Followers); ok {
		return row.Jobs
	}
	return nil
}

// maxWalk limits the jobs that a search for cycles visits.
const maxWalk = 10_000

// others is what checkPolicy reads of the other jobs of a tenant.
type others interface {
	policyOf(jobs.Key) *kernel.Policy // nil = there is no such job
	followersOf(jobs.Key) []jobs.Key
}

func (c *change) policyOf(key jobs.Key) *kernel.Policy {
	if d := c.definition(key); d != nil {
		return &d.Policy
	}
	return nil
}

// others returns what checkPolicy reads: of a copy, because what is behind an interface is on the heap, and each command
// has a change.
func (c *change) others() others {
	all := *c
	return &all
}

// checkWork refuses a job that defines in more than one way what it does.
func checkWork(key jobs.Key, p *kernel.Policy) error {
	switch http, exec := !kernel.NoWork(p.HTTP), !kernel.NoWork(p.Exec); {
	case http && exec:
		return kernel.Invalid("job %s has both http and exec: set one of them", key)
	case p.Handler != "" && (http || exec):
		return kernel.Invalid("job %s has both %s and the handler %s: set one of them", key, p.Work(), p.Handler)
	}
	return nil
}

// checkParents refuses a parent that would make a job its own ancestor. One that does not exist may be made later.
func checkParents(key jobs.Key, p *kernel.Policy, all others) error {
	path := []string{string(key)}
	for p != nil && p.Parent != "" && len(path) < maxWalk {
		path = append(path, p.Parent)
		if p.Parent == string(key) {
			return kernel.Refuse(jobs.Conflict, "job %s would belong to itself: %s", key, strings.Join(path, " > "))
		}
		p = all.policyOf(jobs.Key(p.Parent))
	}
	return nil
}

// checkPolicy refuses a policy that a job may not have, new or edited: one whose parts contradict each other, or with
// which the job would follow itself by its setting after, directly or through others, or be its own ancestor.
func checkPolicy(d *kernel.Definition, p *kernel.Policy, all others) error {
	if !p.Start.IsZero() && !p.End.IsZero() && p.Start.After(p.End) {
		return kernel.Invalid("job %s: start %s would be after end %s", d.Key, stamp(p.Start), stamp(p.End))
	}
	if d.Kind == kernel.Triggered && p.Schedule != "" {
		return kernel.Refuse(jobs.Conflict, "job %s is triggered: it has no schedule", d.Key)
	}
	if err := checkWork(d.Key, p); err != nil {
		return err
	}
	if err := checkParents(d.Key, p, all); err != nil {
		return err
	}
	after := p.AfterKeys()
	if len(after) > 0 && d.Kind != kernel.Triggered {
		return kernel.Invalid("job %s is recurring: only a triggered job may follow others (after)", d.Key)
	}
	for _, key := range after {
		if list := all.followersOf(key); len(list) >= kernel.FollowersOfJob.Most && !slices.Contains(list, d.Key) {
			return kernel.Exhausted(kernel.BoundFollowers, "too many jobs follow %s: %d are allowed (job %s)", key, kernel.FollowersOfJob.Most, d.Key)
		}
	}
	if len(after) == 0 && len(p.OnSuccess)+len(p.OnFailure) == 0 {
		return nil
	}
	type step struct {
		key jobs.Key
		all bool // an edge of the path is a setting after: paths of onSuccess and onFailure alone end by their depth
	}
	from := map[step]step{}
	start := step{key: d.Key}
	for todo := []step{start}; len(todo) > 0 && len(from) < maxWalk; todo = todo[1:] {
		at := todo[0]
		visit := func(key jobs.Key, all bool) bool {
			next := step{key, at.all || all}
			if _, seen := from[next]; !seen {
				from[next] = at
				todo = append(todo, next)
			}
			return next == step{d.Key, true}
		}
		found := slices.Contains(after, at.key) && visit(d.Key, true)
		for _, key := range all.followersOf(at.key) {
			found = found || key != d.Key && visit(key, true)
		}
		plain := p
		if at.key != d.Key {
			plain = &kernel.Policy{}
			if other := all.policyOf(at.key); other != nil {
				plain = other
			}
		}
		for _, key := range slices.Concat(plain.OnSuccess, plain.OnFailure) {
			found = found || visit(jobs.Key(key), false)
		}
		if found {
			path := []string{string(d.Key)}
			for at != start {
				path = append(path, string(at.key))
				at = from[at]
			}
			path = append(path, string(d.Key))
			slices.Reverse(path)
			return kernel.Refuse(jobs.Conflict, "job %s would follow itself: %s", d.Key, strings.Join(path, " -> "))
		}
	}
	return nil
}
