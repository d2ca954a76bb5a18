package ops_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// A declaration that the store would refuse in part is refused as a whole, new jobs as well as edited ones, before
// anything is written, and a preview says so.
func TestRefusedDeclarationWritesNothing(t *testing.T) {
	created := func(key jobs.Key, kind kernel.Kind, s kernel.Settings) ops.Wanted {
		return ops.Wanted{Key: key, Kind: kind, App: "app", Set: s}
	}
	fine := created("app.new", kernel.Triggered, kernel.Settings{Retries: new(3)})
	after := func(keys ...string) kernel.Settings { return kernel.Settings{After: &keys} }
	backwards := kernel.Settings{Start: new(time.Date(2030, 2, 1, 0, 0, 0, 0, time.UTC)), End: new(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))}
	for name, c := range map[string]struct {
		code   jobs.Code
		wanted []ops.Wanted
	}{
		"a new recurring job with after":       {jobs.BadInput, []ops.Wanted{created("app.bad", kernel.Recurring, after("app.work"))}},
		"an existing recurring job":            {jobs.BadInput, []ops.Wanted{{Key: "app.often", Set: after("app.work")}}},
		"a new job that ends before it starts": {jobs.BadInput, []ops.Wanted{created("app.bad", kernel.Recurring, backwards)}},
		"an existing one":                      {jobs.BadInput, []ops.Wanted{{Key: "app.often", Set: backwards}}},
		"new jobs in a circle": {jobs.Conflict, []ops.Wanted{
			created("app.one", kernel.Triggered, after("app.two")), created("app.two", kernel.Triggered, after("app.one"))}},
		"a new job in a circle with an old one": {jobs.Conflict, []ops.Wanted{
			created("app.one", kernel.Triggered, after("app.work")), {Key: "app.work", Set: kernel.Settings{OnSuccess: &[]string{"app.one"}, After: &[]string{"app.one"}}}}},
	} {
		for _, dry := range []bool{true, false} {
			d := newFixture(t)
			_, err := d.Declare(t.Context(), ann, append([]ops.Wanted{fine}, c.wanted...), ops.How{Dry: dry})
			if jobs.CodeOf(err) != c.code {
				t.Errorf("%s, preview %v: %v (%s, want %s)", name, dry, err, jobs.CodeOf(err), c.code)
			}
			if _, err := d.Job(t.Context(), ann, fine.Key, 0); !errors.Is(err, jobs.NotFound) {
				t.Errorf("%s, preview %v: another job of the same declaration: %v", name, dry, err)
			}
		}
	}
}

// A new job and its settings are one command: whatever refuses the settings leaves no job.
func TestRefusedCreationLeavesNoJob(t *testing.T) {
	d := newFixture(t)
	k := kernel.Register{App: "app", Worker: kernel.NoWorker, Start: true, Job: kernel.Declaration{Key: "app.bad", Kind: kernel.Recurring},
		Set: kernel.Settings{After: &[]string{"app.work"}}}
	r := d.store.Apply(t.Context(), []kernel.Envelope{{At: d.now, Tenant: jobs.DefaultTenant, Actor: "ann", Command: k}})
	if jobs.CodeOf(r[0].Err) != jobs.BadInput {
		t.Errorf("applied: %v", r[0].Err)
	}
	if _, err := d.Job(t.Context(), ann, "app.bad", 0); !errors.Is(err, jobs.NotFound) {
		t.Errorf("the job: %v", err)
	}
	k.Set = kernel.Settings{Retries: new(7)}
	for _, want := range []struct {
		set  kernel.Settings
		code jobs.Code
	}{{k.Set, ""}, {k.Set, ""}, {kernel.Settings{Retries: new(8)}, jobs.Stale}} { // made, sent again, another
		k.Set = want.set
		r = d.store.Apply(t.Context(), []kernel.Envelope{{At: d.now, Tenant: jobs.DefaultTenant, Actor: "ann", Command: k}})
		if got := r[0].Err; (got == nil) != (want.code == "") || got != nil && jobs.CodeOf(got) != want.code {
			t.Errorf("%d retries: %v, want code %q", *k.Set.Retries, r[0].Err, want.code)
		}
	}
	k.Worker = "w"
	if err := k.Check(); jobs.CodeOf(err) != jobs.BadInput {
		t.Errorf("a worker edits what it registers: %v", err)
	}
	if j, err := d.Job(t.Context(), ann, "app.bad", 0); err != nil || j.Policy.Retries != 7 || j.Revision != 1 {
		t.Errorf("the job: %+v, %v", j.Policy.Retries, err)
	}
}

// A preview accepts exactly what the store accepts, whatever jobs follow each other.
func TestPreviewAgreesWithTheStore(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	d := newFixture(t)
	names := []string{"app.a", "app.b", "app.c", "app.d", "app.e"}
	some := func() *[]string {
		list := []string{}
		for _, i := range random.Perm(len(names))[:random.IntN(3)] {
			list = append(list, names[i])
		}
		return &list
	}
	accepted := map[bool]int{}
	for range 400 {
		key := jobs.Key(names[random.IntN(len(names))])
		w := ops.Wanted{Key: key, Kind: kernel.Triggered, App: "app", Set: kernel.Settings{After: some(), OnSuccess: some(), OnFailure: some()}}
		_, dry := d.Declare(t.Context(), ann, []ops.Wanted{w}, ops.How{Dry: true})
		store := d.store.Apply(t.Context(), []kernel.Envelope{command(d, w)})[0].Err
		if fmt.Sprint(jobs.CodeOf(dry)) != fmt.Sprint(jobs.CodeOf(store)) {
			t.Fatalf("%s after %v, onSuccess %v, onFailure %v: the preview returns %v, the store %v", key, *w.Set.After, *w.Set.OnSuccess, *w.Set.OnFailure, dry, store)
		}
		accepted[store == nil]++
	}
	if accepted[true] < 50 || accepted[false] < 50 {
		t.Errorf("too few of each: %v", accepted)
	}
}

// command creates or edits a job, without a check before.
func command(d *fixture, w ops.Wanted) kernel.Envelope {
	var k kernel.Command = kernel.Edit{Key: w.Key, Set: w.Set}
	if _, err := d.store.Definition(d.t.Context(), jobs.DefaultTenant, w.Key); err != nil {
		k = kernel.Register{App: w.App, Worker: kernel.NoWorker, Start: true, Job: kernel.Declaration{Key: w.Key, Kind: w.Kind}, Set: w.Set}
	}
	return kernel.Envelope{At: d.now, Tenant: jobs.DefaultTenant, Actor: "ann", Command: k}
}
