//go:build unix

package processtest

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// `carillon worker` runs HTTP jobs for a server. One is killed in the middle of a call, and another takes over the run;
// one that is stopped finishes its call.
func TestHTTPWorker(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	target := newCalled(t)
	h := newFixture(t, "")
	hire := func(name string) *process {
		return h.hireHTTP(name, "--http-jobs-services", "shop="+target.url, "--http-jobs-variables", "REGION=eu")
	}
	h.do(http.MethodPost, "/api/v1/jobs", `{"key":"shop.ask","kind":"triggered","app":"http","retries":0,
		"http":{"request":[{"url":"service://shop/${REGION}/${$.n}"}]}}`)
	ask := func(n int) string {
		return strings.Split(string(h.do(http.MethodPost, "/api/v1/jobs/shop.ask/trigger", fmt.Sprintf(`{"args":{"n":%d}}`, n))), `"id":"`)[1][:36]
	}

	first := hire("h1")
	id := ask(1)
	target.next("/eu/1").reply <- `{"ok":1}`
	h.reaches(id, "Succeeded", 1)

	id = ask(2)
	target.next("/eu/2")
	first.kill()
	second := hire("h2")
	target.next("/eu/2").reply <- `{"ok":2}`
	if in := h.reaches(id, "Succeeded", 2); !strings.HasPrefix(in.Worker, "h2-") {
		t.Errorf("it was done by %s", in.Worker)
	}

	id = ask(3)
	c := target.next("/eu/3")
	second.signal(t, syscall.SIGTERM)
	await(t, "the worker drains", func() bool { return second.out.has("worker drains") })
	c.reply <- `{"ok":3}`
	h.reaches(id, "Succeeded", 1)
	second.ends(t)
}
