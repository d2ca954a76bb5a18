package cli_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// send is a request to the server: an API's, or a form's of a page. It answers with the status and the body.
func (h *fixture) send(t *testing.T, method, path, kind, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, h.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

const (
	asForm = "application/x-www-form-urlencoded"
	asJSON = "application/json"
)

// A worker is drained and resumed over the command line, the API and the page, each of which shows it; while it is
// drained a run waits, and it runs when the worker is resumed.
func TestS0_07DrainFromEachSide(t *testing.T) {
	tests.Long(t)
	h := open(t)
	carillon := func(args ...string) (string, int) {
		t.Helper()
		out, errs, code := call{env: h.env()}.run(args...)
		return out + errs, code
	}
	rests := func() bool {
		out, _ := carillon("workers", "list", "-o", "json")
		return strings.Contains(out, `"drained": true`)
	}
	until(t, "its worker is online", func() bool {
		out, _ := carillon("workers", "list", "-o", "name")
		return strings.Contains(out, "till")
	})
	sides := map[string]func(verb string){
		"command line": func(verb string) {
			if out, code := carillon("workers", verb, "till"); code != 0 {
				t.Errorf("%s: %d %s", verb, code, out)
			}
		},
		"API": func(verb string) {
			if status, body := h.send(t, "POST", "/api/v1/workers/till/"+verb, asJSON, ""); status != 200 || !strings.Contains(body, `"till`) {
				t.Errorf("%s: %d %s", verb, status, body)
			}
		},
		"page": func(verb string) {
			if status, body := h.send(t, "POST", "/workers/till/"+verb, asForm, ""); status != 303 {
				t.Errorf("%s: %d %s", verb, status, body)
			}
		},
	}
	for off, drain := range sides {
		for on, resume := range sides {
			if off == on {
				continue
			}
			drain("drain")
			until(t, "drained by the "+off, rests)
			if _, page := h.send(t, "GET", "/workers", "", ""); !strings.Contains(page, "/workers/till") || !strings.Contains(page, "/resume") {
				t.Errorf("the page offers no way back")
			}
			out, code := carillon("jobs", "trigger", "shop.pack", "--args", `{"item":"bell"}`, "-o", "name")
			if code != 0 {
				t.Fatal(code, out)
			}
			run := strings.TrimSpace(out)
			if out, code := carillon("runs", "wait", run, "--wait-timeout", "300ms"); code != 124 {
				t.Errorf("drained by the %s: a run ends: %d %s", off, code, out)
			}
			resume("resume")
			until(t, "resumed by the "+on, func() bool { return !rests() })
			if out, code := carillon("runs", "wait", run, "--wait-timeout", "30s"); code != 0 {
				t.Errorf("resumed by the %s: a run is not over: %d %s", on, code, out)
			}
			if out, _ := carillon("runs", "show", run, "-o", "json"); !strings.Contains(out, `"attempt": 1`) || !strings.Contains(out, `"state": "Succeeded"`) {
				t.Errorf("its ledger is %s", out)
			}
		}
	}
}

// Whether new jobs start disabled is one setting with the same values in CLI, API and page.
func TestS0_12NewJobsFromEachSide(t *testing.T) {
	h := open(t)
	is := func(side, how string) {
		t.Helper()
		if out, _, code := (call{env: h.env()}).run("settings", "show", "-o", "json"); code != 0 || !strings.Contains(out, `"newJobs": "`+how+`"`) {
			t.Errorf("%s: %d %s", side, code, out)
		}
		if _, page := h.send(t, "GET", "/settings", "", ""); !strings.Contains(page, `<option value="`+how+`" selected>`) {
			t.Errorf("%s: the page does not show %s", side, how)
		}
	}
	is("at first", "enabled")
	if out, errs, code := (call{env: h.env()}).run("settings", "set", "--new-jobs", "disabled"); code != 0 || !strings.Contains(out, "disabled until they are enabled") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	is("command line", "disabled")
	if status, body := h.send(t, "POST", "/settings", asForm, "newJobs=enabled"); status != 303 {
		t.Errorf("%d %s", status, body)
	}
	is("page", "enabled")
	if status, body := h.send(t, "PATCH", "/api/v1/settings", asJSON, `{"newJobs":"disabled"}`); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	is("API", "disabled")
	for side, refused := range map[string]func() (int, string){
		"page": func() (int, string) { return h.send(t, "POST", "/settings", asForm, "newJobs=perhaps") },
		"API":  func() (int, string) { return h.send(t, "PATCH", "/api/v1/settings", asJSON, `{"newJobs":"perhaps"}`) },
	} {
		if status, _ := refused(); status != 422 {
			t.Errorf("%s: an invalid value gets status %d", side, status)
		}
	}
	if out, errs, code := (call{env: h.env()}).run("settings", "set", "--new-jobs", "perhaps"); code != 2 {
		t.Errorf("%d %s %s", code, out, errs)
	}
	// A job that is registered now does not run until it is enabled.
	const file = "jobs: [{key: shop.sweep, kind: triggered, app: shop}]"
	if out, errs, code := (call{env: h.env(), in: file}).run("apply", "-f", "-"); code != 0 {
		t.Fatal(code, out, errs)
	}
	if out, _, _ := (call{env: h.env()}).run("jobs", "show", "shop.sweep", "-o", "json"); strings.Contains(out, `"disabled": true`) {
		t.Errorf("a job that a person made is disabled: %s", out)
	}
}
