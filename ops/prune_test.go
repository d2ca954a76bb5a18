package ops_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

func bundled(key jobs.Key) ops.Wanted {
	return ops.Wanted{Key: key, Kind: kernel.Recurring, App: "old", Set: kernel.Settings{Schedule: new("@every 1h"), Calendars: new([]string{"closed"})}}
}

// withBundle is a fixture whose bundle "old" has two jobs and a calendar, and edits a job that a worker has registered.
func withBundle(t *testing.T) *fixture {
	d := newFixture(t)
	calendars := []kernel.SetCalendar{{Name: "closed", Rules: []string{"SAT"}}}
	wanted := []ops.Wanted{bundled("old.one"), bundled("old.two"), {Key: "app.often", Set: kernel.Settings{Retries: new(4), Priority: new(2)}}}
	if _, _, err := d.DeclareAll(t.Context(), ann, calendars, wanted, ops.How{Bundle: "old"}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Declare(t.Context(), ann, []ops.Wanted{bundled("own")}, ops.How{}); err != nil { // not by a bundle
		t.Fatal(err)
	}
	return d
}

// planned is a plan in short.
func planned(calendars []ops.PlannedCalendar, plans []ops.Planned) string {
	var list []string
	for _, c := range calendars {
		list = append(list, fmt.Sprint(c.Does, " ", c.Name, c.Jobs))
	}
	for _, p := range plans {
		text := fmt.Sprint(p.Does, " ", p.Job.Key)
		if p.Runs > 0 {
			text += fmt.Sprint(" ", p.Runs)
		}
		for _, f := range p.Differ {
			text += fmt.Sprintf(" %s:%v->%v", f.Field, f.Old, f.New)
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}

// keys are the keys of all jobs.
func keys(t *testing.T, o *ops.Ops) string {
	t.Helper()
	list, _, err := o.Jobs(t.Context(), ann, ops.JobQuery{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, j := range list {
		all = append(all, string(j.Key))
	}
	return strings.Join(all, " ")
}

// A prune removes what it names if the bundle owns it, and nothing else.
func TestPrune(t *testing.T) {
	const all, less = "app.nightly app.often app.work old.one old.two own", "app.nightly app.often app.work old.two own"
	for name, c := range map[string]struct {
		before      func(*fixture)
		declared    []ops.Wanted
		prune       ops.Prune
		bundle      string // "" = old
		want, again string
		left        string
	}{
		"nothing": {left: all},
		"a job": {prune: ops.Prune{Jobs: []jobs.Key{"old.one"}},
			want: "delete old.one", again: "nothing old.one", left: less},
		"a job of no bundle": {prune: ops.Prune{Jobs: []jobs.Key{"own", "app.work", "none"}},
			want: "nothing own; nothing app.work; nothing none", left: all},
		"a job of another bundle": {prune: ops.Prune{Jobs: []jobs.Key{"old.one"}}, bundle: "new",
			want: "nothing old.one", left: all},
		"a calendar in use": {prune: ops.Prune{Calendars: []string{"closed"}, Jobs: []jobs.Key{"old.one"}},
			want: "keep closed[old.two own]; delete old.one", again: "keep closed[old.two own]; nothing old.one", left: less},
		"a calendar of no bundle": {prune: ops.Prune{Calendars: []string{"none"}}, want: "nothing none[]", left: all},
		"a job that a worker has": {prune: ops.Prune{Jobs: []jobs.Key{"app.often"}},
			want: "release app.often retries:4->0 priority:2->0 bundle:old->", again: "nothing app.often", left: all},
		"fields that the file lacks": {declared: []ops.Wanted{{Key: "app.often", Set: kernel.Settings{Retries: new(4)}}},
			want: "edit app.often priority:2->0", again: "nothing app.often", left: all},
		"fields that a user has set": {before: func(d *fixture) {
			d.apply(kernel.Edit{Key: "app.often", Set: kernel.Settings{Priority: new(7)}})
		}, prune: ops.Prune{Jobs: []jobs.Key{"app.often"}},
			want: "release app.often retries:4->0 bundle:old->", again: "nothing app.often", left: all},
		"a job registered afterwards": {before: func(d *fixture) {
			d.apply(kernel.Register{App: "old", Worker: "w1", Job: kernel.Declaration{Key: "old.one", Kind: kernel.Recurring}})
		}, prune: ops.Prune{Jobs: []jobs.Key{"old.one"}},
			want: "release old.one schedule:@every 1h-> calendars:[closed]-><nil> bundle:old->", again: "nothing old.one", left: all},
		"a job that another bundle took over": {before: func(d *fixture) {
			if _, err := d.Declare(d.t.Context(), ann, []ops.Wanted{bundled("old.one")}, ops.How{Bundle: "new", TakeOver: true}); err != nil {
				d.t.Fatal(err)
			}
		}, prune: ops.Prune{Jobs: []jobs.Key{"old.one"}}, want: "nothing old.one", left: all},
		"a job that a user created again": {before: func(d *fixture) {
			d.apply(kernel.Delete{Key: "old.one"})
			d.apply(kernel.Register{App: "old", Worker: kernel.NoWorker, Start: true, Job: kernel.Declaration{Key: "old.one", Kind: kernel.Recurring}})
		}, prune: ops.Prune{Jobs: []jobs.Key{"old.one"}}, want: "nothing old.one", left: all},
		"live runs that finish": {before: func(d *fixture) {
			d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "old.one"})
		}, prune: ops.Prune{Jobs: []jobs.Key{"old.one"}, Live: ops.FinishLiveRuns},
			want: "delete old.one 1", again: "nothing old.one", left: less},
		"the last job with a calendar": {before: func(d *fixture) { d.apply(kernel.Delete{Key: "own"}) },
			declared: []ops.Wanted{{Key: "old.two", Set: kernel.Settings{Schedule: new("@every 1h")}}},
			prune:    ops.Prune{Jobs: []jobs.Key{"old.one"}, Calendars: []string{"closed"}},
			want:     "delete closed[]; edit old.two calendars:[closed]-><nil>; delete old.one",
			again:    "nothing closed[]; nothing old.two; nothing old.one", left: "app.nightly app.often app.work old.two"},
	} {
		t.Run(name, func(t *testing.T) {
			d := withBundle(t)
			if c.before != nil {
				c.before(d)
			}
			if c.again == "" {
				c.again = c.want
			}
			how := ops.How{Bundle: "old", Prune: &c.prune}
			if c.bundle != "" {
				how.Bundle = c.bundle
			}
			before := keys(t, d.Ops)
			for _, step := range []struct {
				dry  bool
				want string
			}{{true, c.want}, {false, c.want}, {false, c.again}} {
				how.Dry = step.dry
				calendars, plans, err := d.DeclareAll(t.Context(), bob, nil, c.declared, how)
				if got := planned(calendars, plans); err != nil || got != step.want {
					t.Errorf("dry %v: %s (%v)\nwant %s", step.dry, got, err, step.want)
				}
				if now := keys(t, d.Ops); step.dry && now != before {
					t.Errorf("a preview leaves %s of %s", now, before)
				}
			}
			if now := keys(t, d.Ops); now != c.left {
				t.Errorf("left: %s, want %s", now, c.left)
			}
		})
	}
}

// A refused prune changes nothing, and neither does the declaration with it.
func TestPruneRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		how  ops.How
		want string
		code jobs.Code
	}{
		"no bundle":        {ops.How{Prune: &ops.Prune{Jobs: []jobs.Key{"old.one"}}}, "needs a bundle", jobs.BadInput},
		"a bad bundle":     {ops.How{Bundle: "no spaces", Prune: &ops.Prune{}}, "bundle", jobs.BadInput},
		"a bad fate":       {ops.How{Bundle: "old", Prune: &ops.Prune{Live: "maybe"}}, "invalid runs", jobs.BadInput},
		"live runs":        {ops.How{Bundle: "old", Prune: &ops.Prune{Jobs: []jobs.Key{"old.one", "old.two"}}}, "1 live runs (of old.two)", jobs.Conflict},
		"a declared job":   {ops.How{Bundle: "old", Prune: &ops.Prune{Jobs: []jobs.Key{"app.often"}}}, "both declared and pruned", jobs.BadInput},
		"a job twice":      {ops.How{Bundle: "old", Prune: &ops.Prune{Jobs: []jobs.Key{"old.one", "old.one"}}}, "given twice", jobs.BadInput},
		"a calendar twice": {ops.How{Bundle: "old", Prune: &ops.Prune{Calendars: []string{"closed", "closed"}}}, "given twice", jobs.BadInput},
		"another's job":    {ops.How{Bundle: "new", Prune: &ops.Prune{}}, "belongs to bundle old", jobs.Conflict},
		"too many":         {ops.How{Bundle: "old", Prune: &ops.Prune{Jobs: make([]jobs.Key, ops.MaxWanted+1)}}, "too many", jobs.BadInput},
	} {
		t.Run(name, func(t *testing.T) {
			d := withBundle(t)
			d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "old.two"})
			before := keys(t, d.Ops)
			_, err := d.Declare(t.Context(), ann, []ops.Wanted{{Key: "app.often", Set: kernel.Settings{Retries: new(9)}}}, c.how)
			if jobs.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v (%s), want %s: ...%s...", err, jobs.CodeOf(err), c.code, c.want)
			}
			if job, err := d.Job(t.Context(), ann, "app.often", 0); err != nil || job.Policy.Retries != 4 || keys(t, d.Ops) != before {
				t.Errorf("something was done: retries %d, %s (%v)", job.Policy.Retries, keys(t, d.Ops), err)
			}
		})
	}
}

// racing is a store in which a worker registers a job just before it is deleted.
type racing struct {
	metastore.Store
	now time.Time
}

func (s *racing) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	if k, ok := batch[0].Command.(kernel.Delete); ok {
		s.Store.Apply(ctx, []kernel.Envelope{{ID: jobs.NewID(s.now), Tenant: jobs.DefaultTenant, Actor: "worker:w1",
			Command: kernel.Register{App: "old", Worker: "w1", Job: kernel.Declaration{Key: k.Key, Kind: kernel.Recurring}}}})
	}
	return s.Store.Apply(ctx, batch)
}

// A job that a worker registers between the plan and the deletion stays.
func TestPruneRacesWithAWorker(t *testing.T) {
	d := withBundle(t)
	o := ops.New(ops.Config{Store: &racing{d.store, d.now}, Logs: d.logs, Now: func() time.Time { return d.now }})
	_, err := o.Declare(t.Context(), ann, nil, ops.How{Bundle: "old", Prune: &ops.Prune{Jobs: []jobs.Key{"old.one"}}})
	if jobs.CodeOf(err) != jobs.Conflict || !strings.Contains(err.Error(), "registered by a worker") || !strings.Contains(keys(t, d.Ops), "old.one") {
		t.Errorf("%v, left %s", err, keys(t, d.Ops))
	}
	_, plans, err := o.DeclareAll(t.Context(), ann, nil, nil, ops.How{Bundle: "old", Prune: &ops.Prune{Jobs: []jobs.Key{"old.one"}}})
	if err != nil || plans[0].Does != ops.DoesRelease {
		t.Errorf("the next time: %+v, %v", plans, err)
	}
}

// The audit names who pruned, and why.
func TestPruneIsAudited(t *testing.T) {
	d := withBundle(t)
	d.apply(kernel.Delete{Key: "own"})
	who := bob
	who.Reason = "release 3"
	how := ops.How{Bundle: "old", Prune: &ops.Prune{Jobs: []jobs.Key{"old.one", "old.two", "app.often"}, Calendars: []string{"closed"}}}
	if _, err := d.Declare(t.Context(), who, nil, how); err != nil {
		t.Fatal(err)
	}
	list, err := d.store.Audits(t.Context(), metastore.AuditQuery{Tenant: jobs.DefaultTenant, Actor: bob.Actor})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range list {
		if a.Reason != who.Reason || !strings.Contains(string(a.Before), `"bundle":"old"`) {
			t.Errorf("%s %s: reason %q, before %s", a.Verb, a.Target, a.Reason, a.Before)
		}
		got = append(got, a.Verb+" "+a.Target)
	}
	slices.Sort(got)
	if want := "delete job old.one; delete job old.two; dropcalendar calendar closed; edit job app.often"; strings.Join(got, "; ") != want {
		t.Errorf("%q, want %s", got, want)
	}
}
