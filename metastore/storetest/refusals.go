package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// The refusals of a store. The codes survive every courier.

func refusals(t *testing.T, open func(t *testing.T) Harness) {
	t.Run("reads of what is not there", func(t *testing.T) {
		h, ctx := open(t), t.Context()
		if _, err := h.Store.Definition(ctx, "absent", "none"); !errors.Is(err, jobs.NotFound) {
			t.Errorf("a job: %v", err)
		}
		if _, err := h.Store.Run(ctx, "absent", jobs.ID{1}); !errors.Is(err, jobs.NotFound) {
			t.Errorf("a run: %v", err)
		}
		if g, err := h.Store.Global(ctx, "absent"); err != nil || g == nil {
			t.Errorf("the settings of a tenant without rows: %v, %v", g, err)
		}
		if p, err := h.Store.Runs(ctx, metastore.RunQuery{Tenant: "absent"}); err != nil || len(p.Runs) > 0 || p.Next != "" {
			t.Errorf("a list: %+v, %v", p, err)
		}
		if l, err := h.Store.Ledger(ctx, "absent", jobs.ID{1}, 10); err != nil || len(l) > 0 {
			t.Errorf("a ledger: %v, %v", l, err)
		}
		for _, forged := range []string{"x", "00000000", "../../etc/passwd", "' OR 1=1--"} {
			if _, err := h.Store.Runs(ctx, metastore.RunQuery{Tenant: "absent", Cursor: forged}); !errors.Is(err, jobs.BadInput) {
				t.Errorf("the forged cursor %q: %v", forged, err)
			}
		}
	})
	t.Run("reads by names that nothing has", func(t *testing.T) {
		h, ctx := open(t), t.Context()
		must(t, h, triggered("k", kernel.Settings{}))
		must(t, h, kernel.Create{ID: jobs.ID{1}, Key: "k"})
		must(t, h, kernel.Start{ID: jobs.ID{1}, Worker: "w", Attempt: 1})
		for _, name := range []string{"' OR 1=1--", `\`, "%", "_", "W", "w ", "\x00", "\xff", "w\x00"} {
			p, err := h.Store.Runs(ctx, metastore.RunQuery{Tenant: jobs.DefaultTenant, Worker: name})
			if err != nil && !errors.Is(err, jobs.BadInput) || len(p.Runs) > 0 {
				t.Errorf("runs of worker %q: %d, %v", name, len(p.Runs), err)
			}
			if _, err := h.Store.Definitions(ctx, metastore.DefinitionQuery{Tenant: jobs.DefaultTenant, After: jobs.Key(name)}); err != nil && !errors.Is(err, jobs.BadInput) {
				t.Errorf("jobs after %q: %v", name, err)
			}
		}
	})
	t.Run("names are bytes", func(t *testing.T) {
		h, ctx := open(t), t.Context()
		for i, key := range []jobs.Key{"report", "Report", "REPORT"} {
			must(t, h, triggered(key, kernel.Settings{}))
			must(t, h, kernel.Create{ID: jobs.ID{byte(i + 1)}, Key: key})
			p, err := h.Store.Runs(ctx, metastore.RunQuery{Tenant: jobs.DefaultTenant, Job: key})
			if err != nil || len(p.Runs) != 1 || p.Runs[0].Key != key {
				t.Errorf("runs of %s: %+v, %v", key, p.Runs, err)
			}
		}
		if _, err := h.Store.Definition(ctx, jobs.DefaultTenant, "rEPORT"); !errors.Is(err, jobs.NotFound) {
			t.Errorf("a key in another case: %v", err)
		}
		// Equal in some collation: by case, accents, blanks at the end, width, and how an accent is written.
		for i, unique := range []string{"k", "K", "\u212a", "k ", "ｋ", "é", "e\u0301", "e", "ß", "ss"} {
			id := jobs.ID{2, byte(i + 1)}
			if e := must(t, h, kernel.Create{ID: id, Key: "report", Unique: unique}); e.Run().ID != id {
				t.Errorf("unique key %q is taken for another", unique)
			}
		}
	})
	t.Run("an empty batch", func(t *testing.T) {
		if r := open(t).Store.Apply(t.Context(), nil); len(r) != 0 {
			t.Errorf("%d answers", len(r))
		}
	})
	t.Run("a caller that has left", func(t *testing.T) {
		h := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := h.Store.Apply(ctx, envelope(jobs.ID{1}, triggered("k", kernel.Settings{})))
		if c := jobs.CodeOf(r[0].Err); r[0].Err == nil || c != jobs.Unavailable && c != jobs.Unknown {
			t.Errorf("got %v", r[0].Err)
		}
	})
	t.Run("the sender's clock is ignored", func(t *testing.T) {
		h := open(t)
		e := envelope(jobs.ID{1}, triggered("k", kernel.Settings{}))
		e[0].At = Start.AddDate(-20, 0, 0)
		r := h.Store.Apply(t.Context(), e)
		if r[0].Err != nil || r[0].Definition().Created.Equal(e[0].At) {
			t.Errorf("created at the sender's time: %v", r[0].Err)
		}
		if !e[0].At.Equal(Start.AddDate(-20, 0, 0)) {
			t.Error("the caller's batch was stamped")
		}
	})
	t.Run("each has its own answer", func(t *testing.T) {
		h := open(t)
		must(t, h, triggered("k", kernel.Settings{}))
		batch := []kernel.Envelope{
			{ID: jobs.ID{1}, Tenant: "default", Actor: "a", Command: kernel.Create{ID: jobs.ID{1}, Key: "k"}},
			{ID: jobs.ID{2}, Tenant: "default", Actor: "a", Command: kernel.Create{ID: jobs.ID{2}, Key: "none"}},
			{ID: jobs.ID{3}, Tenant: "default", Actor: "a", Command: kernel.Create{Key: "k"}},
			{ID: jobs.ID{4}, Tenant: "default", Actor: "a"},
			{ID: jobs.ID{5}, Tenant: "default", Command: kernel.Create{ID: jobs.ID{5}, Key: "k"}},
			{ID: jobs.ID{6}, Tenant: "default", Actor: "a", Command: kernel.Start{ID: jobs.ID{1}, Worker: "w", Attempt: 2}},
			{ID: jobs.ID{7}, Tenant: "default", Actor: "a", Command: kernel.Start{ID: jobs.ID{1}, Worker: "w", Attempt: 1}},
			{ID: jobs.ID{8}, Tenant: "other", Actor: "a", Command: kernel.Cancel{ID: jobs.ID{1}}},
		}
		want := []jobs.Code{"", jobs.NotFound, jobs.BadInput, jobs.BadInput, jobs.BadInput, jobs.Stale, "", jobs.NotFound}
		if batch[4].Actor == "" && !signs(h) {
			batch[4].Actor, want[4] = "a", ""
		}
		for i, r := range h.Store.Apply(t.Context(), batch) {
			if want[i] == "" && r.Err != nil || want[i] != "" && !errors.Is(r.Err, want[i]) {
				t.Errorf("command %d: %v, want %q", i, r.Err, want[i])
			}
		}
	})
}

// signs reports whether the store refuses an envelope without an actor. A courier may fill it in instead.
func signs(h Harness) bool {
	r := h.Store.Apply(context.Background(), []kernel.Envelope{{ID: jobs.ID{9}, Tenant: "default", Command: kernel.Forget{Name: "x"}}})
	return r[0].Err != nil
}
