package metastore_test

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// family is a store with jobs that follow each other.
type family struct {
	t     *testing.T
	now   time.Time
	store *metastore.Local
}

func newFamily(t *testing.T) *family {
	f := &family{t: t, now: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)}
	f.store = &metastore.Local{Engine: memstore.New(memstore.Config{Archive: memstore.NewArchive(0)}), Now: func() time.Time { return f.now }}
	return f
}

func (f *family) do(cs ...kernel.Command) {
	f.t.Helper()
	batch := make([]kernel.Envelope, len(cs))
	for i, c := range cs {
		batch[i] = kernel.Envelope{ID: jobs.NewID(f.now), Tenant: "default", Actor: "client:x", Command: c}
	}
	for i, r := range f.store.Apply(context.Background(), batch) {
		if r.Err != nil {
			f.t.Fatalf("%s: %v", cs[i].Verb(), r.Err)
		}
	}
}

func (f *family) job(key jobs.Key, s kernel.Settings) {
	f.do(kernel.Register{App: "a", Worker: "w", Start: true, Job: kernel.Declaration{Key: key, Kind: kernel.Triggered, Code: s}})
}

func (f *family) runs(key jobs.Key) []*kernel.Run {
	page, err := f.store.Runs(context.Background(), metastore.RunQuery{Tenant: "default", Job: key})
	if err != nil {
		f.t.Fatal(err)
	}
	return page.Runs
}

// succeed has the live run of a job succeed.
func (f *family) succeed(key jobs.Key) {
	f.t.Helper()
	for _, run := range f.runs(key) {
		if !run.Settled() {
			f.do(kernel.Start{ID: run.ID, Worker: "w1", Attempt: run.Next()}, kernel.Finish{ID: run.ID, Worker: "w1", Attempt: run.Next(), Outcome: kernel.OutcomeSuccess})
			return
		}
	}
	f.t.Fatalf("no live run of %s", key)
}

// later forgets what is over.
func (f *family) later(d time.Duration) {
	f.now = f.now.Add(d)
	for {
		refs, err := f.store.Expired(context.Background(), f.now, 100)
		if err != nil {
			f.t.Fatal(err)
		}
		if len(refs) == 0 {
			return
		}
		for _, r := range refs {
			f.do(kernel.Forget{Name: r.Name})
		}
	}
}

// An occasion that has ended without a run begins again when a job ends late. The ledger then names a job that had
// succeeded in time as the one that was missing.
func TestAnOccasionEndsOnce(t *testing.T) {
	f := newFamily(t)
	within := time.Minute
	f.job("report", kernel.Settings{After: &[]string{"extract", "load"}, AfterWithin: &within})
	f.job("extract", kernel.Settings{})
	f.job("load", kernel.Settings{})
	f.job("first", kernel.Settings{OnSuccess: &[]string{"extract", "load"}})
	f.do(kernel.Create{ID: jobs.NewID(f.now), Key: "first"})
	f.succeed("first")
	f.succeed("extract")
	f.later(2 * time.Minute)
	f.succeed("load")
	f.later(2 * time.Minute)
	d, err := f.store.Definition(context.Background(), "default", "report")
	if err != nil {
		t.Fatal(err)
	}
	all, err := f.store.Ledger(context.Background(), "default", d.UID, 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 {
		t.Errorf("one occasion has %d entries in the ledger, want 1", len(all))
	}
	for _, m := range all {
		t.Logf("missing: %+v", m.Parents)
	}
}

// The same for two recurring jobs of one due time: the second entry replaces the first one.
func TestAnOccasionOfADueTimeEndsOnce(t *testing.T) {
	f := newFamily(t)
	within, cron := time.Minute, "0 * * * *"
	for _, key := range []jobs.Key{"extract", "load"} {
		f.do(kernel.Register{App: "a", Worker: "w", Start: true, Job: kernel.Declaration{Key: key, Kind: kernel.Recurring, Code: kernel.Settings{Schedule: &cron}}})
	}
	f.job("report", kernel.Settings{After: &[]string{"extract", "load"}, AfterWithin: &within})
	f.do(kernel.Lead{Term: 1})
	f.now = f.now.Add(time.Hour)
	due := f.now
	for _, key := range []jobs.Key{"extract", "load"} {
		d, err := f.store.Definition(context.Background(), "default", key)
		if err != nil {
			t.Fatal(err)
		}
		f.do(kernel.Fire{Key: d.Key, Job: d.UID, Revision: d.Revision, Term: 1, From: d.Cursor, To: due, Due: []time.Time{due}})
	}
	names := func() (all []string) {
		d, _ := f.store.Definition(context.Background(), "default", "report")
		list, _ := f.store.Ledger(context.Background(), "default", d.UID, 10)
		for _, m := range list {
			for _, p := range m.Parents {
				all = append(all, string(p.Job))
			}
		}
		return all
	}
	f.succeed("extract")
	f.later(2 * time.Minute)
	t.Logf("first: %v", names())
	f.succeed("load")
	f.later(2 * time.Minute)
	if n := names(); len(n) != 1 || n[0] != "load" {
		t.Errorf("the ledger says that %v was missing, want load, which ended a minute too late", n)
	}
}

// Whether a broadcast counts as failed depends on the order in which its parts end.
func TestABroadcastWithAFailedPart(t *testing.T) {
	followers := map[string]int{}
	for name, cancelled := range map[string]int{"the first is cancelled, the second fails": 0, "the first fails, the second is cancelled": 1} {
		f := newFamily(t)
		route, none := jobs.RouteBroadcast, 0
		f.job("alert", kernel.Settings{After: &[]string{"flush:failed"}})
		f.job("flush", kernel.Settings{Route: &route, Retries: &none})
		id := jobs.NewID(f.now)
		f.do(kernel.Create{ID: id, Key: "flush"}, kernel.Expand{ID: id, Workers: []string{"w1", "w2"}})
		for i, run := range f.runs("flush") {
			f.do(kernel.Start{ID: run.ID, Worker: "w1", Attempt: 1})
			if i == cancelled {
				f.do(kernel.Cancel{ID: run.ID}, kernel.Returned{ID: run.ID, Worker: "w1", Attempt: 1})
			} else {
				f.do(kernel.Finish{ID: run.ID, Worker: "w1", Attempt: 1, Outcome: kernel.OutcomeFatal, Error: "x"})
			}
		}
		followers[name] = len(f.runs("alert"))
	}
	for name, n := range followers {
		for other, m := range followers {
			if n != m {
				t.Fatalf("%s: %d runs follow; %s: %d", name, n, other, m)
			}
		}
	}
}

// Entries of occasions that were opened at one moment have times next to it: none searches through those of the others.
func TestOccasionsOfOneMoment(t *testing.T) {
	f := newFamily(t)
	within := time.Minute
	f.job("report", kernel.Settings{After: &[]string{"load", "other"}, AfterWithin: &within})
	f.job("load", kernel.Settings{})
	const occasions = 50
	for range occasions {
		f.do(kernel.Create{ID: jobs.NewID(f.now), Key: "load"})
		f.succeed("load")
	}
	opened := f.now
	f.later(2 * time.Minute)
	d, err := f.store.Definition(context.Background(), "default", "report")
	if err != nil {
		t.Fatal(err)
	}
	list, err := f.store.Ledger(context.Background(), "default", d.UID, 2*occasions)
	if err != nil || len(list) != occasions {
		t.Fatalf("%d entries: %v", len(list), err)
	}
	for _, m := range list {
		if after := m.From.Sub(opened); after < 0 || after > time.Millisecond {
			t.Errorf("an entry is of %v after its occasion was opened", after)
		}
	}
}
