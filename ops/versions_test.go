package ops_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

var bob = ops.Who{Actor: "person:bob", Reason: "too often", Role: ops.Admin}

// edited makes a history: ann sets retries, bob the schedule and retries, ann takes the retries back.
func edited(t *testing.T) *fixture {
	d := newFixture(t)
	for _, e := range []struct {
		who  ops.Who
		edit kernel.Edit
	}{
		{ann, kernel.Edit{Key: "app.often", Set: kernel.Settings{Retries: new(3)}}},
		{bob, kernel.Edit{Key: "app.often", Set: kernel.Settings{Retries: new(5), Schedule: new("@every 1h")}}},
		{ann, kernel.Edit{Key: "app.often", Clear: []string{"retries"}}},
	} {
		d.now = d.now.Add(time.Hour)
		if _, err := d.Edit(t.Context(), e.who, e.edit); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func TestVersions(t *testing.T) {
	d := edited(t)
	list, err := d.Versions(t.Context(), ann, "app.often")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range list {
		line := fmt.Sprintf("%d by %s (%s) from %s:", v.Revision, v.By, v.Reason, v.From.Format("15:04"))
		for _, c := range v.Changed {
			line += fmt.Sprintf(" %s %v -> %v", c.Field, c.Old, c.New)
		}
		got = append(got, line)
	}
	want := `4 by person:ann (because) from 15:00: retries 5 -> 0
3 by person:bob (too often) from 14:00: schedule @every 1m0s -> @every 1h retries 3 -> 5
2 by person:ann (because) from 13:00: retries 0 -> 3
1 by  () from 12:00:`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("versions are\n%s\nwant\n%s", s, want)
	}
	for i, v := range list {
		if i == 0 != v.Until.IsZero() || i > 0 && !v.Until.Equal(list[i-1].From) {
			t.Errorf("revision %d holds until %v", v.Revision, v.Until)
		}
	}
}

func TestCompare(t *testing.T) {
	d := edited(t)
	c, err := d.Compare(t.Context(), ann, "app.often", 2, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	if s := fmt.Sprint(c.Differ); s != "[{schedule @every 1m0s @every 1h} {retries 3 0}]" {
		t.Errorf("2 and now differ in %s", s)
	}
	if len(c.NextBefore) != 2 || c.NextBefore[1].Sub(c.NextBefore[0]) != time.Minute || len(c.NextThen) != 2 || c.NextThen[1].Sub(c.NextThen[0]) != time.Hour {
		t.Errorf("due %v before and %v now", c.NextBefore, c.NextThen)
	}
	if _, err := d.Compare(t.Context(), ann, "app.often", 9, 0, 2); !errors.Is(err, jobs.NotFound) {
		t.Errorf("a revision to come: %v", err)
	}
}

func TestRollback(t *testing.T) {
	d := edited(t)
	job, err := d.Rollback(t.Context(), bob, "app.often", 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	if p := job.Policy; p.Retries != 3 || p.Schedule != "@every 1m0s" || fmt.Sprint(job.Edits.Given()) != "[retries]" {
		t.Errorf("after the way back: retries %d, schedule %q, edited %v", p.Retries, p.Schedule, job.Edits.Given())
	}
	if job, err = d.Rollback(t.Context(), bob, "app.often", 1, 0); err != nil || len(job.Edits.Given()) > 0 {
		t.Errorf("back to the code: edited %v, %v", job.Edits.Given(), err)
	}
	if _, err := d.Rollback(t.Context(), bob, "app.often", 3, 4); !errors.Is(err, jobs.Stale) {
		t.Errorf("for a revision that is not current: %v", err)
	}
	for _, to := range []uint64{0, 99} {
		if _, err := d.Rollback(t.Context(), bob, "app.often", to, 0); !errors.Is(err, jobs.NotFound) {
			t.Errorf("back to %d: %v", to, err)
		}
	}
	list, err := d.Versions(t.Context(), ann, "app.often")
	if err != nil || len(list) != 6 || list[1].Reason != "too often" || list[0].By != "person:bob" {
		t.Errorf("a way back is a version of its own: %+v, %v", list, err)
	}
}

func TestOwners(t *testing.T) {
	d := edited(t)
	file := kernel.File{Defaults: kernel.Settings{Timeout: new(time.Hour), Zone: new("Europe/Berlin"), Misfire: new(jobs.MisfireSkip)}}
	for _, k := range []kernel.Configure{{File: &file}, {Defaults: &kernel.Settings{Timeout: new(time.Minute)}}, {App: "app", Defaults: &kernel.Settings{Misfire: new(jobs.MisfireAll)}}} {
		if _, err := d.Configure(t.Context(), ann, k, ""); err != nil {
			t.Fatal(err)
		}
	}
	owners, err := d.Owners(t.Context(), ann, "app.often")
	if err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]ops.Owner{
		"zone":    {Kind: ops.OwnerFile, By: ann.Actor, At: d.Ops.Now()},
		"timeout": {Kind: ops.OwnerTenant, By: ann.Actor, At: d.Ops.Now()},
		"misfire": {Kind: ops.OwnerApp, By: ann.Actor, At: d.Ops.Now()}, "description": {Kind: ops.OwnerCode}, "retries": {},
		"schedule": {Kind: ops.OwnerEdit, By: "person:bob", At: time.Date(2026, 11, 21, 14, 0, 0, 0, time.UTC), Reason: "too often"},
	} {
		if owners[field] != want {
			t.Errorf("%s is owned by %+v, want %+v", field, owners[field], want)
		}
	}
}

func TestDeclare(t *testing.T) {
	d := newFixture(t)
	wanted := []ops.Wanted{
		{Key: "app.often", Set: kernel.Settings{Schedule: new("@every 5m"), Retries: new(2)}},
		{Key: "app.new", Kind: kernel.Recurring, App: "app", Set: kernel.Settings{Schedule: new("0 0 4 * * *"), Zone: new("Europe/Berlin")}},
		{Key: "app.work", Set: kernel.Settings{}},
	}
	shown := func(plans []ops.Planned) (s string) {
		for _, p := range plans {
			s += fmt.Sprintf("%s %s", p.Does, p.Job.Key)
			for _, f := range p.Differ {
				s += fmt.Sprintf(" %s", f.Field)
			}
			s += fmt.Sprintf(" %d->%d\n", len(p.NextBefore), len(p.NextThen))
		}
		return s
	}
	want := "edit app.often schedule retries 3->3\ncreate app.new schedule zone 0->3\nnothing app.work 0->0\n"
	for _, how := range []ops.How{{Dry: true}, {Dry: true}, {}} {
		plans, err := d.Declare(t.Context(), ann, wanted, how)
		if err != nil || shown(plans) != want {
			t.Fatalf("%+v:\n%s%v\nwant\n%s", how, shown(plans), err, want)
		}
	}
	plans, err := d.Declare(t.Context(), ann, wanted, ops.How{})
	if want := "nothing app.often 3->3\nnothing app.new 3->3\nnothing app.work 0->0\n"; err != nil || shown(plans) != want {
		t.Errorf("a second time:\n%s%v", shown(plans), err)
	}
	if job, err := d.Job(t.Context(), ann, "app.new", 1); err != nil || job.App != "app" || job.Policy.Zone != "Europe/Berlin" || len(job.Next) != 1 {
		t.Errorf("what was made: %+v, %v", job, err)
	}
	if _, err := d.Edit(t.Context(), bob, kernel.Edit{Key: "app.often", Set: kernel.Settings{Timeout: new(time.Minute)}}); err != nil {
		t.Fatal(err)
	}
	if plans, err = d.Declare(t.Context(), ann, wanted[:1], ops.How{Exact: true}); err != nil || shown(plans) != "edit app.often timeout 3->3\n" {
		t.Errorf("exactly:\n%s%v", shown(plans), err)
	}
}

func TestDeclareRefuses(t *testing.T) {
	good := ops.Wanted{Key: "app.often", Set: kernel.Settings{Retries: new(7)}}
	for _, c := range []struct {
		name, want string
		code       jobs.Code
		how        ops.How
		wanted     ops.Wanted
	}{
		{"no kind", "set its kind", jobs.BadInput, ops.How{}, ops.Wanted{Key: "app.none", App: "app"}},
		{"no app", "set the app", jobs.BadInput, ops.How{}, ops.Wanted{Key: "app.none", Kind: kernel.Recurring}},
		{"another kind", "never changes its kind", jobs.Conflict, ops.How{}, ops.Wanted{Key: "app.nightly", Kind: kernel.Triggered}},
		{"another app", "belongs to app", jobs.Conflict, ops.How{}, ops.Wanted{Key: "app.nightly", App: "other"}},
		{"a bad schedule", "job app.nightly: schedule", jobs.BadInput, ops.How{}, ops.Wanted{Key: "app.nightly", Set: kernel.Settings{Schedule: new("every blue moon")}}},
		{"a bad number", "retries", jobs.BadInput, ops.How{}, ops.Wanted{Key: "app.nightly", Set: kernel.Settings{Retries: new(-1)}}},
		{"a bad key", "key", jobs.BadInput, ops.How{}, ops.Wanted{Key: "no spaces", Kind: kernel.Triggered, App: "app"}},
		{"twice", "twice", jobs.BadInput, ops.How{}, good},
		{"there already", "already", jobs.Conflict, ops.How{Fresh: true}, ops.Wanted{Key: "app.nightly"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newFixture(t)
			_, err := d.Declare(t.Context(), ann, []ops.Wanted{good, c.wanted}, c.how)
			if c.how.Fresh {
				_, err = d.Create(t.Context(), ann, c.wanted)
			}
			if jobs.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v (%s), want %s: ...%s...", err, jobs.CodeOf(err), c.code, c.want)
			}
			if job, err := d.Job(t.Context(), ann, "app.often", 0); err != nil || job.Revision != 1 {
				t.Errorf("the good one before it was done: revision %d, %v", job.Revision, err)
			}
		})
	}
}
