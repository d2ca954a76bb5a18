package embed_test

import (
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// No request creates a run in a tenant that has as many waiting runs as it may: by whatever route of the API, page or
// verb it comes.
func TestAFullTenantIsFullForAllRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, embed.Config{Tokens: true})
		d := newDen(o, "acme", "acme")
		d.register()
		d.must(d.admin, "POST", "/jobs/acme.daily/pause", "") // its due times are missed, and can be backfilled
		time.Sleep(2 * time.Minute)
		d.leave()
		finished := d.must(d.admin, "POST", "/jobs/acme.only/trigger", `{}`)["id"].(string)
		d.must(d.admin, "POST", "/runs/"+finished+"/cancel", "")
		root := ops.Who{Actor: "person:root", Role: ops.Admin}
		waiting := func() int {
			t.Helper()
			page, err := o.Ops().Runs(t.Context(), ops.Who{Tenant: "acme", Role: ops.Admin}, metastore.RunQuery{Limit: metastore.MaxPage})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, run := range page.Runs {
				if run.State == jobs.Enqueued || run.State == jobs.Scheduled {
					n++
				}
			}
			return n
		}
		d.must(d.admin, "POST", "/jobs/shared.work/trigger", `{}`)
		if _, err := o.Ops().ChangeTenant(t.Context(), root, "acme", nil, &kernel.TenantLimits{Waiting: waiting()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // counts are a second old
		before := waiting()
		for _, c := range []struct{ path, body string }{
			{"/jobs/acme.only/trigger", `{}`},
			{"/jobs/acme.only/trigger", `{"delay":"1h"}`},
			{"/jobs/acme.daily/trigger", `{}`},
			{"/runs", `{"items":[{"job":"acme.only"},{"job":"shared.work"}]}`},
			{"/runs/" + finished + "/retry", ""},
			{"/bulk/jobs/trigger", `{"filter":{"app":"shop"}}`},
			{"/bulk/runs/retry", `{"filter":{"job":"acme.only","state":"Cancelled"}}`},
			{"/jobs/acme.daily/backfill", `{"from":"2000-01-01T00:00:00Z"}`},
			{"/seed/jobs/acme.only/trigger", ""},
		} {
			w := d.send(d.admin, "POST", "/api/v1"+c.path, c.body)
			if bulk := strings.HasPrefix(c.path, "/bulk"); w.Code != 429 && (!bulk || !strings.Contains(w.Body.String(), "too many waiting runs")) {
				t.Errorf("POST %s: %d %.300s", c.path, w.Code, w.Body)
			}
			if n := waiting(); n != before {
				t.Errorf("after POST %s, %d runs wait, before %d", c.path, n, before)
			}
		}
		cookie := []string{"Cookie", api.SessionCookie + "=" + d.cookie, "Content-Type", "application/x-www-form-urlencoded"}
		for path, form := range map[string]url.Values{
			"/jobs/acme.only/trigger": {"args": {"{}"}}, "/runs/" + finished + "/again": {}, "/runs/bulk": {"id": {finished}, "do": {"again"}},
			"/jobs/acme.daily/backfill": {"from": {"2000-01-01T00:00"}, "to": {"2000-01-01T00:03"}, "zone": {"UTC"}, "do": {"create"}}, "/bulk/jobs/trigger": {"app": {"shop"}}, "/bulk/runs/retry": {"job": {"acme.only"}},
		} {
			w := d.send(cookie, "POST", path, form.Encode())
			if n := waiting(); n != before || w.Code == 404 || w.Code == 403 {
				t.Errorf("POST %s of the pages (%d): %d runs wait, before %d", path, w.Code, n, before)
			}
		}
	})
}
