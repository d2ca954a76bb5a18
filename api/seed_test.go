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
