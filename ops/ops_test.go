package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/jobs/schedule"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/ops"
)

// fixture is the verbs over a store whose clock stands still until it is moved.
type fixture struct {
	t     testing.TB
	now   time.Time
	store *metastore.Local
	logs  metastore.Logs
	*ops.Ops
}

var ann = ops.Who{Actor: "person:ann", Reason: "because", Role: ops.Admin}

func newFixture(t testing.TB) *fixture {
	d := &fixture{t: t, now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), logs: memstore.NewLogs(0)}
	clock := func() time.Time { return d.now }
	d.store = &metastore.Local{Engine: memstore.New(memstore.Config{}), Now: clock}
	d.Ops = ops.New(ops.Config{Store: d.store, Logs: d.logs, Now: clock, ForecastWork: time.Minute})
	for _, o := range []jobs.Options{
		{Key: "app.nightly", Cron: "0 30 2 * * *", TimeZone: "Europe/Berlin", Tags: []string{"Money"}},
		{Key: "app.often", Every: time.Minute, Description: "Looks at the post."},
	} {
		d.declare(jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), o))
	}
	d.declare(jobs.NewTriggered(jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return nil }), jobs.Options{Key: "app.work"}))
	return d
}

func (d *fixture) declare(j jobs.Job) {
	d.t.Helper()
	declared, err := kernel.Declare(j)
	if err != nil {
		d.t.Fatal(err)
	}
	d.apply(kernel.Register{App: "app", Worker: "w1", Start: true, Job: declared})
}

func (d *fixture) apply(k kernel.Command) *kernel.Run {
	d.t.Helper()
	r := d.store.Apply(d.t.Context(), []kernel.Envelope{{ID: jobs.NewID(d.now), Tenant: jobs.DefaultTenant, Actor: "test", Command: k}})[0]
	if r.Err != nil {
		d.t.Fatalf("%s: %v", k.Verb(), r.Err)
	}
	return r.Run()
}

func (d *fixture) count() int {
	d.t.Helper()
	page, err := d.store.Runs(d.t.Context(), metastore.RunQuery{Tenant: jobs.DefaultTenant, Limit: metastore.MaxPage})
	if err != nil {
		d.t.Fatal(err)
	}
	return len(page.Runs)
}

func TestJobs(t *testing.T) {
	d := newFixture(t)
	for _, c := range []struct {
		query ops.JobQuery
		want  string
		more  bool
	}{
		{ops.JobQuery{}, "[app.nightly app.often app.work]", false},
		{ops.JobQuery{Limit: 2}, "[app.nightly app.often]", true},
		{ops.JobQuery{Limit: 2, After: "app.often"}, "[app.work]", false},
		{ops.JobQuery{Text: "MONEY"}, "[app.nightly]", false},
		{ops.JobQuery{Text: "post"}, "[app.often]", false},
		{ops.JobQuery{Text: "app", Limit: 1}, "[app.nightly]", true},
		{ops.JobQuery{App: "other"}, "[]", false},
		{ops.JobQuery{Text: "%"}, "[]", false},
	} {
		list, more, err := d.Jobs(t.Context(), ann, c.query)
		if err != nil {
			t.Fatal(err)
		}
		keys := make([]jobs.Key, len(list))
		for i, j := range list {
			keys[i] = j.Key
		}
		if fmt.Sprint(keys) != c.want || more != c.more {
			t.Errorf("%+v: %v, more %v", c.query, keys, more)
		}
	}
}

func TestJobSaysWhenAndWhyNot(t *testing.T) {
	d := newFixture(t)
	job, err := d.Job(t.Context(), ann, "app.nightly", 2)
	if err != nil {
		t.Fatal(err)
	}
	want := []time.Time{time.Date(2026, 11, 22, 1, 30, 0, 0, time.UTC), time.Date(2026, 11, 23, 1, 30, 0, 0, time.UTC)}
	if len(job.Next) != 2 || job.Next[0] != want[0] || job.Next[1] != want[1] || !strings.Contains(job.Words, "Berlin") || job.Silent != "" {
		t.Errorf("%v %q %q", job.Next, job.Words, job.Silent)
	}
	if job, err = d.Pause(t.Context(), ann, kernel.Pause{Key: "app.nightly", Reason: "stocktaking"}); err != nil || job.Silent != kernel.MissedPaused || job.Paused.By != "person:ann" {
		t.Errorf("paused: %+v (%v)", job, err)
	}
	if job, _, err = d.Resume(t.Context(), ann, "app.nightly", ops.Resumption{}); err != nil || job.Silent != "" {
		t.Errorf("resumed: %+v (%v)", job, err)
	}
	if _, err = d.Configure(t.Context(), ann, kernel.Configure{RecurringDebug: new(true)}, ""); err != nil {
		t.Fatal(err)
	}
	if job, err = d.Job(t.Context(), ann, "app.nightly", 1); err != nil || job.Silent != kernel.MissedDebug {
		t.Errorf("in debug mode: %+v (%v)", job, err)
	}
	for _, n := range []int{-1, 101} {
		if _, err := d.Job(t.Context(), ann, "app.nightly", n); !errors.Is(err, jobs.BadInput) {
			t.Errorf("%d due times: %v", n, err)
		}
	}
}

func TestEditReadsTheSchedule(t *testing.T) {
	d := newFixture(t)
	edit := func(expr string) (ops.Job, error) {
		return d.Edit(t.Context(), ann, kernel.Edit{Key: "app.nightly", Set: kernel.Settings{Schedule: &expr}})
	}
	for expr, offset := range map[string]int{"0 61 * * * *": 2, "0 0 30 2 *": 0} {
		_, err := edit(expr)
		at, ok := errors.AsType[*schedule.Error](err)
		if !ok || at.Offset != offset || !errors.Is(err, jobs.BadInput) {
			t.Errorf("%q: %v", expr, err)
		}
	}
	job, err := edit("@every 10m")
	if err != nil || len(job.Next) != 1 || job.Next[0].Sub(d.now) != 10*time.Minute || job.Revision != 2 {
		t.Errorf("%+v (%v)", job, err)
	}
	// A look ahead changes nothing.
	preview, err := d.Preview(t.Context(), ann, kernel.Edit{Key: "app.nightly", Set: kernel.Settings{Schedule: new("0 0 * * *"), Zone: new("Asia/Tokyo")}}, 1)
	if err != nil || preview.Next[0] != time.Date(2026, 11, 21, 15, 0, 0, 0, time.UTC) {
		t.Errorf("%+v (%v)", preview, err)
	}
	if job, err = d.Job(t.Context(), ann, "app.nightly", 1); err != nil || job.Revision != 2 || job.Definition.Policy.Schedule != "@every 10m" {
		t.Errorf("%+v (%v)", job, err)
	}
	// What has no schedule cannot be given one, and other fields do not ask for it.
	if _, err := d.Edit(t.Context(), ann, kernel.Edit{Key: "app.work", Set: kernel.Settings{Schedule: new("@daily")}}); !errors.Is(err, jobs.Conflict) {
		t.Errorf("a schedule for a triggered job: %v", err)
	}
	if _, err := d.Edit(t.Context(), ann, kernel.Edit{Key: "app.work", Set: kernel.Settings{Retries: new(3)}}); err != nil {
		t.Error(err)
	}
	if _, err := d.Edit(t.Context(), ann, kernel.Edit{Key: "app.nightly", Set: kernel.Settings{Retries: new(3)}, IfRevision: 1}); !errors.Is(err, jobs.Stale) {
		t.Errorf("an edit of an old revision: %v", err)
	}
}

func TestBulkIsCheckedWhole(t *testing.T) {
	d := newFixture(t)
	for _, c := range []struct {
		name string
		bad  kernel.Create
		code jobs.Code
	}{
		{"no such job", kernel.Create{Key: "app.nope"}, jobs.NotFound},
		{"bad key", kernel.Create{Key: "a b"}, jobs.BadInput},
		{"bad arguments", kernel.Create{Key: "app.work", Args: []byte(`[1]`)}, jobs.BadInput},
		{"too far ahead", kernel.Create{Key: "app.work", Due: d.now.AddDate(6, 0, 0)}, jobs.BadInput},
	} {
		requests := make([]kernel.Create, 2_000)
		for i := range requests {
			requests[i] = kernel.Create{Key: "app.work"}
		}
		requests[1_500] = c.bad
		made, err := d.TriggerAll(t.Context(), ann, requests)
		item, ok := errors.AsType[*ops.ItemError](err)
		if !ok || item.Index != 1_500 || !errors.Is(err, c.code) || len(made) != 0 || d.count() != 0 {
			t.Errorf("%s: %v, %d made, %d stored", c.name, err, len(made), d.count())
		}
	}
	for _, n := range []int{0, kernel.MaxBulk + 1} {
		if _, err := d.TriggerAll(t.Context(), ann, make([]kernel.Create, n)); !errors.Is(err, jobs.BadInput) {
			t.Errorf("%d at once: %v", n, err)
		}
	}
	// More than fits into one commit, by number and by size.
	requests := make([]kernel.Create, 1_500)
	for i := range requests {
		requests[i] = kernel.Create{Key: "app.work", Args: fmt.Appendf(nil, `{"n":%d,"pad":"%02000d"}`, i, 0)}
	}
	made, err := d.TriggerAll(t.Context(), ann, requests)
	if err != nil || len(made) != len(requests) {
		t.Fatalf("%d made: %v", len(made), err)
	}
	for i, m := range made {
		var args struct{ N int }
		if err := json.Unmarshal(m.Args, &args); err != nil || args.N != i || m.Actor != "person:ann" {
			t.Fatalf("place %d holds %d (%v)", i, args.N, err)
		}
	}
}

func TestTriggerOfADisabledJob(t *testing.T) {
	d := newFixture(t)
	if _, err := d.Edit(t.Context(), ann, kernel.Edit{Key: "app.work", Set: kernel.Settings{Disabled: new(true)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Trigger(t.Context(), ann, kernel.Create{Key: "app.work"}); !errors.Is(err, jobs.Conflict) {
		t.Errorf("%v", err)
	}
}

func TestCancelAndAgain(t *testing.T) {
	d := newFixture(t)
	run, err := d.Trigger(t.Context(), ann, kernel.Create{Key: "app.work", Args: []byte(`{"n":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Again(t.Context(), ann, run.ID, nil, ""); !errors.Is(err, jobs.Conflict) {
		t.Errorf("again before its end: %v", err)
	}
	for range 2 { // the second time changes nothing
		r, err := d.Cancel(t.Context(), ann, run.ID)
		if err != nil || r.State != jobs.Cancelled || r.Moves[len(r.Moves)-1].Text != "because" {
			t.Errorf("%+v (%v)", r, err)
		}
		d.now = d.now.Add(5 * time.Minute) // by then it has left the live rows
	}
	again, err := d.Again(t.Context(), ann, run.ID, nil, "")
	if err != nil || again.Parent != run.ID || again.Origin != kernel.FromRetry || string(again.Args) != `{"n":1}` {
		t.Fatalf("%+v (%v)", again, err)
	}
	d.apply(kernel.Start{ID: again.ID, Worker: "w1", Attempt: 1})
	d.apply(kernel.Finish{ID: again.ID, Worker: "w1", Attempt: 1, Outcome: kernel.OutcomeSuccess})
	if _, err := d.Cancel(t.Context(), ann, again.ID); !errors.Is(err, jobs.Conflict) || !strings.Contains(err.Error(), "Succeeded") {
		t.Errorf("cancel of a run that has ended: %v", err)
	}
	if other, err := d.Again(t.Context(), ann, again.ID, []byte(`{"n":2}`), ""); err != nil || string(other.Args) != `{"n":2}` {
		t.Errorf("with other arguments: %+v (%v)", other, err)
	}
	if _, err := d.Cancel(t.Context(), ann, jobs.NewID(d.now)); !errors.Is(err, jobs.NotFound) {
		t.Errorf("cancel of nothing: %v", err)
	}
}

func TestIdempotencyKeyLeadsToTheRun(t *testing.T) {
	d := newFixture(t)
	request := kernel.Create{Key: "app.work", Idempotency: "k"}
	first, err := d.Trigger(t.Context(), ann, request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Cancel(t.Context(), ann, first.ID); err != nil {
		t.Fatal(err)
	}
	d.now = d.now.Add(time.Hour)
	second, err := d.Trigger(t.Context(), ann, request)
	if err != nil || second.ID != first.ID || !second.Duplicate || second.State != jobs.Cancelled {
		t.Errorf("%+v (%v)", second, err)
	}
}

func TestDebugModeLetsGo(t *testing.T) {
	for _, c := range []struct {
		held      ops.Held
		state     jobs.State
		released  int
		discarded int
	}{{ops.HeldRelease, jobs.Enqueued, 300, 0}, {ops.HeldDiscard, jobs.Cancelled, 0, 300}} {
		d := newFixture(t)
		if _, err := d.Configure(t.Context(), ann, kernel.Configure{TriggeredDebug: new(true)}, ""); err != nil {
			t.Fatal(err)
		}
		var held []jobs.ID
		for range 300 { // more than a page
			d.now = d.now.Add(time.Millisecond)
			held = append(held, d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"}).ID)
		}
		byHand, err := d.Trigger(t.Context(), ann, kernel.Create{Key: "app.work", Origin: kernel.FromPerson})
		if err != nil || byHand.State != jobs.Enqueued {
			t.Errorf("a run by hand is %s (%v)", byHand.State, err)
		}
		off := kernel.Configure{TriggeredDebug: new(false)}
		if _, err := d.Configure(t.Context(), ann, off, ""); !errors.Is(err, jobs.Conflict) || !strings.Contains(err.Error(), "300") {
			t.Errorf("switched off without a word: %v", err)
		}
		done, err := d.Configure(t.Context(), ann, off, c.held)
		if err != nil || done.Released != c.released || done.Discarded != c.discarded || done.TriggeredDebug.On {
			t.Errorf("%s: %+v (%v)", c.held, done, err)
		}
		d.release()
		for _, id := range held {
			run, err := d.Run(t.Context(), ann, id)
			if err != nil || run.State != c.state {
				t.Fatalf("%s: a held run is %s (%v)", c.held, run.State, err)
			}
		}
		// The oldest went first.
		if c.held == ops.HeldRelease {
			ready, err := d.store.Ready(t.Context(), metastore.ReadyQuery{Tenant: jobs.DefaultTenant, App: "app", Limit: 400})
			if err != nil || len(ready) != 301 {
				t.Fatalf("%d are ready (%v)", len(ready), err)
			}
		}
	}
}

func TestDefaultZonesExist(t *testing.T) {
	d := newFixture(t)
	for _, k := range []kernel.Configure{{File: &kernel.File{Defaults: kernel.Settings{Zone: new("Mars/Base")}}}, {Defaults: &kernel.Settings{Zone: new("Mars/Base")}}} {
		if _, err := d.Configure(t.Context(), ann, k, ""); !errors.Is(err, jobs.BadInput) {
			t.Errorf("a default zone that does not exist: %v", err)
		}
	}
}

// A changed configuration releases no run that the debug mode of a person holds; a reset to it does.
func TestAFileReleasesNoHeldRun(t *testing.T) {
	d := newFixture(t)
	if _, err := d.Configure(t.Context(), ann, kernel.Configure{TriggeredDebug: new(true)}, ""); err != nil {
		t.Fatal(err)
	}
	d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"})
	file := kernel.Configure{File: &kernel.File{Defaults: kernel.Settings{Retries: new(3)}}}
	if done, err := d.Configure(t.Context(), ann, file, ops.HeldRelease); err != nil || done.Released != 0 || !done.TriggeredDebug.On {
		t.Errorf("the file: %+v, %v", done, err)
	}
	reset := kernel.Configure{Reset: []string{kernel.FieldTriggeredDebug}}
	if _, err := d.Configure(t.Context(), ann, reset, ""); !errors.Is(err, jobs.Conflict) {
		t.Errorf("a reset that does not say what to do with held runs: %v", err)
	}
	if done, err := d.Configure(t.Context(), ann, reset, ops.HeldRelease); err != nil || done.Released != 1 || done.TriggeredDebug.On {
		t.Errorf("the reset: %+v, %v", done, err)
	}
}

func TestTail(t *testing.T) {
	d := newFixture(t)
	run, err := d.Trigger(t.Context(), ann, kernel.Create{Key: "app.work"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2_500 {
		line := metastore.LogLine{Tenant: jobs.DefaultTenant, Run: run.ID, LogPosition: metastore.LogPosition{Attempt: 1, Sequence: uint64(i + 1)}, Text: fmt.Sprint(i)}
		if err := d.logs.Append(t.Context(), []metastore.LogLine{line}); err != nil {
			t.Fatal(err)
		}
	}
	lines, cut, err := d.Tail(t.Context(), ann, run.ID, 100)
	if err != nil || !cut || len(lines) != 100 || lines[99].Text != "2499" {
		t.Errorf("%d lines, cut %v (%v)", len(lines), cut, err)
	}
	if lines, err := d.Log(t.Context(), ann, run.ID, metastore.LogPosition{Attempt: 1, Sequence: 10}, 5); err != nil || len(lines) != 5 || lines[0].Text != "10" {
		t.Errorf("%v (%v)", lines, err)
	}
}

func TestOverview(t *testing.T) {
	d := newFixture(t)
	for i := range 3 {
		id := d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work"}).ID
		d.apply(kernel.Start{ID: id, Worker: "w1", Attempt: 1})
		if i > 0 {
			d.apply(kernel.Finish{ID: id, Worker: "w1", Attempt: 1, Outcome: kernel.OutcomeFatal, Error: "no"})
		}
		d.now = d.now.Add(40 * time.Minute)
	}
	d.apply(kernel.Create{ID: jobs.NewID(d.now), Key: "app.work", Delay: time.Hour})
	o, err := d.Overview(t.Context(), ann)
	if err != nil || o.Live[jobs.Processing] != 1 || o.Live[jobs.Scheduled] != 1 || o.Failed != 1 || o.Leader.Known() {
		t.Errorf("%+v (%v)", o, err)
	}
}

func TestRoles(t *testing.T) {
	roles := []ops.Role{ops.NoRole, ops.Viewer, ops.Operator, ops.Admin}
	for i, has := range roles {
		for j, need := range roles {
			if got := has.Covers(need); got != (j > 0 && i >= j) {
				t.Errorf("%s covers %s: %v", has, need, got)
			}
		}
	}
	for _, program := range []ops.Role{ops.WorkerRole, ops.ClientRole} { // stand alone
		for _, other := range append(roles, ops.WorkerRole, ops.ClientRole) {
			if program.Covers(other) != (other == program) || other.Covers(program) != (other == program) {
				t.Errorf("%s and %s", program, other)
			}
		}
	}
	for _, name := range []string{"viewer", "operator", "admin"} {
		if r, err := ops.ParseRole(name); err != nil || r.String() != name {
			t.Errorf("%s: %s (%v)", name, r, err)
		}
	}
	for _, name := range []string{"", "none", "worker", "client", "Admin", "root"} {
		if r, err := ops.ParseRole(name); err == nil {
			t.Errorf("%q is the role %s", name, r)
		}
	}
}
