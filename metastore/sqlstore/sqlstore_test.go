package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
	"github.com/carillon-scheduler/carillon/metastore/storetest"
)

// both runs a test on both databases.
func both(t *testing.T, fn func(t *testing.T, url string)) {
	t.Run("PostgreSQL", func(t *testing.T) { fn(t, sqltest.Postgres.New(t)) })
	t.Run("MariaDB", func(t *testing.T) { fn(t, sqltest.MariaDB.New(t)) })
}

func envelope(k kernel.Command) kernel.Envelope {
	return kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "client:test", Command: k}
}

func do(t testing.TB, s metastore.Applier, commands ...kernel.Command) []metastore.Result {
	t.Helper()
	batch := make([]kernel.Envelope, len(commands))
	for i, k := range commands {
		batch[i] = envelope(k)
	}
	results := s.Apply(t.Context(), batch)
	for i, r := range results {
		if r.Err != nil {
			t.Fatalf("%s: %v", commands[i].Verb(), r.Err)
		}
	}
	return results
}

func register(key jobs.Key) kernel.Register {
	return kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: key, Kind: kernel.Triggered}}
}

// create names a run of the time at which the clocks of tests begin.
func create(key jobs.Key) kernel.Create {
	return kernel.Create{ID: jobs.NewID(storetest.NewClock().Now()), Key: key}
}

// A name that a database cannot take as text is refused by itself, and does not affect other commands of its commit.
func TestNamesThatAreNoText(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := led(t, Config{URL: url})
		do(t, s, register("k"))
		ours := create("k")
		var batch []kernel.Envelope
		for _, text := range []string{"a\x00b", "\xff\xfe", "\xed\xa0\x80"} {
			u, i := create("k"), create("k")
			u.Unique, i.Idempotency = text, text
			batch = append(batch, envelope(u), envelope(i), envelope(kernel.Start{ID: ours.ID, Worker: "w-" + text, Attempt: 1}))
		}
		results := s.Apply(t.Context(), append(batch, envelope(ours)))
		for i, r := range results[:len(batch)] {
			if !errors.Is(r.Err, jobs.BadInput) {
				t.Errorf("%d: %v", i, r.Err)
			}
		}
		if err := results[len(batch)].Err; err != nil {
			t.Errorf("the other one: %v", err)
		}
	})
}

// Another process finds what one writes, and so does one after all of them have gone. Only the leader commits.
func TestReopen(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		a, b := open(t, Config{URL: url}), open(t, Config{URL: url})
		stop := leading(t, a)
		do(t, a, register("k"))
		k := create("k")
		do(t, a, k)
		if r := b.Apply(t.Context(), []kernel.Envelope{envelope(create("k"))}); !errors.Is(r[0].Err, jobs.Unavailable) {
			t.Errorf("a node that does not lead commits: %v", r[0].Err)
		}
		for _, s := range []*Store{a, b} {
			if err := s.Linearizable(t.Context()); err != nil {
				t.Fatal(err)
			}
			if run, err := s.Run(t.Context(), jobs.DefaultTenant, k.ID); err != nil || run.State != jobs.Enqueued {
				t.Errorf("%+v (%v)", run, err)
			}
			if !s.HasLeader() || !s.Whole() || s.Alone() || s.Age() > time.Minute {
				t.Errorf("has a leader: %v, whole: %v, alone: %v, %v old", s.HasLeader(), s.Whole(), s.Alone(), s.Age())
			}
		}
		stop()
		leading(t, b)
		do(t, b, kernel.Start{ID: k.ID, Worker: "w", Attempt: 1}, kernel.Finish{ID: k.ID, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess})
		if r := do(t, b, k)[0]; !r.Existing {
			t.Errorf("a create that was sent twice made %+v", r.Run())
		}
		for _, s := range []*Store{a, b} {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		run, err := open(t, Config{URL: url}).Run(t.Context(), jobs.DefaultTenant, k.ID)
		if err != nil || run.State != jobs.Succeeded || len(run.Moves) != 3 {
			t.Errorf("%+v (%v)", run, err)
		}
	})
}

// The database's clock is the store's.
func TestStampedByTheDatabase(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := led(t, Config{URL: url})
		var at int64
		if err := s.db.QueryRow("SELECT " + s.dialect.clock).Scan(&at); err != nil {
			t.Fatal(err)
		}
		do(t, s, register("k"))
		run := do(t, s, create("k"))[0].Run()
		if d := run.Created.Sub(time.Unix(0, at)); d < 0 || d > time.Minute {
			t.Errorf("created %v after the database's time", d)
		}
	})
}

func TestRefusesURLs(t *testing.T) {
	for url, want := range map[string]string{
		"sqlite://x":                       "want postgres, mariadb or mysql",
		"://":                              "invalid URL of the database",
		"mariadb://root:hush@h/db?ssl=yes": "want only socket and tls",
		"postgres://carillon:hush@127.0.0.1:1/db":                  "cannot be reached",
		"mariadb://root:hush@127.0.0.1:1/db":                       "cannot be reached",
		"postgres://carillon:hush@127.0.0.1:1/db?port=-4":          "",
		"postgres://carillon@127.0.0.1:1/db?password=hush":         "cannot be reached",
		"postgres://carillon@127.0.0.1:1/db?password=hush&port=-4": "",
		"mariadb://root@127.0.0.1:1/db?password=hush":              "want only socket and tls",
	} {
		_, err := Open(t.Context(), Config{URL: url})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// A database that accepts connections and never answers, as one that is frozen, is not waited for.
func TestADatabaseThatNeverAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // connections wait in its queue: nothing accepts them
	for _, url := range []string{"postgres://carillon@%s/db?sslmode=disable", "mariadb://root@%s/db"} {
		_, err := Open(t.Context(), Config{URL: fmt.Sprintf(url, l.Addr()), reachTime: 50 * time.Millisecond})
		if want := "cannot be reached: no answer within 50ms"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}

// Tables of a newer program are left alone.
func TestNewerTablesAreRefused(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := open(t, Config{URL: url})
		if _, err := s.db.Exec("INSERT INTO carillon_versions (version) VALUES (1000)"); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), Config{URL: url}); err == nil || !strings.Contains(err.Error(), "newer program") {
			t.Errorf("%v", err)
		}
	})
}

// Many processes may start at the same moment, and an interrupted one is continued.
func TestMigrations(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		errs := make(chan error)
		for range 4 {
			go func() {
				s, err := Open(context.Background(), Config{URL: url})
				if err == nil {
					err = s.Close()
				}
				errs <- err
			}()
		}
		for range 4 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		s := open(t, Config{URL: url})
		if s.dialect == postgres {
			return // there a file is done whole or not at all
		}
		for _, statement := range []string{"DELETE FROM carillon_versions", "DROP TABLE carillon_logs"} {
			if _, err := s.db.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := open(t, Config{URL: url}).Logs().Read(t.Context(), jobs.DefaultTenant, jobs.ID{1}, metastore.LogPosition{}, 1); err != nil {
			t.Error(err)
		}
	})
}

func TestLogs(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		logs := open(t, Config{URL: url}).Logs()
		line := func(n int, text string) metastore.LogLine {
			return metastore.LogLine{Tenant: "t", Run: jobs.ID{1}, LogPosition: metastore.LogPosition{Attempt: 1, Sequence: uint64(n)}, At: time.Unix(9, 0).UTC(), Level: "INFO", Text: text}
		}
		add := func(lines ...metastore.LogLine) {
			t.Helper()
			if err := logs.Append(t.Context(), lines); err != nil {
				t.Fatal(err)
			}
		}
		add(line(2, "two \x00 \xff"), line(1, "one"))
		add(line(2, "two, again"), line(3, "three"))
		got, err := logs.Read(t.Context(), "t", jobs.ID{1}, metastore.LogPosition{Attempt: 1, Sequence: 1}, 10)
		if err != nil || len(got) != 2 || got[0].Text != "two \x00 \xff" || got[1] != line(3, "three") {
			t.Errorf("%+v (%v)", got, err)
		}
		big := strings.Repeat("x", 8<<10)
		for n := 10; n < 200; n += 10 {
			var lines []metastore.LogLine
			for i := range 10 {
				lines = append(lines, line(n+i, big))
			}
			add(lines...)
		}
		var size, cut int
		all, err := logs.Read(t.Context(), "t", jobs.ID{1}, metastore.LogPosition{}, 10_000)
		for _, l := range all {
			size += l.Size()
			if strings.Contains(l.Text, "limit of 1 MiB") {
				cut++
			}
		}
		if err != nil || size > metastore.MaxLog+200 || cut != 1 {
			t.Errorf("%d bytes, %d cuts (%v)", size, cut, err)
		}
	})
}

func TestPrune(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
		s := led(t, Config{URL: url, Now: func() time.Time { return now }})
		do(t, s, register("k"))
		old, young, live := create("k"), create("k"), create("k")
		do(t, s, old, young, live)
		do(t, s, kernel.Cancel{ID: old.ID})
		now = now.Add(time.Hour)
		do(t, s, kernel.Cancel{ID: young.ID})
		if _, err := s.Retain(t.Context(), metastore.Retention{Now: now, Logs: time.Hour, Of: func(jobs.Tenant, jobs.Key) (kernel.Kept, error) {
			return kernel.Kept{Since: now.Add(-time.Minute)}, nil
		}}); err != nil {
			t.Fatal(err)
		}
		for id, there := range map[jobs.ID]bool{old.ID: false, young.ID: true, live.ID: true} {
			if _, err := s.Run(t.Context(), jobs.DefaultTenant, id); (err == nil) != there {
				t.Errorf("%s: %v", id, err)
			}
		}
	})
}

// When finished runs take more space than they may, the oldest go of the app that has more than its share, and no more
// than must; live ones stay.
func TestS0_26TheOldestRunsGoBeyondTheBytes(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := led(t, Config{URL: url})
		do(t, s, register("k"), register("quiet"))
		first := create("quiet")
		do(t, s, first, kernel.Cancel{ID: first.ID})
		const all = 1_200
		ids := make([]jobs.ID, all)
		var batch []kernel.Command
		for i := range ids {
			k := create("k")
			k.Args = fmt.Appendf(nil, `{"text":"%x"}`, noise(i)) // which no database makes much shorter
			ids[i] = k.ID
			if batch = append(batch, k, kernel.Cancel{ID: k.ID}); len(batch) == 200 {
				do(t, s, batch...)
				batch = nil
			}
		}
		live := create("k")
		do(t, s, live)
		there := func(id jobs.ID) bool {
			_, err := s.Run(t.Context(), jobs.DefaultTenant, id)
			if err != nil && jobs.CodeOf(err) != jobs.NotFound {
				t.Fatal(err)
			}
			return err == nil
		}
		if err := s.history.settled(t.Context()); err != nil {
			t.Fatal(err)
		}
		// MariaDB counts now and then.
		if _, err := s.db.ExecContext(t.Context(), s.dialect.analyze+"carillon_runs"); err != nil {
			t.Fatal(err)
		}
		done, err := s.Retain(t.Context(), metastore.Retention{Now: time.Now(), Bytes: 1_000_000,
			Of: func(_ jobs.Tenant, key jobs.Key) (kernel.Kept, error) { return kernel.Kept{App: string(key)}, nil }})
		if err != nil || done.Dropped < 600 || done.Dropped > 900 { // each has a little more than 2,000 bytes
			t.Fatalf("%+v, %v", done, err)
		}
		for i, id := range ids {
			if there(id) != (i >= done.Dropped) {
				t.Fatalf("run %d, of which the first %d should be gone: %t", i, done.Dropped, there(id))
			}
		}
		if !there(live.ID) {
			t.Error("a run that lives is gone")
		}
		if !there(first.ID) {
			t.Error("the run of an app within its share is gone")
		}
	})
}

func noise(n int) []byte {
	b := make([]byte, 1_000)
	source := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)})
	_, _ = source.Read(b)
	return b
}

// One leads at a time; the next one does when the first releases its lease, dies, or has lost its row.
func TestLead(t *testing.T) {
	tests.Long(t)
	both(t, func(t *testing.T, url string) {
		t.Parallel() // most of it is waiting for a lease
		type event struct {
			node string
			term uint64 // 0 = it ended
		}
		events := make(chan event, 16)
		start := func(node string) (s *Store, stop func()) {
			s = open(t, Config{URL: url, Node: node, leaseTime: longLease})
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() {
				defer close(done)
				if err := s.Lead(ctx, func(ctx context.Context, term uint64) error {
					events <- event{node, term}
					<-ctx.Done()
					events <- event{node, 0}
					return nil
				}); err != nil {
					t.Error(err)
				}
			}()
			return s, func() { cancel(); <-done }
		}
		next := func() event {
			t.Helper()
			select {
			case e := <-events:
				return e
			case <-time.After(30 * time.Second):
				t.Fatal("nothing happened")
				panic("not reached")
			}
		}
		_, stopA := start("a")
		if e := next(); e != (event{"a", 1}) {
			t.Fatalf("%+v", e)
		}
		b, stopB := start("b")
		defer stopB()
		select {
		case e := <-events:
			t.Fatalf("two lead: %+v", e)
		case <-time.After(2 * time.Second):
		}
		stopA() // releases the leadership
		if e := next(); e != (event{"a", 0}) {
			t.Fatalf("%+v", e)
		}
		if e := next(); e != (event{"b", 2}) {
			t.Fatalf("%+v", e)
		}
		// Another node took the row: b was frozen, for example.
		if _, err := b.db.Exec("UPDATE carillon_leader SET node = 'x', term = 7, until = 0"); err != nil {
			t.Fatal(err)
		}
		if e := next(); e != (event{"b", 0}) {
			t.Fatalf("%+v", e)
		}
		if e := next(); e != (event{"b", 8}) {
			t.Fatalf("%+v", e)
		}
		// It crashes: the lease is not released, and expires.
		b.crash(t)
		_, stopC := start("c")
		defer stopC()
		got := map[event]bool{next(): true, next(): true}
		if !got[event{"b", 0}] || !got[event{"c", 9}] {
			t.Errorf("%v", got)
		}
	})
}
