package sqlstore

import (
	"database/sql"
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// Whatever a query selects, a database lists the runs that a store in memory lists, in the same order.
func TestListsAreThoseOfTheModel(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		h, _ := historyOf(t, s, 0)
		model := memstore.NewArchive(0)
		random := tests.Random(t)
		begin := time.Date(2026, 11, 20, 15, 0, 0, 123_456_789, time.UTC)
		var runs []*kernel.Run
		for n := range tests.Size(500, 1500, 1500) {
			run := over(n, begin.Add(time.Duration(n)*time.Minute))
			run.Created = run.Ended.Add(-time.Duration(random.IntN(3)) * time.Hour)
			run.Key = []jobs.Key{"a.one", "a.two", "b.one"}[random.IntN(3)]
			run.App = []string{"a", "b"}[random.IntN(2)]
			run.Worker = fmt.Sprint("w", random.IntN(4))
			run.Origin = []kernel.Origin{kernel.FromCode, kernel.FromCron}[random.IntN(2)]
			run.State = []jobs.State{jobs.Succeeded, jobs.Succeeded, jobs.Terminated, jobs.Skipped}[random.IntN(4)]
			if run.State == jobs.Terminated {
				run.Faults = []kernel.Fault{{Attempt: 1, Code: []string{"LATE", "BROKEN"}[random.IntN(2)]}}
			}
			if random.IntN(10) == 0 {
				run.Parent = jobs.ID{9}
			}
			run.Args = []byte([]string{`{"n":"c1"}`, `{"n":"\u00631"}`, `{"n":7}`}[random.IntN(3)])
			runs = append(runs, run)
		}
		model.Append(runs)
		if err := h.within(t.Context(), func(tx *sql.Tx) error {
			_, err := s.dialect.fillRuns(t.Context(), tx, func(yield func(*kernel.Run, error) bool) {
				for _, run := range runs {
					if !yield(run, nil) {
						return
					}
				}
			}, 1<<positionBits)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		one := func(set func(q *metastore.RunQuery)) metastore.RunQuery {
			q := metastore.RunQuery{Tenant: "t", Limit: 1 + random.IntN(metastore.MaxPage)}
			set(&q)
			return q
		}
		middle := runs[len(runs)/2].Created
		filters := []func(q *metastore.RunQuery){
			func(q *metastore.RunQuery) {},
			func(q *metastore.RunQuery) { q.Job = "a.two" },
			func(q *metastore.RunQuery) { q.State = jobs.Succeeded },
			func(q *metastore.RunQuery) { q.State = jobs.Terminated },
			func(q *metastore.RunQuery) { q.App = "b" },
			func(q *metastore.RunQuery) { q.Worker = "w2" },
			func(q *metastore.RunQuery) { q.Worker = "none" },
			func(q *metastore.RunQuery) { q.Origin = kernel.FromCron },
			func(q *metastore.RunQuery) { q.Code = "LATE" },
			func(q *metastore.RunQuery) { q.Parent = jobs.ID{9} },
			func(q *metastore.RunQuery) { q.Match = "a.*" },
			func(q *metastore.RunQuery) { q.Match = "*.one" },
			func(q *metastore.RunQuery) { q.Match = "[ab].one" },
			func(q *metastore.RunQuery) { q.Jobs = []jobs.Key{"a.one", "b.one"} },
			func(q *metastore.RunQuery) { q.Jobs = []jobs.Key{} },
			func(q *metastore.RunQuery) { q.Args = []metastore.Arg{{Path: "n", Value: "c1"}} },
			func(q *metastore.RunQuery) { q.Args = []metastore.Arg{{Path: "n", Value: "7"}} },
			func(q *metastore.RunQuery) { q.From = middle },
			func(q *metastore.RunQuery) { q.To = middle },
			func(q *metastore.RunQuery) { q.From, q.To = middle, middle.Add(2*time.Hour) },
			func(q *metastore.RunQuery) { q.From = middle.Add(1) },
			func(q *metastore.RunQuery) { q.To = middle.Add(1) },
			func(q *metastore.RunQuery) {
				q.From, q.To = time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC), time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)
			},
		}
		for i, a := range filters {
			for j, b := range filters[i:] {
				q := one(func(q *metastore.RunQuery) { a(q); b(q) })
				if got, want := pages(t, h, q), pages(t, model, q); !reflect.DeepEqual(got, want) {
					t.Errorf("filters %d and %d, %d a page: %d runs, want %d", i, i+j, q.Limit, len(got), len(want))
				}
			}
		}
	})
}

// A database does not send the rows that a list does not show: of a rare worker's runs among many, hardly more than they
// are. (A driver reads all rows of a query, even those that are not wanted any more.)
func TestListsReadFewBodies(t *testing.T) {
	s := open(t, Config{URL: sqltest.Postgres.New(t)})
	h, _ := historyOf(t, s, 0)
	if err := h.within(t.Context(), func(tx *sql.Tx) error {
		_, err := s.dialect.fillRuns(t.Context(), tx, func(yield func(*kernel.Run, error) bool) {
			for n := range 10_000 {
				run := over(n, time.Date(2026, 11, 20, 15, 0, n, 0, time.UTC))
				if n%5_000 == 0 {
					run.Worker = "rare"
				}
				if !yield(run, nil) {
					return
				}
			}
		}, 1<<positionBits)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []metastore.RunQuery{{Tenant: "t", Limit: 50}, {Tenant: "t", Limit: 50, State: jobs.Succeeded}, {Tenant: "t", Worker: "rare", Limit: 1}} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		page, err := h.List(t.Context(), q)
		for err == nil && len(page.Runs) == 0 && page.Next != "" { // a busy machine finds none in its time
			q.Cursor = page.Next
			page, err = h.List(t.Context(), q)
		}
		if err != nil || len(page.Runs) != q.Limit {
			t.Errorf("%+v: %d runs, %v", q, len(page.Runs), err)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 3<<20 { // 10,000 runs take 10 MiB
			t.Errorf("%+v: %d bytes were allocated", q, n)
		}
	}
}

// Of a tenant that is being deleted nothing is kept: not the runs that were stored just now, and not those that were
// stored after its deletion although they ended before.
func TestRunsOfADeletedTenantArePurgedAtOnce(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := led(t, Config{URL: url})
		now := time.Now()
		do(t, s, kernel.SetTenant{Name: "t", Create: true}, kernel.SuspendTenant{Name: "t", On: true}, kernel.DeleteTenant{Name: "t"})
		h, lead := historyOf(t, s, 0)
		lead(true)
		h.settle(1, over(1, now), over(2, now))
		if err := h.settled(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := metastore.Retention{Now: now, Of: metastore.KeptBy(t.Context(), s, now)}
		if done, err := h.Retain(t.Context(), r); err != nil || done.Dropped != 2 {
			t.Errorf("%d runs are purged, %v; want 2", done.Dropped, err)
		}
	})
}
