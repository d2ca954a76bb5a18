package ui_test

import (
	"context"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

var (
	requestID = regexp.MustCompile(`name="request" value="[^"]*"`)
	uiRoutes  = regexp.MustCompile(`(?m)^\t+(?:mux\.Handle(?:Func)?\(|\{)"(GET|POST) (/[^"]*)"`)
)

// People of one role share fragments of pages, but none that shows what only one of them may see: each gets, right after
// another, what they get alone. This is so for all pages.
func TestFragmentsShowNothingOfAnotherPerson(t *testing.T) {
	source, err := os.ReadFile("ui.go")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s, d, _ := guarded(t)
		s.apply(kernel.SetTenant{Name: "secret", Create: true})
		in := func(name string, tenants ...jobs.Tenant) string {
			id := ops.Identity{Person: kernel.Person{Subject: name, Name: name}}
			for _, tenant := range tenants {
				id.Rights = append(id.Rights, kernel.Rights{Tenant: tenant, Role: kernel.RoleAdmin})
			}
			cookie, _, err := d.ops.SignInAs(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			return "session=" + cookie
		}
		ann, bob := in("ann", "default", "secret"), in("bob", "default")
		get := func(path, cookie string) string {
			answer, body := s.get(path, "Cookie", cookie, "X-Fragment", "1")
			return answer.Status + " " + requestID.ReplaceAllString(body, "")
		}
		var paths []string
		for _, found := range uiRoutes.FindAllStringSubmatch(string(source), -1) {
			if path := strings.NewReplacer("{$}", "", "runs/{id}", "runs/"+s.runs[jobs.Terminated].String(), "{key}", "app.nightly", "{name}", "w1").Replace(found[2]); found[1] == "GET" && path != "/events" {
				paths = append(paths, path)
			}
		}
		if len(paths) < 40 {
			t.Fatalf("%d pages", len(paths))
		}
		alone := map[string]string{}
		for _, path := range paths {
			alone[path] = get(path, bob)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		listens := httptest.NewRequestWithContext(ctx, "GET", "/events", nil)
		listens.Header.Set("Cookie", bob)
		go s.ServeHTTP(httptest.NewRecorder(), listens)
		synctest.Wait()
		for _, path := range paths {
			get(path, ann)
			if got := get(path, bob); got != alone[path] {
				t.Errorf("%s depends on who asked a moment before: %.2000s", path, got)
			}
		}
	})
}
