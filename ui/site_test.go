package ui_test

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/jobs"
)

// All forms, those of the sign-in, the sign-out, the theme and the tenant included, refuse requests of other sites
// before anything happens, and lead to this site only. No page can be in a frame.
func TestFormsAreOfThisSite(t *testing.T) {
	source, err := os.ReadFile("ui.go")
	if err != nil {
		t.Fatal(err)
	}
	s, _, tokens := guarded(t)
	cookie := s.signIn(tokens["admin"])
	evil := []string{"https://evil.example/", "//evil.example", `/\evil.example`, "/\t/evil.example", "javascript:alert(1)", "/..//evil.example", "/%2f/evil.example"}
	forms := 0
	for _, found := range uiRoutes.FindAllStringSubmatch(string(source), -1) {
		path := strings.NewReplacer("{$}", "", "runs/{id}", "runs/"+s.runs[jobs.Terminated].String(), "{id}", "abcdefgh", "{key}", "app.nightly", "{name}", "w1").Replace(found[2])
		if found[1] == "GET" {
			if path == "/events" {
				continue
			}
			answer, _ := s.get(path, "Cookie", cookie)
			h := answer.Header
			if !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'") || h.Get("X-Content-Type-Options") != "nosniff" || len(answer.Cookies()) > 0 && path != "/login/callback" {
				t.Errorf("GET %s: %v", path, h)
			}
			continue
		}
		forms++
		for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
			before := s.snapshot()
			answer, _ := s.post(path, url.Values{"token": {tokens["admin"]}, "theme": {"dark"}, "tenant": {"other"}}, append(header, "Cookie", cookie)...)
			if answer.StatusCode != 403 || len(answer.Cookies()) > 0 || s.snapshot() != before {
				t.Errorf("POST %s with %v: %d, cookies %v", path, header, answer.StatusCode, answer.Cookies())
			}
		}
		if path == "/logout" {
			continue
		}
		for _, to := range evil {
			form := url.Values{"token": {tokens["admin"]}, "theme": {"dark"}, "next": {to}, "back": {to}, "here": {to}, "do": {"cancel"}, "tenant": {"default"}}
			answer, _ := s.post(path, form, "Cookie", cookie)
			location, err := url.Parse(answer.Header.Get("Location"))
			if err != nil || location.Host != "" || location.Scheme != "" || strings.HasPrefix(location.EscapedPath(), "//") || strings.ContainsAny(location.Path, "\\\t") {
				t.Errorf("POST %s with %q leads to %q", path, to, answer.Header.Get("Location"))
			}
			for _, c := range answer.Cookies() {
				if c.Name == "session" && !c.HttpOnly {
					t.Errorf("POST %s sets %v", path, c)
				}
			}
		}
	}
	if forms < 40 {
		t.Errorf("%d forms", forms)
	}
	if answer, _ := s.get("/runs", "Cookie", cookie); answer.StatusCode != 200 {
		t.Errorf("the session has ended: %d", answer.StatusCode)
	}
}
