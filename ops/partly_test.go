package ops_test

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// refusing is a store that refuses some commands.
type refusing struct {
	metastore.Store
	code    jobs.Code
	refuses func(kernel.Command) bool
	done    int // of the others
}

func (s *refusing) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	results := make([]metastore.Result, len(batch))
	for i, e := range batch {
		if s.refuses(e.Command) {
			results[i] = metastore.Result{Err: kernel.Refuse(s.code, "not this one")}
			continue
		}
		results[i] = s.Store.Apply(ctx, []kernel.Envelope{e})[0]
		s.done++
	}
	return results
}

// What is done in more than one step, of which some were done, is not said not to have been done.
func TestWhatWasPartlyDone(t *testing.T) {
	for name, c := range map[string]struct {
		code    jobs.Code
		refuses func(kernel.Command) bool // one of two
		do      func(*fixture, *ops.Ops) error
	}{
		"a family": {jobs.Unavailable, func(k kernel.Command) bool { return k == kernel.Delete{Key: "app.nightly"} }, func(d *fixture, o *ops.Ops) error {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{Parent: new("app.nightly")}})
			_, err := o.DeleteFamily(d.t.Context(), ann, kernel.Delete{Key: "app.nightly"}, ops.FinishLiveRuns)
			return err
		}},
		"workers of a label": {jobs.Unavailable, func(k kernel.Command) bool { return k == kernel.Drain{Worker: "w-2", On: true} }, func(d *fixture, o *ops.Ops) error {
			_, err := o.Drain(d.t.Context(), ann, "w", true)
			return err
		}},
		"a cleaning": {jobs.Unavailable, func(k kernel.Command) bool { return k.(kernel.Purge).Key == "app.work" }, func(d *fixture, o *ops.Ops) error {
			for _, key := range []jobs.Key{"app.nightly", "app.work"} {
				id := jobs.NewID(d.now)
				d.apply(kernel.Create{ID: id, Key: key})
				d.apply(kernel.Cancel{ID: id})
			}
			_, err := o.PurgeApp(d.t.Context(), ann, "app", 0, false, "")
			return err
		}},
		"jobs of a file": {jobs.Stale, func(k kernel.Command) bool { return k.(kernel.Edit).Key == "app.often" }, func(d *fixture, o *ops.Ops) error {
			_, err := o.Declare(d.t.Context(), ann, []ops.Wanted{{Key: "app.often", Set: kernel.Settings{Retries: new(3)}}, {Key: "app.work", Set: kernel.Settings{Retries: new(3)}}}, ops.How{})
			return err
		}},
	} {
		for _, all := range []bool{false, true} {
			d := newFixture(t)
			store := &refusing{Store: d.store, code: c.code, refuses: func(k kernel.Command) bool { return all || c.refuses(k) }}
			pair := &members{workers: []ops.Worker{{WorkerInfo: bus.WorkerInfo{Name: "w-1", Label: "w"}}, {WorkerInfo: bus.WorkerInfo{Name: "w-2", Label: "w"}}}}
			err := c.do(d, ops.New(ops.Config{Store: store, Logs: d.logs, Live: pair, Now: func() time.Time { return d.now }}))
			want, done := jobs.Unknown, 1
			if all {
				want, done = c.code, 0
			} else if c.code == jobs.Stale { // a refusal is a known outcome
				want = c.code
			}
			if jobs.CodeOf(err) != want || store.done != done {
				t.Errorf("%s, of which %d was done: %v (%s, want %s)", name, store.done, err, jobs.CodeOf(err), want)
			}
		}
	}
}

// between is a store in which something happens before the n-th commit.
type between struct {
	metastore.Store
	commits int
	at      int
	happens func()
}

func (s *between) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	if s.commits++; s.commits == s.at {
		s.happens()
	}
	return s.Store.Apply(ctx, batch)
}

// A job that changes between the look and the commit is not deleted for what it was: one that has left the family, or
// that the filter no longer selects.
func TestWhatChangedMeanwhileIsNotDeleted(t *testing.T) {
	for name, do := range map[string]func(*fixture, *ops.Ops) error{
		"a family": func(d *fixture, o *ops.Ops) error {
			_, err := o.DeleteFamily(d.t.Context(), ann, kernel.Delete{Key: "app.nightly"}, ops.FinishLiveRuns)
			return err
		},
		"a filter": func(d *fixture, o *ops.Ops) error {
			done, err := o.ManyJobs(d.t.Context(), ann, ops.ManyJobs{Action: ops.DeleteJobs, Filter: ops.JobQuery{Tag: "old"}, Live: ops.FinishLiveRuns})
			if err == nil && done.Refused == 1 {
				err = done.Why[0].Err
			}
			return err
		},
	} {
		d := newFixture(t)
		d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{Parent: new("app.nightly"), Tags: new([]string{"old"})}})
		store := &between{Store: d.store, at: 1, happens: func() {
			d.apply(kernel.Edit{Key: "app.work", Set: kernel.Settings{Parent: new(""), Tags: new([]string{"kept"})}})
		}}
		err := do(d, ops.New(ops.Config{Store: store, Logs: d.logs, Now: func() time.Time { return d.now }}))
		if jobs.CodeOf(err) != jobs.Stale {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := d.Job(t.Context(), ann, "app.work", 0); err != nil {
			t.Errorf("%s: the job that has left it is deleted: %v", name, err)
		}
	}
}

// A declaration ends the pause of a job in the commit that changes it.
func TestADeclarationResumesInOneCommit(t *testing.T) {
	d := newFixture(t)
	d.apply(kernel.Pause{Key: "app.often"})
	store := &between{Store: d.store}
	o := ops.New(ops.Config{Store: store, Logs: d.logs, Now: func() time.Time { return d.now }})
	for range 2 {
		want := ops.Wanted{Key: "app.often", Resume: true, Set: kernel.Settings{Retries: new(3)}}
		if _, err := o.Declare(t.Context(), ann, []ops.Wanted{want}, ops.How{Restart: true}); err != nil {
			t.Fatal(err)
		}
		job, err := d.Job(t.Context(), ann, "app.often", 0)
		if err != nil || job.Paused != nil || job.Policy.Retries != 3 {
			t.Fatalf("%+v, %v", job, err)
		}
	}
	if store.commits != 2 {
		t.Errorf("two declarations were %d commits", store.commits)
	}
}
