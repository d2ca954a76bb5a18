package memstore

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// access makes a row of a token, a session or the like.
func (d *dice) access(m *model) kernel.Row {
	until := m.now.Add(time.Duration(d.IntN(200)-100) * time.Second)
	switch d.IntN(7) {
	case 0, 1:
		k := &kernel.Token{Tenant: d.tenant(), ID: pick(d, "t1", "t2", "t3"), Name: pick(d, "ann", "bob"), Role: kernel.RoleAdmin}
		if d.IntN(2) == 0 {
			k.Until = until
		}
		return k
	case 2, 3:
		return &kernel.Session{Tenant: d.tenant(), ID: pick(d, "s1", "s2", "s3"), Token: pick(d, "t1", "t2"), Until: until}
	case 4, 5:
		return &kernel.Audit{Tenant: d.tenant(), N: 1 + d.Uint64N(30), Actor: pick(d, "ann", "bob"), Target: pick(d, "job a", "job b")}
	}
	mode := func() kernel.Debug { return kernel.Debug{On: d.IntN(3) > 0} }
	return &kernel.Global{Tenant: d.tenant(), Revision: d.Uint64(), RecurringDebug: mode(), TriggeredDebug: mode()}
}

func (m *model) compareAccess(t *testing.T, e *Engine, d *dice) {
	t.Helper()
	tenant := pick[jobs.Tenant](d, "a", "b")
	tokens := slices.DeleteFunc(of[*kernel.Token](m), func(k *kernel.Token) bool { return k.Tenant != tenant })
	slices.SortFunc(tokens, func(a, b *kernel.Token) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	got, _ := e.Tokens(ctx, tenant)
	if !slices.EqualFunc(got, tokens, func(a, b *kernel.Token) bool { return equalRow(a, b) }) {
		t.Errorf("Tokens are %v, want %v", got, tokens)
	}
	for _, id := range []string{"t1", "s1"} {
		k, err := e.Token(ctx, tenant, id)
		if row, ok := m.rows[kernel.TokenRef(tenant, id)].(*kernel.Token); ok != (err == nil) || ok && !equalRow(k, row) {
			t.Errorf("Token(%s) is %v, %v, want %v", id, k, err, row)
		}
		s, err := e.Session(ctx, tenant, id)
		if row, ok := m.rows[kernel.SessionRef(tenant, id)].(*kernel.Session); ok != (err == nil) || ok && !equalRow(s, row) {
			t.Errorf("Session(%s) is %v, %v, want %v", id, s, err, row)
		}
	}
	q := metastore.AuditQuery{Tenant: tenant, Target: pick(d, "", "", "job a"), Actor: pick(d, "", "", "bob"), Before: d.Uint64N(40), Since: pick(d, 0, 0, d.Uint64N(40)), Limit: d.IntN(4)}
	audits := slices.DeleteFunc(of[*kernel.Audit](m), func(a *kernel.Audit) bool { return a.Tenant != tenant || !q.Matches(a) })
	slices.SortFunc(audits, func(a, b *kernel.Audit) int { return cmp.Compare(b.N, a.N) })
	if q.Since > 0 {
		slices.Reverse(audits)
	}
	lines, _ := e.Audits(ctx, q)
	if want := audits[:min(q.Size(), len(audits))]; !slices.EqualFunc(lines, want, func(a, b *kernel.Audit) bool { return equalRow(a, b) }) {
		t.Errorf("Audits(%+v) is %v, want %v", q, lines, want)
	}
	before := m.now.Add(time.Duration(d.IntN(400)-200) * time.Second)
	if d.IntN(3) == 0 {
		before = before.Add(-kernel.KeepHistory)
	}
	var old []kernel.Ref
	for ref, row := range m.rows {
		if at, ok := metastore.DoneAt(row); ok && at.Before(before) {
			old = append(old, ref)
		}
	}
	limit := pick(d, 3, 1000)
	aged, _ := e.Aged(ctx, before, limit)
	if len(aged) != min(limit, len(old)) {
		t.Errorf("Aged(%v) are %v, want %d of %v", before, aged, limit, old)
	}
	var hours []kernel.Ref
	for _, row := range of[*kernel.Tally](m) {
		if row.Span == kernel.Hour && !row.End().After(before) {
			hours = append(hours, row.Ref())
		}
	}
	hourly, _ := e.Hourly(ctx, before, 1000)
	less := func(a, b kernel.Ref) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
	slices.SortFunc(hours, less)
	slices.SortFunc(hourly, less)
	if !slices.Equal(hourly, hours) {
		t.Errorf("Hourly(%v) are %v, want %v", before, hourly, hours)
	}
	for i, ref := range aged {
		if !slices.Contains(old, ref) || slices.Contains(aged[:i], ref) {
			t.Errorf("Aged(%v) has %v, which is young, or twice", before, ref)
		}
	}
}
