package api_test

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// The audit has who was refused, by which route, from where and why: by the role, by the scope, or as a stranger.
func TestDeniedRequestsAreAudited(t *testing.T) {
	g := newGuarded(t)
	root := ops.Who{Actor: "person:root", Role: ops.Admin}
	_, g.tokens["payer"], _ = g.ops.Grant(t.Context(), root, ops.NewToken{Name: "payer", Role: "operator", Scope: kernel.Scope{Keys: []string{"pay.*"}}})
	for _, c := range []struct {
		holder, method, path, body string
		status                     int
	}{
		{"viewer", "POST", "/api/v1/jobs/billing.charge/pause", "{}", 403},
		{"payer", "POST", "/api/v1/jobs/billing.charge/pause", "{}", 403},
		{"expired", "GET", "/api/v1/jobs", "", 401},
		{"revoked", "GET", "/api/v1/jobs", "", 401},
		{"prefix", "GET", "/api/v1/jobs", "", 401},
		{"none", "GET", "/api/v1/jobs", "", 401}, // no sign-in was tried
		{"viewer", "GET", "/api/v1/jobs/none", "", 404},
	} {
		if a := g.as(c.holder, c.method, c.path, c.body); a.StatusCode != c.status {
			t.Errorf("%s %s %s: %d %s", c.holder, c.method, c.path, a.StatusCode, a.Body)
		}
	}
	g.ops.RecordDenials(t.Context(), true)
	audits, err := g.ops.Audits(t.Context(), root, metastore.AuditQuery{Limit: metastore.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, a := range audits {
		if a.Verb != "denied" {
			continue
		}
		if a.From == "" || strings.Contains(a.From, ":8") || got[a.Actor] != "" {
			t.Errorf("%s from %q, again %q", a.Actor, a.From, got[a.Actor])
		}
		got[a.Actor] = a.Target + " " + string(a.After)
	}
	for actor, want := range map[string][2]string{
		"person:viewer":  {"POST /api/v1/jobs/{key}/pause ", "this needs the role operator"},
		"person:payer":   {"POST /api/v1/jobs/{key}/pause ", "not in your scope"},
		"person:expired": {"sign-in ", "expired"},
		"unknown":        {"sign-in ", "unknown"},
	} {
		if !strings.HasPrefix(got[actor], want[0]) || !strings.Contains(got[actor], want[1]) {
			t.Errorf("%s: %s, want %q", actor, got[actor], want)
		}
	}
	if len(got) != 5 { // and that of the revoked token
		t.Errorf("%q", got)
	}
}
