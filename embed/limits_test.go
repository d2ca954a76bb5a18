package embed_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// bearer grants a token, in a tenant that it creates if there is none, and answers with the header that shows it.
func (o *pollFixture) bearer(tenant jobs.Tenant, n ops.NewToken) []string {
	o.t.Helper()
	if tenant != "" {
		if _, _, err := o.Ops().CreateTenant(o.t.Context(), ops.Who{Actor: "person:root", Role: ops.Admin}, ops.NewTenant{Name: tenant}); err != nil && !errors.Is(err, jobs.Conflict) {
			o.t.Fatal(err)
		}
	}
	_, text, err := o.Ops().Grant(o.t.Context(), ops.Who{Tenant: tenant, Actor: "person:root", Role: ops.Admin}, n)
	if err != nil {
		o.t.Fatal(err)
	}
	return []string{"Authorization", "Bearer " + text}
}

// A token and a tenant get only a part of a node's HTTP workers. The error names the limit, and the place of a worker
// that left is free again.
func TestHTTPWorkersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, embed.Config{Tokens: true, Limits: embed.Limits{HTTPWorkers: 4, HTTPWorkersPerTenant: 3, HTTPWorkersPerToken: 2}})
		ann, bob := o.bearer("", ops.NewToken{Name: "ann", Role: "worker", App: "shop"}), o.bearer("", ops.NewToken{Name: "bob", Role: "worker", App: "shop"})
		other, last := o.bearer("other", ops.NewToken{Name: "ann", Role: "worker"}), o.bearer("last", ops.NewToken{Name: "ann", Role: "worker"})
		n := 0
		register := func(as []string, limit string) {
			t.Helper()
			n++
			body := m{"name": "py", "start": fmt.Sprint("a", n), "app": "shop", "slots": 1, "jobs": []any{m{"key": "greet", "kind": "triggered"}}}
			status, response := o.post(t.Context(), "/worker/register", body, as...)
			detail, _ := response["detail"].(string)
			if limit == "" && status != 200 || limit != "" && (status != 429 || response["code"] != "exhausted" || !strings.Contains(detail, limit+" is ")) {
				t.Errorf("worker %d: %d %v, want limit %q", n, status, response, limit)
			}
		}
		register(ann, "")
		register(ann, "")
		register(ann, "limits.http-workers-per-token")
		register(bob, "")
		register(bob, "limits.http-workers-per-tenant")
		register(other, "")
		register(last, "limits.http-workers")
		if status, response := o.post(t.Context(), "/worker/leave", m{"worker": "py-a1"}, ann...); status != 204 {
			t.Fatalf("leave: %d %v", status, response)
		}
		synctest.Wait()
		register(ann, "")
		register(ann, "limits.http-workers-per-token")
	})
}

// Where requests are not authenticated there is one limit, for all.
func TestHTTPWorkersWithoutAuthentication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, embed.Config{Limits: embed.Limits{HTTPWorkers: 2, HTTPWorkersPerTenant: 1, HTTPWorkersPerToken: 1}})
		for n, want := range []int{200, 200, 429} {
			body := m{"name": "py", "start": fmt.Sprint("a", n), "app": "shop", "slots": 1, "jobs": []any{m{"key": "greet", "kind": "triggered"}}}
			if status, response := o.post(t.Context(), "/worker/register", body); status != want {
				t.Errorf("worker %d: %d %v, want %d", n, status, response, want)
			}
		}
	})
}

// A token cannot use up its tenant's jobs and runs: requests beyond its quota get an error that names the limit, and
// other tokens continue.
func TestJobsAndWaitingRunsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, embed.Config{Tokens: true, Limits: embed.Limits{JobsPerApp: 3, WaitingRuns: 9, WaitingRunsPerToken: 4}})
		members := o.bearer("", ops.NewToken{Name: "crew", Role: "worker", App: "shop"})
		ann, bob := o.bearer("", ops.NewToken{Name: "ann", Role: "operator"}), o.bearer("", ops.NewToken{Name: "bob", Role: "operator"})
		refused := func(what string, status int, response m, limit string) {
			t.Helper()
			detail, _ := response["detail"].(string)
			if status != 429 || response["code"] != "exhausted" || !strings.Contains(detail, limit+" is ") {
				t.Errorf("%s: %d %v, want the limit %s", what, status, response, limit)
			}
		}
		register := func(start string, keys ...string) (int, m) {
			var list []any
			for _, key := range keys {
				list = append(list, m{"key": key, "kind": "recurring", "settings": m{"schedule": "0 0 4 1 1 *"}})
			}
			list = append(list, m{"key": "greet", "kind": "triggered"})
			return o.post(t.Context(), "/worker/register", m{"name": "py", "start": start, "app": "shop", "slots": 1, "jobs": list}, members...)
		}
		if status, response := register("a1", "a", "b"); status != 200 {
			t.Fatal(status, response)
		}
		status, response := register("a2", "c")
		refused("a job too many", status, response, "limits.jobs-per-app")
		if found, _, err := o.Ops().Jobs(t.Context(), ops.Who{}, ops.JobQuery{Limit: 10}); err != nil || len(found) != 3 {
			t.Errorf("there are %d jobs (%v)", len(found), err)
		}

		for range 4 {
			if status, response := o.post(t.Context(), "/jobs/greet/trigger", m{}, ann...); status != 201 {
				t.Fatal(status, response)
			}
		}
		status, response = o.post(t.Context(), "/jobs/greet/trigger", m{}, ann...)
		refused("a run too many of a token", status, response, "limits.waiting-runs-per-token")
		if status, response := o.post(t.Context(), "/jobs/greet/trigger", m{}, bob...); status != 201 {
			t.Error(status, response)
		}
		greet := jobs.Trigger[m]("greet")
		for range 4 {
			o.trigger(`{}`)
		}
		if _, err := greet.Enqueue(t.Context(), o.Client(), m{}); jobs.CodeOf(err) != jobs.Exhausted || !strings.Contains(err.Error(), "limits.waiting-runs-per-token is ") {
			t.Errorf("a run too many of a client: %v", err)
		}
		status, response = o.post(t.Context(), "/jobs/greet/trigger", m{}, bob...)
		refused("a run too many of the tenant", status, response, "limits.waiting-runs")
	})
}
