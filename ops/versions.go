package ops

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Version is the settings of a job during a period, with today's defaults for fields that were not set.
type Version struct {
	Revision uint64 // the job's last revision with these settings
	Policy   kernel.Policy
	Edited   []string // fields that users had edited
	Edits    kernel.Settings
	From     time.Time // when it took effect; zero if that is too old to be known
	Until    time.Time // when it was replaced; zero for the current one
	By       string    // who made it; "" if not known
	Reason   string
	Changed  []Difference // what it changed; none for the oldest that is known
}

// Difference is a field before and after a change, for users; nil where it was not set.
type Difference struct {
	Field    string
	Old, New any
}

// Owner is the source of a field's value.
type Owner struct {
	Kind   string
	By     string // who set it; "" if not known
	At     time.Time
	Reason string
}

// The kinds of owner.
const (
	OwnerBuiltIn = "built-in"
	OwnerFile    = "file"   // the configuration file of a server
	OwnerTenant  = "tenant" // the settings of all jobs
	OwnerApp     = "app"    // the settings of an app's jobs
	OwnerCode    = "code"
	OwnerEdit    = "edit"
)

// past is a job with its earlier settings, oldest first; the last of said is the current ones.
type past struct {
	job    *kernel.Definition
	global *kernel.Global
	said   []kernel.Version
}

func (o *Ops) past(ctx context.Context, who Who, key jobs.Key) (past, error) {
	d, err := o.definition(ctx, who, key)
	if err != nil {
		return past{}, err
	}
	global, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return past{}, err
	}
	h, err := o.store.History(ctx, who.tenant(), d.UID)
	if err != nil {
		return past{}, err
	}
	now := kernel.Version{Revision: d.Revision, App: d.App, Number: d.Version, Code: d.Code, Edits: d.Edits}
	return past{job: d, global: global, said: append(slices.Clip(h.Versions), now)}, nil
}

// as returns the job with its i-th settings.
func (p *past) as(i int) *kernel.Definition {
	was := *p.job
	was.App, was.Version, was.Code, was.Edits = p.said[i].App, p.said[i].Number, p.said[i].Code, p.said[i].Edits
	was.Policy = was.Resolve(p.global)
	return &was
}

// at returns the index of the settings at a revision, or -1.
func (p *past) at(revision uint64) int {
	if revision == 0 || revision > p.job.Revision {
		return -1
	}
	return slices.IndexFunc(p.said, func(v kernel.Version) bool { return revision <= v.Revision })
}

func (p *past) version(i int) Version {
	v := Version{Revision: p.said[i].Revision, Policy: p.as(i).Policy, Edited: p.said[i].Edits.Given(), Edits: p.said[i].Edits, Until: p.said[i].Until}
	switch {
	case i > 0:
		made := p.said[i-1]
		v.From, v.By, v.Reason = made.Until, made.By, made.Reason
		v.Changed = differences(&p.as(i-1).Policy, &v.Policy)
	case len(p.said) == 1 || p.said[0].Revision == 1:
		v.From = p.job.Created
	}
	return v
}

// Differences returns the settings that differ between two forms of a job.
func Differences(before, after *kernel.Definition) []Difference {
	return differences(&before.Policy, &after.Policy)
}

// differences returns the fields that differ.
func differences(before, after *kernel.Policy) []Difference {
	var list []Difference
	for _, name := range kernel.Fields() {
		if was, is := before.Field(name), after.Field(name); !reflect.DeepEqual(was, is) {
			list = append(list, Difference{name, was, is})
		}
	}
	return list
}

// Versions lists the versions of a job, newest first: the current one, and the newest changes before it.
func (o *Ops) Versions(ctx context.Context, who Who, key jobs.Key) ([]Version, error) {
	p, err := o.past(ctx, who, key)
	if err != nil {
		return nil, err
	}
	list := make([]Version, 0, len(p.said))
	for i := range slices.Backward(p.said) {
		list = append(list, p.version(i))
	}
	return list, nil
}

// Compared is the difference between two versions of a job.
type Compared struct {
	Old, New             Version
	Differ               []Difference
	NextBefore, NextThen []time.Time // next due times of the first and of the second
}

// Compare returns the difference between two revisions of a job, with the next due times of each; 0 = the current one.
func (o *Ops) Compare(ctx context.Context, who Who, key jobs.Key, from, to uint64, next int) (Compared, error) {
	if err := checkNext(next); err != nil {
		return Compared{}, err
	}
	p, err := o.past(ctx, who, key)
	if err != nil {
		return Compared{}, err
	}
	var places [2]int
	for i, revision := range []uint64{from, to} {
		if places[i], err = p.find(revision); err != nil {
			return Compared{}, err
		}
	}
	before, after := p.as(places[0]), p.as(places[1])
	return Compared{Old: p.version(places[0]), New: p.version(places[1]), Differ: differences(&before.Policy, &after.Policy),
		NextBefore: o.job(before, p.global, next).Next, NextThen: o.job(after, p.global, next).Next}, nil
}

func (p *past) find(revision uint64) (int, error) {
	if revision == 0 {
		return len(p.said) - 1, nil
	}
	if i := p.at(revision); i >= 0 {
		return i, nil
	}
	return 0, kernel.Refuse(jobs.NotFound, "job %s has revision %d, and no revision %d", p.job.Key, p.job.Revision, revision)
}

// RolledBack returns the edit that restores the edits of an earlier revision. Code is not rolled back: a field that was
// not edited follows the current code. An edit that the job refuses is an error here.
func (o *Ops) RolledBack(ctx context.Context, who Who, key jobs.Key, to uint64) (kernel.Edit, error) {
	p, err := o.past(ctx, who, key)
	if err != nil {
		return kernel.Edit{}, err
	}
	i := p.at(to)
	switch {
	case i < 0:
		return kernel.Edit{}, kernel.Refuse(jobs.NotFound, "job %s has revision %d, and no revision %d to go back to", key, p.job.Revision, to)
	case i == 0 && p.said[0].Revision > kernel.MaxVersions && to < p.said[0].Revision:
		return kernel.Edit{}, kernel.Refuse(jobs.NotFound, "job %s: revision %d is too old: the oldest one kept is %d", key, to, p.said[0].Revision)
	}
	then := p.said[i].Edits
	e := kernel.Edit{Key: key, Set: then}
	for _, name := range p.job.Edits.Given() {
		if !slices.Contains(then.Given(), name) {
			e.Clear = append(e.Clear, name)
		}
	}
	_, err = e.Apply(p.job)
	return e, err
}

// Rollback restores the edits of an earlier revision (see RolledBack). ifRevision is the revision that the job must
// have now, or 0.
func (o *Ops) Rollback(ctx context.Context, who Who, key jobs.Key, to, ifRevision uint64) (Job, error) {
	e, err := o.RolledBack(ctx, who, key, to)
	if err != nil {
		return Job{}, err
	}
	e.IfRevision = ifRevision
	if who.Reason == "" {
		who.Reason = fmt.Sprintf("back to revision %d", to)
	}
	return o.Edit(ctx, who, e)
}

// Owners returns the owner of each field that has one.
func (o *Ops) Owners(ctx context.Context, who Who, key jobs.Key) (map[string]Owner, error) {
	p, err := o.past(ctx, who, key)
	if err != nil {
		return nil, err
	}
	owners := DefaultOwners(p.global, p.job.App)
	for _, name := range p.job.Code.Given() {
		owners[name] = Owner{Kind: OwnerCode}
	}
	for _, name := range p.job.Edits.Given() {
		owners[name] = p.editor(name)
	}
	return owners, nil
}

// editor returns who last set a field.
func (p *past) editor(name string) Owner {
	now := p.job.Edits.Value(name)
	for i := len(p.said) - 2; i >= 0; i-- {
		if was := p.said[i].Edits.Value(name); !reflect.DeepEqual(was, now) {
			return Owner{Kind: OwnerEdit, By: p.said[i].By, At: p.said[i].Until, Reason: p.said[i].Reason}
		}
	}
	return Owner{Kind: OwnerEdit}
}

// DefaultOwners returns the owner of each default of an app's jobs that is not built in.
func DefaultOwners(g *kernel.Global, app string) map[string]Owner {
	owners, own := map[string]Owner{}, g.OfApp(app)
	for _, name := range g.File.Defaults.Given() {
		owners[name] = Owner{Kind: OwnerFile, By: g.File.By, At: g.File.At}
	}
	for _, name := range g.Defaults.Given() {
		owners[name] = ownerOf(g, "", kernel.InDefaults+name, false)
	}
	for _, name := range own.Given() {
		owners[name] = ownerOf(g, app, kernel.InDefaults+name, false)
	}
	return owners
}
