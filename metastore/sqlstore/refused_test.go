package sqlstore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// newRequests writes requests into the outbox, as programs of other versions may.
func newRequests(t *testing.T, s *Store, rows ...[]byte) {
	t.Helper()
	for _, b := range rows {
		if _, err := s.db.Exec(s.dialect.ask("INSERT INTO carillon_outbox (envelope) VALUES (?)"), b); err != nil {
			t.Fatal(err)
		}
	}
}

func listRefused(t *testing.T, s *Store, tenant jobs.Tenant, limit int) ([]metastore.RefusedRequest, []int64) {
	t.Helper()
	list, err := s.Refused(t.Context(), tenant, limit)
	if err != nil {
		t.Fatal(err)
	}
	var numbers []int64
	for _, r := range list {
		numbers = append(numbers, r.Number)
	}
	return list, numbers
}

// A request that is refused after its transaction is listed with the reason, until it is retried or discarded.
func TestRefusedRequests(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		later := time.Duration(0)
		s := led(t, Config{URL: url, Now: func() time.Time { return time.Now().Add(later) }})
		ctx, tenant := t.Context(), jobs.DefaultTenant
		deliver := func() {
			t.Helper()
			if _, _, err := s.deliver(ctx, s, new(pass)); err != nil {
				t.Fatal(err)
			}
		}
		row := func(e kernel.Envelope) []byte { return kernel.AppendEnvelopes(nil, []kernel.Envelope{e}) }
		do(t, s, register("k"), kernel.Delete{Key: "k"})
		first, second, foreign := envelope(create("k")), envelope(create("k")), envelope(create("k"))
		first.Actor, foreign.Tenant = "client:shop", "other"
		newRequests(t, s, row(first), []byte("?"), row(foreign), row(second))
		if list, _ := listRefused(t, s, tenant, 0); len(list) > 0 {
			t.Errorf("before the delivery: %+v", list)
		}
		deliver()
		list, numbers := listRefused(t, s, tenant, 0)
		if len(list) != 3 || !slices.IsSortedFunc(list, func(a, b metastore.RefusedRequest) int { return int(b.Number - a.Number) }) {
			t.Fatalf("refused: %+v", list)
		}
		if r := list[1]; !r.Unreadable || r.Tenant != tenant || !strings.HasPrefix(r.Reason, "the request cannot be read: ") || r.Key != "" || !r.Run.IsZero() {
			t.Errorf("an unreadable request: %+v", r)
		}
		r := list[2]
		if age := time.Since(r.At).Abs(); age > time.Hour || r.At.Location() != time.UTC {
			t.Errorf("refused at %v", r.At)
		}
		if r.At = (time.Time{}); r != (metastore.RefusedRequest{Number: numbers[2], Tenant: tenant, Actor: "client:shop", Key: "k", Run: first.Command.(kernel.Create).ID, Reason: r.Reason}) || !strings.Contains(r.Reason, `no job "k"`) {
			t.Errorf("the first request: %+v", r)
		}
		if one, _ := listRefused(t, s, tenant, 1); len(one) != 1 || one[0] != list[0] {
			t.Errorf("a list of one: %+v", one)
		}
		others, theirs := listRefused(t, s, "other", 0)
		if len(others) != 1 || others[0].Tenant != "other" {
			t.Errorf("of another tenant: %+v", others)
		}

		// Others' requests, and numbers that do not exist, are ignored.
		change := func(name string, fn func() (int, error), want int) {
			t.Helper()
			if n, err := fn(); err != nil || n != want {
				t.Errorf("%s: %d requests, %v; want %d", name, n, err, want)
			}
		}
		retry := func(numbers ...int64) func() (int, error) {
			return func() (int, error) { return s.RetryRefused(ctx, tenant, numbers) }
		}
		discard := func(numbers ...int64) func() (int, error) {
			return func() (int, error) { return s.DiscardRefused(ctx, tenant, numbers) }
		}
		change("retry of no number", retry(), 0)
		change("retry of others", retry(theirs[0], 0, -1, 1<<62), 0)
		change("discard of others", discard(theirs[0], 1<<62), 0)
		if _, left := listRefused(t, s, "other", 0); len(left) != 1 {
			t.Errorf("another tenant's request: %v", left)
		}

		// The scheduler would repeat its refusal for a while.
		if n, err := s.RetryRefused(ctx, tenant, numbers); !errors.Is(err, jobs.Conflict) || n != 0 || !strings.Contains(err.Error(), "less than 1m0s ago: retry it in ") {
			t.Errorf("an early retry: %d, %v", n, err)
		}
		if _, left := listRefused(t, s, tenant, 0); !slices.Equal(left, numbers) {
			t.Errorf("after an early retry: %v, want %v", left, numbers)
		}
		wait := func() {
			t.Helper()
			later += 2 * metastore.KeepFinal
			if _, err := s.db.Exec(s.dialect.ask("UPDATE carillon_outbox SET refused_at = refused_at - ?"), int64(2*metastore.KeepFinal)); err != nil {
				t.Fatal(err)
			}
		}

		// A request for a job that still does not exist is refused again; the unreadable one is listed again.
		wait()
		change("retry", retry(numbers...), 3)
		change("retry of what is not refused", retry(numbers...), 0)
		change("discard of what is not refused", discard(numbers...), 0)
		deliver()
		if _, again := listRefused(t, s, tenant, 0); !slices.Equal(again, numbers) {
			t.Errorf("refused again: %v, want %v", again, numbers)
		}

		// Once the job exists, the retried request makes its run, and only that one.
		wait()
		do(t, s, register("k"))
		change("retry of the first", retry(numbers[2]), 1)
		deliver()
		if run, err := s.Run(ctx, tenant, first.Command.(kernel.Create).ID); err != nil || run.Actor != "client:shop" {
			t.Errorf("a retried request: %+v, %v", run, err)
		}
		if _, err := s.Run(ctx, tenant, second.Command.(kernel.Create).ID); !errors.Is(err, jobs.NotFound) {
			t.Errorf("a request that was not retried: %v", err)
		}
		change("discard", discard(append(numbers, numbers...)...), 2)
		deliver()
		if left, _ := listRefused(t, s, tenant, 0); len(left) > 0 {
			t.Errorf("discarded requests are listed: %+v", left)
		}
		if _, err := s.Run(ctx, tenant, second.Command.(kernel.Create).ID); !errors.Is(err, jobs.NotFound) {
			t.Errorf("a discarded request: %v", err)
		}
	})
}

// A request that an older leader could not read is listed until a newer one delivers it.
func TestRefusedUntilReadable(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := led(t, Config{URL: url})
		do(t, s, register("k"))
		e := envelope(create("k"))
		newRequests(t, s, kernel.AppendEnvelopes(nil, []kernel.Envelope{e}))
		if _, err := s.db.Exec("UPDATE carillon_outbox SET refused_at = 1"); err != nil { // by an older leader
			t.Fatal(err)
		}
		if list, _ := listRefused(t, s, jobs.DefaultTenant, 0); len(list) != 1 || !list[0].Unreadable || list[0].Key != "k" || !strings.Contains(list[0].Reason, "a newer program wrote it") {
			t.Errorf("listed: %+v", list)
		}
		if err := s.openUnreadable(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.deliver(t.Context(), s, new(pass)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(t.Context(), jobs.DefaultTenant, e.Command.(kernel.Create).ID); err != nil {
			t.Error(err)
		}
		if list, _ := listRefused(t, s, jobs.DefaultTenant, 0); len(list) > 0 {
			t.Errorf("a delivered request is listed: %+v", list)
		}
	})
}

// Long lists are read and changed in parts, and requests of other tenants do not hide those of one.
func TestRefusedInParts(t *testing.T) {
	both(t, func(t *testing.T, url string) {
		s := led(t, Config{URL: url})
		mine, foreign := envelope(create("k")), envelope(create("k"))
		foreign.Tenant = "other"
		var rows [][]byte
		for range 3 {
			rows = append(rows, kernel.AppendEnvelopes(nil, []kernel.Envelope{mine}))
		}
		for range 2*refusedPart + 1 {
			rows = append(rows, kernel.AppendEnvelopes(nil, []kernel.Envelope{foreign}))
		}
		newRequests(t, s, rows...)
		if err := s.refuse(t.Context(), 1, strings.Repeat("x", refusedText-1)+"ß\x00"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.db.Exec("UPDATE carillon_outbox SET refused = 'no', refused_at = 1 WHERE id > 1"); err != nil {
			t.Fatal(err)
		}
		list, numbers := listRefused(t, s, jobs.DefaultTenant, 0)
		if !slices.Equal(numbers, []int64{3, 2, 1}) {
			t.Fatalf("listed: %v", numbers)
		}
		if r := list[2].Reason; r != strings.Repeat("x", refusedText-1) {
			t.Errorf("a long reason has %d bytes: ...%q", len(r), r[len(r)-10:])
		}
		if _, all := listRefused(t, s, "other", 1_000); len(all) != metastore.MaxPage {
			t.Errorf("a page has %d requests", len(all))
		}
		if n, err := s.DiscardRefused(t.Context(), "other", slices.Collect(func(yield func(int64) bool) {
			for n := range int64(1_000) {
				if !yield(n) {
					return
				}
			}
		})); err != nil || n != 2*refusedPart+1 {
			t.Errorf("%d requests were discarded, %v", n, err)
		}
		if _, left := listRefused(t, s, jobs.DefaultTenant, 0); len(left) != 3 {
			t.Errorf("left: %v", left)
		}
	})
}
