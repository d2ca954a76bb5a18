package api_test

import (
	"strings"
	"testing"
)

// The seed's routes, one after the other, as one who spoke that interface would.
func TestSeedRoutes(t *testing.T) {
	d := newFixture(t)
	const doc = `{"jobName":"n","creator":"1","creatorName":"one","request":[{"url":"http://example.com/"}],"timer":{"dueTime":"1h","period":"5m"},"qos":0}`
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"POST", "/jobs/42", doc, 200, `"resp_code":200,"resp_msg":null`},
		{"POST", "/jobs/42", doc, 409, `"resp_code":409,"resp_msg":"job 42 already exists"`},
		{"GET", "/jobs/42", "", 200, `"jobName":"n"`},
		{"GET", "/jobs/42", "", 200, `"active":1`},
		{"PUT", "/jobs/42?active=0", "", 200, `"resp_code":200`},
		{"GET", "/jobs/42", "", 200, `"active":0`},
		{"PUT", "/jobs/42?active=1", "", 200, `"resp_code":200`},
		{"POST", "/jobs/42/update", strings.Replace(doc, `"n"`, `"m"`, 1), 200, `"resp_code":200`},
		{"GET", "/jobs/42", "", 200, `"jobName":"m"`},
		{"POST", "/jobs/43/update", doc, 404, `"resp_code":404`},
		{"POST", "/jobs/42/trigger", `{"a":1}`, 200, `"executionId":"`},
		{"GET", "/main/execution?jobId=42", "", 200, `"executeNumber":`},
		{"POST", "/jobs/44", `{"request":[{"url":"file:///etc/passwd"}]}`, 422, "must begin with"},
		{"POST", "/jobs/44", `{"jobId":"45","request":[{"url":"http://x/"}]}`, 422, "the document names job"},
		{"DELETE", "/job/42", "", 200, `"resp_code":200`},
		{"GET", "/jobs/42", "", 404, `"resp_code":404`},
		{"DELETE", "/jobs/42", "", 404, `"resp_code":404`},
	} {
		a := d.send(c.method, "/api/v1/seed"+c.path, c.body)
		if a.StatusCode != c.status || !strings.Contains(string(a.body), c.says) {
			t.Errorf("%s %s: %d %s, want %d ...%s...", c.method, c.path, a.StatusCode, a.body, c.status, c.says)
		}
	}
}

// Times without an offset are in the zone of the job: its own, that of its app, or the default one.
func TestTimesAreInTheZoneOfTheJob(t *testing.T) {
	d := newFixture(t)
	d.send("PATCH", "/api/v1/settings", `{"defaults":{"zone":"Europe/Berlin"}}`)
	d.send("PATCH", "/api/v1/settings", `{"defaults":{"zone":"Asia/Tokyo"},"app":"http"}`)
	const doc = `{"request":[{"url":"http://example.com/"}],"timer":{"dueTime":"2026-12-01 09:00:01","period":"0s"}}`
	for _, c := range []struct{ method, path, body, says string }{
		{"POST", "/seed/jobs/50", doc, `"resp_code":200`},
		{"GET", "/jobs/50", "", `"schedule":"2026-12-01T00:00:01Z"`},
		{"POST", "/jobs", `{"key":"a.berlin","kind":"recurring","app":"a","schedule":"1h","start":"2026-12-01T09:00:00","first":"2026-12-01 09:30"}`, `"start":"2026-12-01T08:00:00Z"`},
		{"GET", "/jobs/a.berlin", "", `"first":"2026-12-01T08:30:00Z"`},
		{"POST", "/jobs", `{"key":"a.own","kind":"recurring","app":"a","schedule":"1h","zone":"UTC","start":"2026-12-01T09:00"}`, `"start":"2026-12-01T09:00:00Z"`},
		{"PATCH", "/jobs/a.berlin", `{"zone":"America/New_York","end":"2026-12-02"}`, `"end":"2026-12-03T04:59:59Z"`},
		{"PATCH", "/jobs/a.own", `{"start":"2026-12-01T09:00:00+01:00"}`, `"start":"2026-12-01T08:00:00Z"`},
		{"PATCH", "/jobs/a.own", `{"start":"soon"}`, `a time such as`},
		{"POST", "/apply", `{"jobs":[{"key":"a.own","start":"2026-12-05 09:00:00","zone":"Europe/Berlin"}]}`, `"resp`},
	} {
		a := d.send(c.method, "/api/v1"+c.path, c.body, "If-Match", "*")
		if c.path == "/apply" {
			a = d.send("GET", "/api/v1/jobs/a.own", "")
			c.says = `"start":"2026-12-05T08:00:00Z"`
		}
		if !strings.Contains(string(a.body), c.says) {
			t.Errorf("%s %s %s: %s, want %s", c.method, c.path, c.body, a.body, c.says)
		}
	}
}
