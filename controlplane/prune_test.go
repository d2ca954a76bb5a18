package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// keeper is a control plane over a store whose clock the test sets.
type keeper struct {
	t  *testing.T
	cp *ControlPlane
	st *metastore.Local
	at time.Time
	n  int
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	k := &keeper{t: t, at: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	k.st = &metastore.Local{Engine: memstore.New(memstore.Config{}), Now: func() time.Time { return k.at }}
	cp, err := New(Config{Node: "n1", Store: k.st, Bus: membus.New().As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"})})
	if err != nil {
		t.Fatal(err)
	}
	k.cp = cp
	return k
}

func (k *keeper) send(tenant jobs.Tenant, c kernel.Command) {
	k.t.Helper()
	k.n++
	if r := k.st.Apply(k.t.Context(), []kernel.Envelope{{ID: kernel.DerivedID(fmt.Sprint(k.n)), Tenant: tenant, Actor: "person:ann", Command: c}})[0]; r.Err != nil {
		k.t.Fatal(r.Err)
	}
}

// trim does the duty after d, and returns what would be purged by the end of time.
func (k *keeper) trim(d time.Duration) (left int) {
	k.t.Helper()
	k.at = k.at.Add(d)
	if err := k.cp.trim(k.t.Context(), k.at); err != nil {
		k.t.Fatal(err)
	}
	refs, err := k.st.Aged(k.t.Context(), k.at.AddDate(1, 0, 0), 1_000_000)
	if err != nil {
		k.t.Fatal(err)
	}
	hours, err := k.st.Hourly(k.t.Context(), k.at.AddDate(1, 0, 0), 1_000_000)
	if err != nil {
		k.t.Fatal(err)
	}
	return len(refs) + len(hours)
}

// Data older than five weeks is purged, of all tenants, in any amount; younger data stays.
func TestHistoryIsPurged(t *testing.T) {
	k := newKeeper(t)
	k.send(jobs.DefaultTenant, kernel.SetTenant{Name: "other", Create: true})
	const each = 700 // more than one Trim holds, of both together
	for _, tenant := range []jobs.Tenant{jobs.DefaultTenant, "other"} {
		for i := range each {
			key := jobs.Key(fmt.Sprint("job", i))
			k.send(tenant, kernel.Register{App: "a", Worker: "w", Start: true, Job: kernel.Declaration{Key: key, Kind: kernel.Triggered}})
			k.send(tenant, kernel.Create{ID: kernel.DerivedID(string(tenant), string(key)), Key: key})
		}
	}
	k.at = k.at.Add(2 * time.Hour)
	for i := range each {
		k.send("other", kernel.Delete{Key: jobs.Key(fmt.Sprint("job", i))})
	}
	const tallies, gone = 2 * each, each
	if left := k.trim(0); left != tallies+gone {
		t.Fatalf("%d rows will be history, want %d tallies and %d deleted jobs", left, tallies, gone)
	}
	if left := k.trim(kernel.KeepHistory - 30*time.Minute); left != tallies+gone {
		t.Errorf("%d rows are left before their time, want %d", left, tallies+gone)
	}
	if left := k.trim(time.Hour); left != tallies {
		t.Errorf("%d rows are left, want the %d tallies of the first day", left, tallies)
	}
	if left := k.trim(10 * time.Hour); left != 0 {
		t.Errorf("%d rows are left", left)
	}
	if all, err := k.st.Definitions(t.Context(), metastore.DefinitionQuery{Tenant: "*"}); err != nil || len(all) != each {
		t.Errorf("%d jobs are left, want %d: %v", len(all), each, err)
	}
}

// Hours are counted apart for 48 hours, and then with their day, of any number of jobs. With them a job has few rows.
func TestHoursBecomeDays(t *testing.T) {
	k := newKeeper(t)
	const jobsOf, days = 1100, 5 // more than one command holds
	spans := func() (hours, all int) {
		for row := range k.st.Engine.(*memstore.Engine).Capture().Rows() {
			if t, ok := row.(*kernel.Tally); ok {
				if all++; t.Span == kernel.Hour {
					hours++
				}
			}
		}
		return hours, all
	}
	for i := range jobsOf {
		k.send(jobs.DefaultTenant, kernel.Register{App: "a", Worker: "w", Start: true, Job: kernel.Declaration{Key: jobs.Key(fmt.Sprint("job", i)), Kind: kernel.Triggered}})
		k.send(jobs.DefaultTenant, kernel.Create{ID: kernel.DerivedID(fmt.Sprint("first", i)), Key: jobs.Key(fmt.Sprint("job", i))})
	}
	for hour := range days * 24 {
		k.send(jobs.DefaultTenant, kernel.Create{ID: kernel.DerivedID(fmt.Sprint("hour", hour)), Key: "job0"})
		k.trim(time.Hour)
	}
	k.trim(0)
	if hours, all := spans(); hours != 48 || all != 48+4+jobsOf-1 {
		t.Errorf("%d hours of %d tallies, want 48 of %d", hours, all, 48+4+jobsOf-1)
	}
	c, err := k.st.Counts(t.Context(), metastore.CountQuery{Tenant: jobs.DefaultTenant, From: time.Unix(1, 0)})
	total := int64(0)
	for _, t := range c.Tallies {
		total += t.Runs[jobs.Enqueued]
	}
	if err != nil || total != days*24+jobsOf {
		t.Errorf("%d runs are counted, want %d: %v", total, days*24+jobsOf, err)
	}
}

// The leader purges what has expired without being asked: a session, a minute after its end.
func TestExpiredSessionsArePurged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		k.st.Now = time.Now
		k.at = time.Now()
		go func() { _ = k.cp.Run(t.Context()) }()
		session := kernel.Session{ID: strings.Repeat("a", 64), Token: "aaaa1111", Until: k.at.Add(10 * time.Minute)}
		k.send(jobs.DefaultTenant, kernel.Grant{Token: kernel.Token{ID: session.Token, Name: "ann", Role: kernel.RoleAdmin, Hash: make([]byte, 32)}})
		k.send(jobs.DefaultTenant, kernel.SignIn{Session: session})
		time.Sleep(9 * time.Minute)
		if _, err := k.st.Session(t.Context(), jobs.DefaultTenant, session.ID); err != nil {
			t.Errorf("a session that is not over: %v", err)
		}
		time.Sleep(3 * time.Minute)
		if s, err := k.st.Session(t.Context(), jobs.DefaultTenant, session.ID); !errors.Is(err, jobs.NotFound) {
			t.Errorf("an expired session is still there: %v, %v", s, err)
		}
	})
}

// A flood of idempotency keys leaves nothing behind when they have expired.
func TestIdempotencyKeysAreForgotten(t *testing.T) {
	k := newKeeper(t)
	k.send(jobs.DefaultTenant, kernel.Register{App: "a", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered}})
	const keys = 2500 // more than one pass asks for
	for i := range keys {
		k.send(jobs.DefaultTenant, kernel.Create{ID: kernel.DerivedID("run", fmt.Sprint(i)), Key: "k", Idempotency: fmt.Sprint("key", i)})
	}
	kept := func() int {
		refs, err := k.st.Expired(t.Context(), k.at.AddDate(1, 0, 0), 1_000_000)
		if err != nil {
			t.Fatal(err)
		}
		return len(refs)
	}
	begun := k.at
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{kernel.IdempotencyLife - time.Second, keys}, {kernel.IdempotencyLife + time.Second, 0}} {
		k.at = begun.Add(c.after)
		if err := k.cp.forget(t.Context(), k.at); err != nil {
			t.Fatal(err)
		}
		if n := kept(); n != c.want {
			t.Errorf("after %v there are %d keys, want %d", c.after, n, c.want)
		}
	}
}

// ahead is a store whose clock is behind that of its clients. It does not answer queries for expired data.
type ahead struct {
	*metastore.Local
	asked int
}

func (a *ahead) Expired(ctx context.Context, now time.Time, limit int) ([]kernel.Ref, error) {
	if a.asked++; a.asked > 3 {
		return nil, errors.New("asked for the same ones again and again")
	}
	return a.Local.Expired(ctx, now, limit)
}

// A key that has expired by the leader's clock and not yet by the store's is left to the next pass.
func TestForgetWaitsForTheStoresClock(t *testing.T) {
	k := newKeeper(t)
	st := &ahead{Local: k.st}
	k.cp.cfg.Store = st
	k.send(jobs.DefaultTenant, kernel.Register{App: "a", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered}})
	k.send(jobs.DefaultTenant, kernel.Create{ID: kernel.DerivedID("once"), Key: "k", Unique: "once", UniqueFor: time.Minute})
	if err := k.cp.forget(t.Context(), k.at.Add(2*time.Minute)); err != nil || st.asked != 1 {
		t.Errorf("asked %d times: %v", st.asked, err)
	}
	k.at, st.asked = k.at.Add(2*time.Minute), 0
	if err := k.cp.forget(t.Context(), k.at); err != nil || st.asked != 2 {
		t.Errorf("when it has lapsed, asked %d times: %v", st.asked, err)
	}
}

// Data is old by the clock that stamps it, which a wrong wall clock does not move. Here the bare one is a year ahead.
func TestHistoryIsOldByTheStoresClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t)
		k.cp.cfg.Clock = &metastore.Clock{Wall: func() time.Time { return time.Now().AddDate(-1, 0, 0) }}
		k.cp.cfg.KeepCounts = 400 * 24 * time.Hour
		k.st.Now = func() time.Time { return k.cp.cfg.Clock.Now().AddDate(0, 0, -100) }
		k.send(jobs.DefaultTenant, kernel.Register{App: "a", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered}})
		k.send(jobs.DefaultTenant, kernel.Create{ID: kernel.DerivedID("one"), Key: "k"})
		k.st.Now = k.cp.cfg.Clock.Now
		go func() { _ = k.cp.Run(t.Context()) }()
		time.Sleep(3 * pruneEvery)
		if refs, err := k.st.Aged(t.Context(), time.Now(), 10); err != nil || len(refs) == 0 {
			t.Errorf("of an hour a hundred days ago %d rows are left: %v", len(refs), err)
		}
	})
}
