package storetest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// Lives: long lists of random commands, many of them wrong or late, for the store and for a model, the store in
// memory. Both must give the same answers, byte for byte, and return the same to every read.

// Model is the store in memory, as a harness.
func Model() Harness {
	clock, archive := NewClock(), memstore.NewArchive(0)
	engine := memstore.New(memstore.Config{Archive: archive})
	return Harness{
		Retain: archive,
		Store:  &metastore.Local{Engine: engine, Now: clock.Now},
		Clock:  clock,
		Rows:   func() iter.Seq[kernel.Row] { return engine.Capture().Rows() },
	}
}

func lives(t *testing.T, open func(t *testing.T) Harness) {
	for seed := range uint64(tests.Size(1, 6, 6)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			h := open(t)
			switch {
			case h.Clock == nil:
				t.Skip("the store's clock cannot be set")
			case h.Slow && seed > 1:
				t.Skip("the store is slow")
			}
			f := newFate(seed)
			f.whole = true
			live(t, h, f, tests.Size(50, 200, 200))
		})
	}
}

// live applies the same batches to a store and the model.
func live(t *testing.T, h Harness, f *fate, span int) {
	model := Model()
	did := map[string]int{}
	for n := range span {
		d := f.pause()
		model.Clock.Advance(d)
		h.Clock.Advance(d)
		before := rowsOf(model)
		batch := f.batch(before, model.Clock.Now())
		want := model.Store.Apply(t.Context(), batch)
		got := h.Store.Apply(t.Context(), batch)
		for i := range batch {
			sameResult(t, batch[i], got[i], want[i])
			did[outcomeOf(batch[i].Command, want[i].Err)]++
		}
		after := rowsOf(model)
		invariants(t, before, after)
		if h.Rows != nil {
			same(t, "the store's rows are not those of the model", after, rowsOf(h))
		}
		if h.Crash != nil && n%25 == 24 {
			h = h.Crash(t)
		}
		if n%20 == 19 || t.Failed() {
			for _, d := range firstDifferences(dump(t, h), dump(t, model)) {
				t.Error(d)
			}
		}
		if t.Failed() {
			for i := range batch {
				t.Logf("batch %d, command %d of %s: %s %+v -> %v", n, i, batch[i].Tenant, batch[i].Command.Verb(), batch[i].Command, want[i].Err)
			}
			t.FailNow()
		}
	}
	// A life in which a verb never succeeds, or never fails, tests nothing about it.
	for v := kernel.Verb(1); v.String() != "?" && testing.Verbose(); v++ {
		t.Logf("%-10s %5d done, %5d refused", v, did[v.String()], did[v.String()+" refused"])
	}
}

func outcomeOf(c kernel.Command, err error) string {
	if err != nil {
		return c.Verb().String() + " refused"
	}
	return c.Verb().String()
}

func sameResult(t *testing.T, e kernel.Envelope, got, want metastore.Result) {
	t.Helper()
	a, b := kernel.AppendAnswer(nil, &got.Effect, got.Err), kernel.AppendAnswer(nil, &want.Effect, want.Err)
	if !bytes.Equal(a, b) {
		t.Errorf("%s %+v\nis answered with %s\nthe model answers %s", e.Command.Verb(), e.Command, answer(got), answer(want))
	}
}

func answer(r metastore.Result) string {
	if r.Err != nil {
		return r.Err.Error()
	}
	text := fmt.Sprintf("existing %v", r.Existing)
	for _, run := range r.Runs {
		text += fmt.Sprintf(" run %+v", *run)
	}
	for _, d := range r.Definitions {
		text += fmt.Sprintf(" job %+v", *d)
	}
	for _, m := range r.Missed {
		text += fmt.Sprintf(" missed %+v", *m)
	}
	return text
}

// firstDifferences are the first lines in which two dumps differ.
func firstDifferences(got, want []string) []string {
	var found []string
	for i := range max(len(got), len(want)) {
		a, b := "(nothing)", "(nothing)"
		if i < len(got) {
			a = got[i]
		}
		if i < len(want) {
			b = want[i]
		}
		if a != b {
			if found = append(found, "the store shows "+a+"\nthe model shows "+b); len(found) == 3 {
				break
			}
		}
	}
	return found
}

// dump is the answers of a store to every read, in lines.
func dump(t *testing.T, h Harness) []string {
	t.Helper()
	ctx, now := t.Context(), h.Clock.Now()
	var lines []string
	note := func(what string, v any, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		lines = append(lines, fmt.Sprintf("%s: %+v", what, v))
	}
	defs, err := h.Store.Definitions(ctx, metastore.DefinitionQuery{Tenant: "*"})
	note("definitions", len(defs), err)
	changed, err := h.Store.Definitions(ctx, metastore.DefinitionQuery{Tenant: "*", Since: 3, Limit: 4})
	note("definitions since 3", len(changed), err)
	apps, live := map[[2]string]int{}, map[kernel.Ref]bool{}
	for _, d := range defs {
		apps[[2]string{string(d.Tenant), d.App}]++
		live[d.Ref()] = true
	}
	for of, n := range apps {
		if c, err := h.Store.Counts(ctx, metastore.CountQuery{Tenant: jobs.Tenant(of[0]), App: of[1], Jobs: true}); err != nil || c.Jobs != n {
			t.Errorf("%v has %d jobs, counted are %d, %v", of, n, c.Jobs, err)
		}
	}
	for _, tenant := range tenants {
		n, before := 0, jobs.Key("")
		if err := metastore.EachDefinition(ctx, h.Store, tenant, func(part []*kernel.Definition) error {
			for _, d := range part {
				if n++; d.Key <= before || d.Tenant != tenant {
					t.Errorf("job %s of tenant %s comes after %s", d.Key, d.Tenant, before)
				}
				before = d.Key
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		for of, m := range apps {
			if of[0] == string(tenant) {
				n -= m
			}
		}
		if n != 0 {
			t.Errorf("tenant %s has %d jobs too many", tenant, n)
		}
	}
	last := uint64(0)
	if err := metastore.EachChange(ctx, h.Store, 0, func(part []*kernel.Definition) error {
		for _, d := range part {
			if d.Change <= last || !d.Gone() && !live[d.Ref()] {
				t.Errorf("change %d of %s, deleted: %t, after change %d", d.Change, d.Key, d.Gone(), last)
			}
			last = d.Change
			delete(live, d.Ref())
		}
		return nil
	}); err != nil || len(live) > 0 {
		t.Errorf("changes leave out %d jobs, %v", len(live), err)
	}
	for _, d := range append(defs, changed...) {
		note("definition "+string(d.Key), digest(d), nil)
		l, err := h.Store.Ledger(ctx, d.Tenant, d.UID, 5)
		note("ledger of "+string(d.Key), len(l), err)
		for _, m := range l {
			note("missed", *m, nil)
		}
		past, err := h.Store.History(ctx, d.Tenant, d.UID)
		note("history of "+string(d.Key), digest(past), err)
		c, err := h.Store.Counts(ctx, metastore.CountQuery{Tenant: d.Tenant, Job: d.Key, From: Start, To: now.Add(time.Hour)})
		note("counts of "+string(d.Key), c, err)
	}
	for _, tenant := range tenants {
		g, err := h.Store.Global(ctx, tenant)
		note("global", digest(g), err)
		c, err := h.Store.Counts(ctx, metastore.CountQuery{Tenant: tenant, Payer: "clients", From: Start, To: now.Add(time.Hour)})
		note("counts", c, err)
		audits, err := h.Store.Audits(ctx, metastore.AuditQuery{Tenant: tenant, Limit: metastore.MaxPage})
		for _, a := range audits {
			note("audit", *a, err)
		}
		tokens, err := h.Store.Tokens(ctx, tenant)
		for _, k := range tokens {
			note("token", *k, err)
		}
		sessions, err := h.Store.Sessions(ctx, tenant)
		for _, s := range sessions {
			note("session", *s, err)
		}
		for i := range 3 {
			s, err := h.Store.Session(ctx, tenant, sessionID(fmt.Sprint(i)))
			note("session", s, without(err, jobs.NotFound))
		}
		for _, q := range []metastore.RunQuery{
			{Cause: kernel.ByPause}, {State: jobs.Failed, Cause: kernel.ByError}, {Cause: kernel.ByTimeout}, {State: jobs.Terminated, Cause: kernel.ByPoison},
			{}, {State: jobs.Failed}, {State: jobs.Terminated}, {State: jobs.Succeeded}, {Job: "free"}, {Job: "shared"}, {Worker: "w1"},
			{Job: "single", State: jobs.Enqueued}, {Origin: kernel.FromCron}, {From: Start.Add(time.Minute)}, {Parent: runID("0")}, {Batch: runID("0")}, {To: now.Add(-time.Minute), State: jobs.Skipped},
			{App: "app"}, {Match: "s*"}, {Match: "*", State: jobs.Terminated}, {Jobs: []jobs.Key{"free", "single"}}, {Jobs: []jobs.Key{}},
			{Args: []metastore.Arg{{Path: "c", Value: "x"}}}, {Args: []metastore.Arg{{Path: "n", Value: "1"}}, State: jobs.Succeeded},
		} {
			q.Tenant, q.Limit = tenant, 7
			lines = append(lines, pages(t, h.Store, q)...)
		}
	}
	return append(lines, dumpAgenda(t, h)...)
}

// pages are the runs of all pages of a query.
func pages(t *testing.T, s metastore.Store, q metastore.RunQuery) []string {
	t.Helper()
	lines := []string{fmt.Sprintf("runs %+v", q)}
	for {
		page, err := s.Runs(t.Context(), q)
		if err != nil {
			t.Errorf("%+v: %v", q, err)
			return lines
		}
		if len(page.Runs) > q.Limit {
			t.Errorf("%+v: a page of %d", q, len(page.Runs))
		}
		for _, run := range page.Runs {
			lines = append(lines, "  run "+run.ID.String()+" "+run.State.String()+" "+digest(run))
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return lines
		}
		if len(lines) > 100_000 {
			t.Fatalf("the pages of %+v have no end", q)
		}
	}
}

// digest is a hash of all fields of a row.
func digest(row kernel.Row) string {
	return kernel.DerivedID(string(kernel.AppendRow(nil, row))).String()
}

// dumpAgenda is what a leader reads.
func dumpAgenda(t *testing.T, h Harness) []string {
	t.Helper()
	a, ctx, now := h.agenda(), t.Context(), h.Clock.Now()
	if a == nil {
		return nil
	}
	var lines []string
	note := func(what string, v any, err error) string {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return fmt.Sprintf("%s: %+v", what, v)
	}
	due, next, err := a.Waking(ctx, now, 1000)
	slices.SortStableFunc(due, func(x, y metastore.Named) int { // those that wake at the same time, by name
		one, _ := h.Store.Run(ctx, x.Tenant, x.ID)
		other, _ := h.Store.Run(ctx, y.Tenant, y.ID)
		if one == nil || other == nil || !one.Wake().Equal(other.Wake()) {
			return 0
		}
		return cmp.Compare(x.ID.String(), y.ID.String())
	})
	lines = append(lines, note("waking", due, err), note("waking next", next.UnixNano(), nil))
	for _, tenant := range tenants {
		list, err := a.Ready(ctx, metastore.ReadyQuery{Tenant: tenant, App: "app", Limit: 1000})
		lines = append(lines, note("ready", len(list), err))
		for _, run := range inTurn(t, list) {
			lines = append(lines, note("ready", run.ID, nil))
		}
	}
	var unordered []string
	leased, err := a.Leased(ctx)
	for _, run := range leased {
		unordered = append(unordered, note("leased", run.ID, err))
	}
	apps, err := a.ReadyApps(ctx)
	for _, l := range apps {
		unordered = append(unordered, note("app", l, err))
	}
	backlog, err := a.Backlog(ctx)
	for _, b := range backlog {
		unordered = append(unordered, note("backlog", b.ReadyApp, err), note("backlog since", b.Since.UnixNano(), nil))
	}
	refs, err := a.Unserved(ctx, 1000)
	for _, r := range refs {
		unordered = append(unordered, note("unserved", r, err))
	}
	if refs, err = a.Expired(ctx, now, 1000); err != nil {
		t.Error(err)
	}
	for _, r := range refs {
		unordered = append(unordered, note("lapsed", r, nil))
	}
	if refs, err = a.Aged(ctx, now.Add(time.Hour), 10_000); err != nil {
		t.Error(err)
	}
	for _, r := range refs {
		unordered = append(unordered, note("aged", r, nil))
	}
	if refs, err = a.Hourly(ctx, now.Add(time.Hour), 10_000); err != nil {
		t.Error(err)
	}
	for _, r := range refs {
		unordered = append(unordered, note("hourly", r, nil))
	}
	s, err := a.State(ctx)
	return append(append(lines, sorted(unordered)), note("state", s, err))
}

// without is an error, unless it is the one that is expected.
func without(err error, code jobs.Code) error {
	if errors.Is(err, code) {
		return nil
	}
	return err
}
