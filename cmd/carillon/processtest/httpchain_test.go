//go:build unix

package processtest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A chain of requests with qos 1. Its server is killed at one step and just before another is stored, and its worker
// while the called service works: no request is made twice, and a callback without a live worker is accepted.
func TestHTTPChainSurvivesKills(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	target := newCalled(t)
	h := newFixture(t, "")
	hire := func(name string) *process { return h.hireHTTP(name, "--http-jobs-feedback-url", "http://"+h.http) }
	worker := hire("h1")
	h.do(http.MethodPost, "/api/v1/jobs", strings.ReplaceAll(`{"key":"shop.chain","kind":"triggered","app":"http","retries":0,"http":{"qos":1,"async":true,"request":[
		{"url":"TARGET/1"},{"url":"TARGET/2?n=${responses[0].n}"},{"url":"TARGET/3?n=${responses[1].n}&callback=${schedulingFeedbackUrl}"}]}}`, "TARGET", target.url))
	id := strings.Split(string(h.do(http.MethodPost, "/api/v1/jobs/shop.chain/trigger", `{}`)), `"id":"`)[1][:36]

	first := target.next("/1")
	h.server.kill() // while it is asked
	h.serve()
	first.reply <- `{"n":1}`
	second := target.next("/2")
	h.server.kill() // before what was answered can be kept
	second.reply <- `{"n":2}`
	h.serve()
	third := target.next("/3")
	third.reply <- `{"n":3}`
	run, err := jobs.ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the last answer is kept", func() bool {
		r, err := h.rows.Run(t.Context(), jobs.DefaultTenant, run)
		return err == nil && strings.Contains(string(r.Checkpoint), `"step":3`)
	})
	worker.kill()
	if third.callback == "" {
		t.Fatal("the request had no callback URL")
	}
	for range 2 { // a service that gets no response repeats its callback
		a, err := http.Post(third.callback, "application/json", strings.NewReader(`{"status":"succeed","data":{"rows":3}}`))
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != http.StatusOK {
			t.Fatalf("called back: %s", a.Status)
		}
	}
	hire("h2")
	if in := h.reaches(id, "Succeeded", 2); string(in.Result) != `{"rows":3}` || !strings.HasPrefix(in.Worker, "h2-") {
		t.Errorf("%s by %s", in.Result, in.Worker)
	}
	select {
	case c := <-target.calls:
		t.Errorf("%s was called again", c.path)
	default:
	}
}
