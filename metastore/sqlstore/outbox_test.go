package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
	"github.com/carillon-scheduler/carillon/outbox"
)

// within looks until ok or a generous deadline.
func within(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never came to this: " + what)
		}
	}
}

func count(t testing.TB, s *Store, query string, args ...any) (n int) {
	t.Helper()
	if err := s.db.QueryRow(s.dialect.ask(query), args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// tabled waits until the table of jobs has one.
func tabled(t testing.TB, s *Store, key string) {
	t.Helper()
	within(t, key+" is in the table of jobs", func() bool { return count(t, s, "SELECT COUNT(*) FROM carillon_jobs WHERE job = ?", key) == 1 })
}

// delivering delivers the outbox until the test ends.
func delivering(t testing.TB, s *Store, to metastore.Applier) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Deliver(ctx, func() bool { return true }, to) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A run that is requested in a transaction exists if that commits, and only then.
func TestEnqueueInATransaction(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := led(t, Config{URL: url})
		do(t, s, register("k"))
		tabled(t, s, "k")
		if _, err := s.db.Exec("CREATE TABLE orders (n integer)"); err != nil {
			t.Fatal(err)
		}
		delivering(t, s, s)
		box := s.Outbox("", "client:shop")
		in := func(commit bool, keys ...jobs.Key) (ids []jobs.ID, err error) {
			tx, err := s.db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback() }()
			if _, err := tx.Exec("INSERT INTO orders VALUES (1)"); err != nil {
				t.Fatal(err)
			}
			var requests []jobs.Request
			for _, k := range keys {
				requests = append(requests, jobs.Request{ID: jobs.NewID(time.Now()), Key: k})
				ids = append(ids, requests[len(requests)-1].ID)
			}
			if err := box.Enqueue(t.Context(), tx, requests...); err != nil {
				return ids, err
			}
			if commit {
				return ids, tx.Commit()
			}
			return ids, tx.Rollback()
		}
		exists := func(id jobs.ID) bool {
			_, err := s.Run(t.Context(), jobs.DefaultTenant, id)
			return err == nil
		}
		if _, err := in(true, "k", "unheard.of"); !errors.Is(err, jobs.NotFound) || !strings.Contains(err.Error(), "unheard.of") {
			t.Errorf("a job that is not known: %v", err)
		}
		back, err := in(false, "k")
		if err != nil {
			t.Fatal(err)
		}
		many := make([]jobs.Key, 1200)
		for i := range many {
			many[i] = "k"
		}
		ids, err := in(true, many...)
		if err != nil {
			t.Fatal(err)
		}
		within(t, "all runs are made", func() bool {
			for _, id := range ids {
				if !exists(id) {
					return false
				}
			}
			return true
		})
		if run, err := s.Run(t.Context(), jobs.DefaultTenant, ids[0]); err != nil || run.Actor != "client:shop" || run.State != jobs.Enqueued {
			t.Errorf("%+v (%v)", run, err)
		}
		if exists(back[0]) {
			t.Error("there is a run of a transaction that was rolled back")
		}
		within(t, "the outbox is empty", func() bool { return count(t, s, "SELECT COUNT(*) FROM carillon_outbox") == 0 })

		// What cannot be read, or is refused after all, stays with the reason, and holds up no others.
		if _, err := s.db.Exec("INSERT INTO carillon_outbox (envelope) VALUES ('?')" + strings.Repeat(", ('?')", 20)); err != nil {
			t.Fatal(err)
		}
		do(t, s, register("gone"))
		tabled(t, s, "gone")
		do(t, s, kernel.Delete{Key: "gone"})
		if _, err := s.db.Exec(s.dialect.ask("INSERT INTO carillon_outbox (envelope) VALUES (?)"), kernel.AppendEnvelopes(nil, []kernel.Envelope{envelope(create("gone"))})); err != nil {
			t.Fatal(err)
		}
		if ids, err = in(true, "k"); err != nil {
			t.Fatal(err)
		}
		within(t, "the request after them is done", func() bool { return exists(ids[0]) })
		within(t, "they are refused", func() bool {
			return count(t, s, "SELECT COUNT(*) FROM carillon_outbox WHERE refused_at IS NOT NULL") == 22
		})
		if n := count(t, s, "SELECT COUNT(*) FROM carillon_outbox WHERE refused LIKE '%no job%'"); n != 1 {
			t.Errorf("%d requests name the job that is gone", n)
		}
	})
}

// A request that the leader cannot take now stays, and is taken later.
func TestTheOutboxWaits(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := led(t, Config{URL: url})
		do(t, s, register("k"))
		e := create("k")
		if _, err := s.db.Exec(s.dialect.ask("INSERT INTO carillon_outbox (envelope) VALUES (?)"), kernel.AppendEnvelopes(nil, []kernel.Envelope{envelope(e)})); err != nil {
			t.Fatal(err)
		}
		for _, code := range []jobs.Code{jobs.Unavailable, jobs.Unknown, jobs.Exhausted} {
			if _, _, err := s.deliver(t.Context(), refusing(code), new(pass)); !errors.Is(err, code) {
				t.Errorf("%s: %v", code, err)
			}
			if n := count(t, s, "SELECT COUNT(*) FROM carillon_outbox WHERE refused_at IS NULL"); n != 1 {
				t.Errorf("%s: %d requests wait", code, n)
			}
		}
		for range 2 { // the second time as if the deletion had failed
			if n, _, err := s.deliver(t.Context(), s, new(pass)); n != 1 || err != nil {
				t.Errorf("%d requests (%v)", n, err)
			}
			if n := count(t, s, "SELECT COUNT(*) FROM carillon_outbox"); n != 0 {
				t.Errorf("%d requests are left", n)
			}
			if _, err := s.db.Exec(s.dialect.ask("INSERT INTO carillon_outbox (envelope) VALUES (?)"), kernel.AppendEnvelopes(nil, []kernel.Envelope{envelope(e)})); err != nil {
				t.Fatal(err)
			}
		}
		page, err := s.Runs(t.Context(), metastore.RunQuery{Tenant: jobs.DefaultTenant})
		if err != nil || len(page.Runs) != 1 {
			t.Errorf("%d runs (%v)", len(page.Runs), err)
		}
	})
}

// refusing is a store that refuses everything.
type refusing jobs.Code

func (r refusing) Apply(_ context.Context, batch []kernel.Envelope) []metastore.Result {
	return metastore.Refused(batch, kernel.Refuse(jobs.Code(r), "not now"))
}

// limiting is a store that takes so many requests of the tenant big, and all others.
type limiting struct {
	mu    sync.Mutex
	takes int
	tried []time.Time // when requests of big came
	taken map[jobs.Tenant][]jobs.ID
}

func (l *limiting) Apply(_ context.Context, batch []kernel.Envelope) []metastore.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	all, tried := make([]metastore.Result, len(batch)), false
	for i, e := range batch {
		if tried = tried || e.Tenant == "big"; e.Tenant == "big" {
			if l.takes == 0 {
				all[i].Err = kernel.Refuse(jobs.Exhausted, "too many waiting runs")
				continue
			}
			l.takes--
		}
		l.taken[e.Tenant] = append(l.taken[e.Tenant], e.Command.(kernel.Create).ID)
	}
	if tried {
		l.tried = append(l.tried, time.Now())
	}
	if len(batch) > outboxPart/2 {
		time.Sleep(headEvery * 3 / 2) // each request is looked up somewhere
	}
	return all
}

func (l *limiting) has(tenant jobs.Tenant) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.taken[tenant])
}

// A tenant that is over its limits holds up no other one, not even one whose row is committed late. Its requests stay
// in order, and are tried again without haste.
func TestATenantOverItsLimitsHoldsUpNoOther(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		var want []jobs.ID
		insert := func(in querier, tenant jobs.Tenant, n int) {
			t.Helper()
			args := make([]any, n)
			for i := range args {
				e := envelope(create("k"))
				if e.Tenant = tenant; tenant == "big" {
					want = append(want, e.Command.(kernel.Create).ID)
				}
				args[i] = kernel.AppendEnvelopes(nil, []kernel.Envelope{e})
			}
			if _, err := in.ExecContext(t.Context(), s.dialect.ask("INSERT INTO carillon_outbox (envelope) VALUES (?)"+strings.Repeat(", (?)", n-1)), args...); err != nil {
				t.Fatal(err)
			}
		}
		insert(s.db, "big", 2*outboxPart)
		late, err := s.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = late.Rollback() }()
		insert(late, "late", 1)
		insert(s.db, "big", outboxPart)
		insert(s.db, "small", 1)
		to := &limiting{takes: 10, taken: map[jobs.Tenant][]jobs.ID{}}
		delivering(t, s, to)
		within(t, "the request of another tenant is taken", func() bool { return to.has("small") == 1 })
		if n := to.has("big"); n != 10 {
			t.Errorf("%d requests of the tenant are taken", n)
		}
		insert(s.db, "small", 1)
		within(t, "the next one is taken, too", func() bool { return to.has("small") == 2 })
		if err := late.Commit(); err != nil {
			t.Fatal(err)
		}
		within(t, "the one that was committed late is taken", func() bool { return to.has("late") == 1 })
		time.Sleep(headEvery)
		to.mu.Lock()
		if most := 2 + int(to.tried[len(to.tried)-1].Sub(to.tried[0])/headEvery); len(to.tried) > most {
			t.Errorf("they were tried %d times, at most %d in that time is right", len(to.tried), most)
		}
		to.mu.Unlock()
		for to.has("big") < len(want) {
			to.mu.Lock()
			to.takes += 700
			to.mu.Unlock()
			time.Sleep(5 * time.Millisecond)
		}
		within(t, "the outbox is empty", func() bool { return count(t, s, "SELECT COUNT(*) FROM carillon_outbox") == 0 })
		if got := to.taken["big"]; !slices.Equal(got, want) {
			t.Errorf("%d requests of the tenant were taken, or not in their order", len(got))
		}
	})
}

// A program that may write to the outbox may request runs of jobs, and nothing else: no token, and no notification.
func TestOutboxTakesRuns(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := led(t, Config{URL: url})
		key := kernel.NotifyKey("app")
		do(t, s, register("k"), register(key))
		again := create(key)
		again.Origin = kernel.FromRetry
		tx, err := s.db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := s.Outbox("", "client:shop").Enqueue(t.Context(), tx, jobs.Request{Key: key}); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("a request for a notification: %v", err)
		}
		good := create("k")
		grant := kernel.Grant{Token: kernel.Token{ID: "aaaa1111", Name: "eve", Role: kernel.RoleAdmin, Hash: make([]byte, 32)}}
		for _, list := range [][]kernel.Envelope{{envelope(grant)}, {envelope(again)}, {envelope(create("k")), envelope(create("k"))}, {envelope(good)}} {
			if _, err := s.db.Exec(s.dialect.ask("INSERT INTO carillon_outbox (envelope) VALUES (?)"), kernel.AppendEnvelopes(nil, list)); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := s.deliver(t.Context(), s, new(pass)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(t.Context(), jobs.DefaultTenant, good.ID); err != nil {
			t.Errorf("a request after them: %v", err)
		}
		if _, err := s.Run(t.Context(), jobs.DefaultTenant, again.ID); !errors.Is(err, jobs.NotFound) {
			t.Errorf("a notification was started: %v", err)
		}
		if list, err := s.Tokens(t.Context(), jobs.DefaultTenant); err != nil || len(list) > 0 {
			t.Errorf("tokens were granted: %+v, %v", list, err)
		}
		if left, refused := count(t, s, "SELECT COUNT(*) FROM carillon_outbox"), count(t, s, "SELECT COUNT(refused_at) FROM carillon_outbox"); left != 3 || refused != 3 {
			t.Errorf("%d requests are left, %d of them refused", left, refused)
		}
	})
}

// The same inside a transaction of pgx, with the tables in a schema of their own, by a user that may do nothing else.
func TestEnqueuePgx(t *testing.T) {
	url := sqltest.Postgres.New(t)
	s := led(t, Config{URL: url})
	do(t, s, register("k"))
	tabled(t, s, "k")
	for _, q := range []string{"CREATE ROLE enqueuer", "GRANT INSERT (envelope) ON carillon_outbox TO enqueuer", "GRANT SELECT ON carillon_jobs TO enqueuer"} {
		if _, err := s.db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if _, err := s.db.Exec("DROP OWNED BY enqueuer; DROP ROLE enqueuer"); err != nil {
			t.Error(err)
		}
	})
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	kept, dropped := jobs.Request{ID: jobs.NewID(time.Now()), Key: "k"}, jobs.Request{ID: jobs.NewID(time.Now()), Key: "k"}
	for _, k := range []jobs.Request{dropped, kept} {
		tx, err := c.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "SET LOCAL ROLE enqueuer; SET LOCAL search_path TO pg_catalog"); err != nil {
			t.Fatal(err)
		}
		if err := outbox.EnqueuePgx(t.Context(), outbox.Outbox{Schema: "public"}, tx, k); err != nil {
			t.Fatal(err)
		}
		end := tx.Commit
		if k.ID == dropped.ID {
			end = tx.Rollback
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.deliver(t.Context(), s, new(pass)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), jobs.DefaultTenant, kept.ID); err != nil {
		t.Error(err)
	}
	if _, err := s.Run(t.Context(), jobs.DefaultTenant, dropped.ID); !errors.Is(err, jobs.NotFound) {
		t.Errorf("rolled back: %v", err)
	}
}

// The table of jobs follows the jobs. A new term's leader writes all of it, and a former one nothing more.
func TestTableOfJobs(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := led(t, Config{URL: url})
		do(t, s, register("a"), register("b"))
		tabled(t, s, "a")
		tabled(t, s, "b")
		do(t, s, kernel.Pause{Key: "a", Reason: "test"}, kernel.Delete{Key: "b"})
		within(t, "the table follows", func() bool {
			return count(t, s, "SELECT COUNT(*) FROM carillon_jobs") == 1 && count(t, s, "SELECT COUNT(*) FROM carillon_jobs WHERE job = 'a' AND paused AND created_at > '2000-01-01'") == 1
		})
		if _, err := s.db.Exec("DELETE FROM carillon_jobs"); err != nil {
			t.Fatal(err)
		}
		term := s.log.Term()
		if _, err := s.writeChanged(t.Context(), term, 0, false); err != nil {
			t.Error(err)
		}
		tabled(t, s, "a")
		if _, err := s.writeChanged(t.Context(), term-1, 0, false); !errors.Is(err, errLaterTerm) {
			t.Errorf("a former leader: %v", err)
		}
	})
}

// BenchmarkOutbox is requests in transactions of 100 by eight clients, until their runs are in the log, and beside it
// the clients' transactions without requests.
func BenchmarkOutbox(b *testing.B) {
	for name, kind := range map[string]*sqltest.Kind{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB} {
		for _, requests := range []int{0, 1, 100} {
			b.Run(fmt.Sprintf("%s/%d", name, requests), func(b *testing.B) {
				url := kind.New(b)
				s := led(b, Config{URL: url})
				do(b, s, register("k"))
				tabled(b, s, "k")
				delivering(b, s, s)
				db := kind.Open(b, url)
				if _, err := db.Exec("CREATE TABLE orders (n integer)"); err != nil {
					b.Fatal(err)
				}
				box := s.Outbox("", "client:shop")
				var clients sync.WaitGroup
				each := b.N/8 + 1
				b.ResetTimer()
				for range 8 {
					clients.Go(func() {
						for range each {
							if err := ordered(b.Context(), db, box, requests); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				clients.Wait()
				b.ReportMetric(float64(8*each)/b.Elapsed().Seconds(), "transactions/s")
				within(b, "all is delivered", func() bool { return count(b, s, "SELECT COUNT(*) FROM carillon_outbox") == 0 })
				b.ReportMetric(float64(8*each*requests)/b.Elapsed().Seconds(), "requests/s")
			})
		}
	}
}

// ordered is a program's transaction with requests in it.
func ordered(ctx context.Context, db *sql.DB, box outbox.Outbox, requests int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (1)"); err != nil {
		return err
	}
	list := make([]jobs.Request, requests)
	for i := range list {
		list[i].Key = "k"
	}
	if err := box.Enqueue(ctx, tx, list...); err != nil {
		return err
	}
	return tx.Commit()
}
