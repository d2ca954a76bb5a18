package embed_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker/httpjob"
)

// A server runs the HTTP jobs of its tenants, each by a worker of the tenant, without the variables and networks that its
// own jobs have. The worker ends when there are none left.
func TestHTTPJobsOfTenants(t *testing.T) {
	t.Parallel()
	called := make(chan string, 8)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { called <- r.URL.Path }))
	defer service.Close()
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	o := newOffice(t, embed.Config{Tokens: true, HTTPJobs: &httpjob.Config{Variables: map[string]string{"REGION": "eu"}},
		TenantHTTPJobs: &httpjob.Config{Guard: httpjob.Guard{Allow: loopback}}})
	ctx, root, ann := t.Context(), ops.Who{Actor: "person:root", Role: ops.Admin}, ops.Who{Tenant: "acme", Actor: "person:ann", Role: ops.Admin}
	if _, _, err := o.Ops().CreateTenant(ctx, root, ops.NewTenant{Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	run := func(who ops.Who, key jobs.Key, url string) *kernel.Run {
		t.Helper()
		request, err := json.Marshal([]map[string]any{{"url": url}})
		if err != nil {
			t.Fatal(err)
		}
		raw := json.RawMessage(`{"request":` + string(request) + `}`)
		if _, err := o.Ops().Create(ctx, who, ops.Wanted{Key: key, Kind: kernel.Triggered, App: httpjob.App, Set: kernel.Settings{HTTP: &raw, Retries: new(0)}}); err != nil {
			t.Fatal(err)
		}
		made, err := o.Ops().Trigger(ctx, who, kernel.Create{Key: key})
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); ; {
			got, err := o.Ops().Run(ctx, who, made.ID)
			if err != nil {
				t.Fatal(err)
			}
			if got.State.Final() {
				return got
			}
			if time.Now().After(end) {
				t.Fatalf("the run of %s is %s", key, got.State)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	if got := run(ann, "acme.call", service.URL+"/acme"); got.State != jobs.Succeeded || <-called != "/acme" || !strings.Contains(got.Worker, "http") {
		t.Errorf("%s by %q: %s", got.State, got.Worker, got.Error)
	}
	if got := run(ann, "acme.region", service.URL+"/${REGION}"); got.State == jobs.Succeeded {
		t.Errorf("a job of a tenant has a variable of the server")
	}
	if got := run(root, "own.call", service.URL+"/own"); got.State == jobs.Succeeded || !strings.Contains(got.Error, "may not be called") {
		t.Errorf("the server's own: %s, %s", got.State, got.Error)
	}
	if len(called) > 0 {
		t.Errorf("called %s", <-called)
	}
	for _, key := range []jobs.Key{"acme.call", "acme.region"} {
		if _, err := o.Ops().Delete(ctx, ann, kernel.Delete{Key: key}, ""); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(time.Minute); len(o.Ops().Live().Workers("acme")) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the worker of a tenant without HTTP jobs goes on")
		}
	}
}
