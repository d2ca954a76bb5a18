package ui_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/ui"
)

// testAccess is an Access with the rules of the real one, but for cookies that say they are secure and a count of
// tries.
type testAccess struct {
	ops *ops.Ops
	err error // instead of asking

	denied []string // what callers may not do
}

func (d *testAccess) Denied(_ *http.Request, who ops.Who, route, why string) {
	d.denied = append(d.denied, who.Actor+" "+route+" "+why)
}

func (d *testAccess) Who(r *http.Request) (ops.Who, error) {
	return d.ops.SignedIn(r.Context(), d.Session(r))
}

func (d *testAccess) SignIn(r *http.Request, token string) (string, time.Time, error) {
	if d.err != nil {
		return "", time.Time{}, d.err
	}
	return d.ops.SignIn(r.Context(), token)
}

func (d *testAccess) Session(r *http.Request) string {
	if c, err := r.Cookie("session"); err == nil {
		return c.Value
	}
	return ""
}

func (d *testAccess) Cookie(_ *http.Request, value string, until time.Time) *http.Cookie {
	return &http.Cookie{Name: "session", Value: value, Path: "/", Expires: until, HttpOnly: true}
}

// guarded is a scene whose pages ask who comes, and a token for each role.
func guarded(t *testing.T) (s *scene, d *testAccess, tokens map[string]string) {
	t.Helper()
	s = newScene(t)
	o := ops.New(ops.Config{Store: s.store, Logs: s.logs, Live: s.live, Authenticates: true})
	d = &testAccess{ops: o}
	tokens = map[string]string{}
	for _, role := range kernel.Roles() {
		_, text, err := o.Grant(t.Context(), ops.Who{Actor: "test", Role: ops.Admin}, ops.NewToken{Name: role + "-token", Role: role})
		if err != nil {
			t.Fatal(err)
		}
		tokens[role] = text
	}
	s.Handler = api.Guard(slog.New(slog.DiscardHandler), "", ui.New(ui.Config{Ops: o, Access: d, Notice: hostile}))
	return s, d, tokens
}

// signIn answers with the cookie of a session.
func (s *scene) signIn(token string) string {
	s.t.Helper()
	answer, body := s.post("/login", url.Values{"token": {token}})
	if answer.StatusCode != 303 || len(answer.Cookies()) != 1 {
		s.t.Fatalf("sign in: %d %v %s", answer.StatusCode, answer.Cookies(), body)
	}
	return "session=" + answer.Cookies()[0].Value
}

func TestSignIn(t *testing.T) {
	s, d, tokens := guarded(t)
	if answer, _ := s.get("/runs?state=Failed"); answer.StatusCode != 303 || answer.Header.Get("Location") != "/login?next="+url.QueryEscape("/runs?state=Failed") {
		t.Errorf("a stranger: %d %s", answer.StatusCode, answer.Header.Get("Location"))
	}
	if answer, _ := s.get("/runs", "X-Fragment", "1"); answer.StatusCode != 401 {
		t.Errorf("a stranger's script: %d", answer.StatusCode)
	}
	if answer, _ := s.post("/settings", url.Values{"misfire": {"1m"}}); answer.StatusCode != 401 {
		t.Errorf("a stranger's form: %d", answer.StatusCode)
	}
	_, body := s.get("/login?next=%2Fruns")
	if !strings.Contains(body, `name="next" value="/runs"`) || strings.Contains(body, `aria-label="Main"`) || strings.Contains(body, "Leader") || strings.Contains(body, "live.js") {
		t.Error("the login page tells strangers about the house, or forgets where they were going")
	}
	for _, wrong := range []string{"", "x", tokens["viewer"] + "x", tokens["worker"], tokens["client"], hostile} {
		answer, body := s.post("/login", url.Values{"token": {wrong}, "next": {"/runs"}})
		if answer.StatusCode != 401 || !strings.Contains(body, "Invalid or expired token") || !strings.Contains(body, `name="next" value="/runs"`) || len(answer.Cookies()) > 0 {
			t.Errorf("token %.20q: %d", wrong, answer.StatusCode)
		}
		if wrong != "" && wrong != "x" && strings.Contains(body, wrong) {
			t.Errorf("the page repeats a wrong token")
		}
	}
	answer, _ := s.post("/login", url.Values{"token": {tokens["viewer"]}, "next": {"/runs?state=Failed"}})
	if to := answer.Header.Get("Location"); answer.StatusCode != 303 || to != "/runs?state=Failed" {
		t.Errorf("signed in: %d %s", answer.StatusCode, to)
	}
	for _, evil := range []string{"https://evil.example/", "//evil.example", `/\evil.example`, `\\evil.example`, "/\t/evil.example", "javascript:alert(1)", " //evil.example", "/%09/evil.example\n", ""} {
		answer, _ := s.post("/login", url.Values{"token": {tokens["viewer"]}, "next": {evil}})
		if to := answer.Header.Get("Location"); to != "/" && to != "/%09/evil.example" {
			t.Errorf("next %q leads to %q", evil, to)
		}
	}
	d.err = &kernel.Refusal{Code: jobs.Exhausted, Text: "wait"}
	if answer, body := s.post("/login", url.Values{"token": {"x"}}); answer.StatusCode != 429 || !strings.Contains(body, "Too many sign-in attempts with this token or from this address") {
		t.Errorf("too many tries: %d", answer.StatusCode)
	}
	d.err = errors.New("the disk is on fire")
	if answer, body := s.post("/login", url.Values{"token": {"x"}}); answer.StatusCode != 500 || strings.Contains(body, "disk") {
		t.Errorf("an error inside: %d", answer.StatusCode)
	}
}

func TestSignOut(t *testing.T) {
	s, _, tokens := guarded(t)
	cookie := s.signIn(tokens["viewer"])
	if answer, body := s.get("/runs", "Cookie", cookie); answer.StatusCode != 200 || !strings.Contains(body, "viewer-token") {
		t.Fatalf("signed in: %d", answer.StatusCode)
	}
	answer, _ := s.post("/logout", nil, "Cookie", cookie)
	if answer.StatusCode != 303 || answer.Header.Get("Location") != "/login" || len(answer.Cookies()) != 1 || answer.Cookies()[0].Value != "" {
		t.Errorf("sign out: %d %v", answer.StatusCode, answer.Cookies())
	}
	if answer, _ := s.get("/runs", "Cookie", cookie); answer.StatusCode != 303 {
		t.Errorf("the session goes on: %d", answer.StatusCode)
	}
	if answer, _ := s.post("/logout", nil, "Cookie", cookie); answer.StatusCode != 303 {
		t.Errorf("signed out twice: %d", answer.StatusCode)
	}
}

// Requests of one person beyond the rate that the API has are refused before anything is read or changed.
func TestTooManyPages(t *testing.T) {
	s, d, tokens := guarded(t)
	left := map[string]int{"person:viewer-token": 1}
	s.Handler = ui.New(ui.Config{Ops: d.ops, Access: d, Admit: func(who ops.Who) error {
		if left[who.Actor]--; left[who.Actor] < 0 {
			return kernel.Refuse(jobs.Exhausted, "too many requests: try again in 1s")
		}
		return nil
	}})
	left["person:operator-token"] = 1
	cookie := s.signIn(tokens["viewer"])
	for i, want := range []int{200, 429} {
		if answer, body := s.get("/runs", "Cookie", cookie); answer.StatusCode != want || strings.Contains(body, "too many requests: try again in 1s") != (i == 1) {
			t.Errorf("request %d: %d, want %d: %s", i, answer.StatusCode, want, body)
		}
	}
	cookie = s.signIn(tokens["operator"])
	run := s.runs[jobs.Scheduled].String()
	left["person:operator-token"] = 0
	if answer, _ := s.post("/runs/"+run+"/cancel", nil, "Cookie", cookie); answer.StatusCode != 429 {
		t.Errorf("a form: %d", answer.StatusCode)
	}
	left["person:operator-token"] = 1
	if _, body := s.get("/runs/"+run, "Cookie", cookie); !strings.Contains(body, "Scheduled") {
		t.Errorf("the refused form has changed the run: %s", body)
	}
}

// Each role may do what it may, on every route, and sees no button for more.
func TestRoles(t *testing.T) {
	s, _, tokens := guarded(t)
	run := s.runs[jobs.Terminated].String()
	reads := map[string]string{"/": "viewer", "/runs": "viewer", "/runs/" + run: "viewer", "/runs/" + run + "/log": "viewer", "/workers": "viewer",
		"/settings": "viewer", "/access": "admin", "/tenants": "admin", "/audit": "admin"}
	writes := map[string]string{"/runs/bulk": "operator", "/runs/" + run + "/cancel": "operator", "/runs/" + run + "/again": "operator",
		"/settings": "admin", "/debug": "admin", "/purge": "admin", "/access": "admin", "/access/abcdefgh/revoke": "admin"}
	order := []string{"viewer", "operator", "admin"}
	for have, role := range order {
		cookie := s.signIn(tokens[role])
		for path, need := range reads {
			answer, _ := s.get(path, "Cookie", cookie)
			if may := have >= indexOf(order, need); may != (answer.StatusCode == 200) || !may && answer.StatusCode != 403 {
				t.Errorf("%s reads %s: %d", role, path, answer.StatusCode)
			}
		}
		for path, need := range writes {
			answer, _ := s.post(path, url.Values{}, "Cookie", cookie)
			if may := have >= indexOf(order, need); may == (answer.StatusCode == 403) {
				t.Errorf("%s writes %s: %d", role, path, answer.StatusCode)
			}
		}
		for path, buttons := range map[string]map[string]string{
			"/runs": {"/runs/bulk": "operator"}, "/runs/" + run: {"/again": "operator"}, "/settings": {`action="/settings"`: "admin", `action="/debug"`: "admin", `action="/purge"`: "admin"},
			"/": {`href="/access"`: "admin", `href="/audit"`: "admin"},
		} {
			_, body := s.get(path, "Cookie", cookie)
			for button, need := range buttons {
				if may := have >= indexOf(order, need); may != strings.Contains(body, button) {
					t.Errorf("%s: %s shows %s: %v", role, path, button, !may)
				}
			}
		}
	}
}

// Each route of the pages has a rule, and keeps it: who has not signed in is sent to do so, who may do less is refused,
// and whatever is posted needs more than a viewer.
func TestEveryRouteHasARule(t *testing.T) {
	source, err := os.ReadFile("ui.go")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^\t+(?:mux\.Handle(?:Func)?\(|\{)"((?:GET|POST|PUT|PATCH|DELETE)? ?(/[^"]*))"(?:, ops\.(\w+),)?`).FindAllStringSubmatch(string(source), -1)
	if len(list) < 50 {
		t.Fatalf("%d routes", len(list))
	}
	open := []string{"GET /events", "POST /theme", "GET /login", "POST /login", "GET /login/provider", "GET /login/callback", "POST /logout", // these look for themselves
		"POST /session"} // changes only the session of its sender
	s, d, tokens := guarded(t)
	order := []string{"", "viewer", "operator", "admin"}
	cookies := map[string]string{}
	for _, role := range order[1:] {
		cookies[role] = s.signIn(tokens[role])
	}
	// Sessions that have ended: by the logout, with their token, and one that was never begun.
	ended := []string{s.signIn(tokens["admin"]), "", "session=default.AAAAAAAAAAAAAAAAAAAAAAAAAA"}
	s.post("/logout", nil, "Cookie", ended[0])
	revoked, text, err := d.ops.Grant(t.Context(), ops.Who{Actor: "test", Role: ops.Admin}, ops.NewToken{Name: "revoked", Role: kernel.RoleAdmin})
	if err != nil {
		t.Fatal(err)
	}
	ended[1] = s.signIn(text)
	if err := d.ops.Revoke(t.Context(), ops.Who{Actor: "test", Role: ops.Admin}, revoked.ID); err != nil {
		t.Fatal(err)
	}
	for _, route := range list {
		pattern, need := route[1], strings.ToLower(route[3])
		method, _, _ := strings.Cut(pattern, " ")
		if slices.Contains(open, pattern) {
			continue
		}
		if indexOf(order, need) < 1 || method != "GET" && need == "viewer" {
			t.Errorf("%s has the rule %q", pattern, need)
			continue
		}
		path := strings.NewReplacer("{$}", "", "runs/{id}", "runs/"+s.runs[jobs.Terminated].String(), "{id}", "abcdefgh", "{key}", "app.nightly", "{name}", "w1").Replace(route[2])
		for i, cookie := range ended {
			before := s.snapshot()
			answer, _ := s.get(path, "Cookie", cookie)
			if method != "GET" {
				answer, _ = s.post(path, url.Values{}, "Cookie", cookie)
			}
			if login := strings.HasPrefix(answer.Header.Get("Location"), "/login"); !login && answer.StatusCode != 401 || s.snapshot() != before {
				t.Errorf("%s by ended session %d: %d %s", pattern, i, answer.StatusCode, answer.Header.Get("Location"))
			}
		}
		for has, role := range order {
			answer, _ := s.get(path, "Cookie", cookies[role])
			if method != "GET" {
				answer, _ = s.post(path, url.Values{}, "Cookie", cookies[role])
			}
			switch login := strings.HasPrefix(answer.Header.Get("Location"), "/login"); {
			case role == "" && !login && answer.StatusCode != 401, role != "" && login:
				t.Errorf("%s by %q: %d %s", pattern, role, answer.StatusCode, answer.Header.Get("Location"))
			case role != "" && (answer.StatusCode == 403) != (has < indexOf(order, need)):
				t.Errorf("%s by %s, and it needs %s: %d", pattern, role, need, answer.StatusCode)
			}
		}
	}
	answer, _ := s.get("/events")
	if answer.StatusCode != 401 {
		t.Errorf("the stream of events is open to strangers: %d", answer.StatusCode)
	}
}

func indexOf(list []string, s string) int {
	for i := range list {
		if list[i] == s {
			return i
		}
	}
	return -1
}

// Where people need tokens, programs do: what a page gives them to copy says so.
func TestHowAProgramAsksWhereTokensAre(t *testing.T) {
	s, _, tokens := guarded(t)
	answer, body := s.get("/jobs/app.typed", "Cookie", s.signIn(tokens["viewer"]))
	s.has("a job", answer, body, 200, "Bearer $CARILLON_TOKEN", "Dial(&#34;tls://example.com:4222?token-file=client.token&#34;)")
}

func TestTokens(t *testing.T) {
	s, _, tokens := guarded(t)
	cookie := s.signIn(tokens["admin"])
	answer, body := s.post("/access", url.Values{"name": {"ann"}, "role": {"operator"}, "days": {"30"}}, "Cookie", cookie)
	_, rest, ok := strings.Cut(body, "carillon_default_")
	if answer.StatusCode != 200 || !ok {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	secret, _, _ := strings.Cut(rest, "<")
	if !strings.Contains(body, "CARILLON_TOKEN") || answer.Header.Get("Cache-Control") != "no-store" {
		t.Error("how it is used is not said, or it may be kept by the browser")
	}
	s.signIn("carillon_default_" + secret)
	if _, body := s.get("/access", "Cookie", cookie); strings.Contains(body, secret) || !strings.Contains(body, "ann") || !strings.Contains(body, "operator") {
		t.Error("the list shows a secret, or no token")
	}
	for _, c := range []struct {
		form   url.Values
		status int
		says   string
	}{
		{url.Values{"name": {"ann"}, "role": {"viewer"}}, 409, "ann"},
		{url.Values{"name": {"<b>x"}, "role": {"viewer"}}, 200, "&lt;b&gt;x"},
		{url.Values{"name": {""}, "role": {"viewer"}}, 422, "name"},
		{url.Values{"name": {"bob"}, "role": {"king"}}, 422, "king"},
		{url.Values{"name": {"bob"}, "role": {"viewer"}, "days": {"soon"}}, 422, "invalid number of days"},
		{url.Values{"name": {"eve"}, "role": {"viewer"}, "app": {"shop"}, "jobs": {"x"}}, 200, "Token eve"}, // the form hides these fields
		{url.Values{"name": {"cid"}, "role": {"operator"}, "app": {"shop"}, "jobs": {"billing.*, x"}, "tags": {"money"}}, 200, "jobs billing.* x, app shop, tag money"},
		{url.Values{"name": {"ci"}, "role": {"client"}, "app": {"shop"}, "jobs": {"billing.*"}}, 200, "/api/v1/jobs/JOB/trigger"},
		{url.Values{"name": {"ci 2"}, "role": {"client"}}, 200, "carillon.token"},
		{url.Values{"name": {"w"}, "role": {"worker"}, "app": {"shop"}, "jobs": {"billing.*"}}, 200, "carillon.token"},
	} {
		if answer, body := s.post("/access", c.form, "Cookie", cookie); answer.StatusCode != c.status || !strings.Contains(body, c.says) || strings.Contains(body, "<b>x") {
			t.Errorf("%v: %d, want %d and %q", c.form, answer.StatusCode, c.status, c.says)
		}
	}
	id, _, _ := strings.Cut(secret, "_")
	if answer, _ := s.post("/access/"+id+"/revoke", url.Values{"reason": {"has left"}}, "Cookie", cookie); answer.StatusCode != 303 {
		t.Fatalf("revoke: %d", answer.StatusCode)
	}
	if answer, _ := s.post("/login", url.Values{"token": {"carillon_default_" + secret}}); answer.StatusCode != 401 {
		t.Errorf("a revoked token: %d", answer.StatusCode)
	}
	own, _, _ := strings.Cut(strings.TrimPrefix(tokens["admin"], "carillon_default_"), "_")
	if answer, body := s.post("/access/"+own+"/revoke", nil, "Cookie", cookie); answer.StatusCode != 409 || !strings.Contains(body, "last") {
		t.Errorf("the last admin: %d", answer.StatusCode)
	}
	_, body = s.get("/audit", "Cookie", cookie)
	for _, want := range []string{"has left", "revoke", "grant", "token " + id + " (ann)", "admin-token"} {
		if !strings.Contains(body, want) {
			t.Errorf("the audit does not say %q", want)
		}
	}
}

func TestAudit(t *testing.T) {
	s, _, tokens := guarded(t)
	cookie := s.signIn(tokens["admin"])
	for _, late := range []string{"1m", "2m", "3m"} {
		if answer, _ := s.post("/settings", url.Values{"misfire": {late}}, "Cookie", cookie); answer.StatusCode != 303 {
			t.Fatal(answer.StatusCode)
		}
	}
	_, body := s.get("/audit?target=settings&actor=person:admin-token", "Cookie", cookie)
	if n := strings.Count(body, "<del>"); n != 2 && n != 3 || !strings.Contains(body, "<ins>3m") || strings.Contains(body, "token") && strings.Contains(body, "(viewer-token)") {
		t.Errorf("%d changes of settings: %s", n, body)
	}
	if _, body := s.get("/audit?target="+url.QueryEscape(hostile), "Cookie", cookie); !strings.Contains(body, "No matches") {
		t.Error("a target that is none")
	}
	for range 60 {
		s.apply(kernel.Pause{Key: "app.nightly", Reason: hostile})
		s.apply(kernel.Resume{Key: "app.nightly"})
	}
	_, body = s.get("/audit", "Cookie", cookie)
	older := linkOf(body, `rel="next"`)
	if strings.Count(body, `<tr data-key=`) != 50 || older == "" {
		t.Fatalf("the first page has %d rows, and goes on at %q", strings.Count(body, `<tr data-key=`), older)
	}
	if strings.Contains(body, "<script>a") || !strings.Contains(body, "job app.nightly") {
		t.Error("the audit shows hostile text as markup")
	}
	_, second := s.get(older, "Cookie", cookie)
	if n := strings.Count(second, `<tr data-key=`); n != 50 || second == body {
		t.Errorf("the second page has %d rows", n)
	}
}

// Pages show another tenant nothing of a tenant: a run or job of it looks like one that does not exist, whether its
// name is in the path or in a form, and nothing of it can be changed.
func TestTenantsAreApart(t *testing.T) {
	s, d, _ := guarded(t)
	_, token, err := d.ops.CreateTenant(t.Context(), ops.Who{Actor: "test", Role: ops.Admin}, ops.NewTenant{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	cookie := s.signIn(token)
	before := s.snapshot()
	none := jobs.NewID(time.Now()).String()
	busy := s.runs[jobs.Processing].String()
	for _, path := range []string{"/runs/ID", "/runs/ID/log", "/jobs/KEY", "/jobs/KEY/run", "/jobs/KEY/edit", "/jobs/KEY/versions", "/jobs/KEY/delete", "/jobs/KEY/backfill"} {
		theirs, shown := s.get(strings.NewReplacer("ID", busy, "KEY", "app.work").Replace(path), "Cookie", cookie)
		nothing, want := s.get(strings.NewReplacer("ID", none, "KEY", "app.none").Replace(path), "Cookie", cookie)
		shown = strings.NewReplacer(busy, none, "app.work", "app.none").Replace(shown)
		if theirs.StatusCode != 404 || nothing.StatusCode != 404 || shown != want {
			t.Errorf("%s: %d, and %d where there is nothing: %.300s", path, theirs.StatusCode, nothing.StatusCode, shown)
		}
	}
	for _, path := range []string{"/runs/" + busy + "/cancel", "/runs/" + busy + "/again", "/jobs/app.work/trigger", "/jobs/app.nightly/pause", "/jobs/app.paused/resume", "/jobs/app.work/delete"} {
		if answer, body := s.post(path, url.Values{"runs": {"cancel"}, "confirm": {"app.work"}}, "Cookie", cookie); answer.StatusCode != 404 {
			t.Errorf("%s: %d %.300s", path, answer.StatusCode, body)
		}
	}
	answer, _ := s.post("/runs/bulk", url.Values{"id": {busy}, "do": {"cancel"}}, "Cookie", cookie)
	if to, err := url.Parse(answer.Header.Get("Location")); err != nil || to.Query().Get("n") != "0" || to.Query().Get("no") != "1" {
		t.Errorf("a ticked run: %d, to %s", answer.StatusCode, to)
	}
	for _, path := range []string{"/", "/runs", "/jobs", "/audit", "/access", "/jobs?q=app", "/runs?job=app.work"} {
		answer, body := s.get(path, "Cookie", cookie)
		for _, theirs := range []string{busy, "app.nightly", `href="/jobs/app.work"`, "viewer-token"} {
			if answer.StatusCode != 200 || strings.Contains(body, theirs) {
				t.Errorf("%s: %d, with %s", path, answer.StatusCode, theirs)
			}
		}
	}
	if after := s.snapshot(); after != before {
		t.Errorf("%s became %s", before, after)
	}
}

// Pages show an operator with a scope no button for other jobs, and refuse forms about them.
func TestScope(t *testing.T) {
	s, d, _ := guarded(t)
	_, token, err := d.ops.Grant(t.Context(), ops.Who{Actor: "test", Role: ops.Admin}, ops.NewToken{Name: "limited", Role: kernel.RoleOperator, Scope: kernel.Scope{Keys: []string{"app.n*"}}})
	if err != nil {
		t.Fatal(err)
	}
	cookie := s.signIn(token)
	failed := s.runs[jobs.Terminated].String()
	for path, forms := range map[string][]string{
		"/jobs/app.nightly": {"/jobs/app.nightly/trigger", "/jobs/app.nightly/pause"}, "/jobs/app.work": nil, "/runs/" + failed: nil,
		"/jobs": {"/jobs/app.nightly/trigger", "/jobs/app.nightly/pause"},
	} {
		answer, body := s.get(path, "Cookie", cookie)
		var found []string
		for _, m := range regexp.MustCompile(`<form[^>]* method="post" action="(/(?:jobs|runs)/[^"]*)"`).FindAllStringSubmatch(body, -1) {
			if !slices.Contains(found, m[1]) {
				found = append(found, m[1])
			}
		}
		if answer.StatusCode != 200 || !slices.Equal(found, forms) {
			t.Errorf("%s: %d, with forms %q, want %q", path, answer.StatusCode, found, forms)
		}
	}
	if _, body := s.get("/runs", "Cookie", cookie); strings.Contains(body, `name="id"`) || !strings.Contains(body, "app.work") {
		t.Error("runs of jobs outside the scope can be selected")
	}
	before := s.snapshot()
	for _, path := range []string{"/jobs/app.work/trigger", "/jobs/app.work/pause", "/jobs/app.paused/resume", "/runs/" + s.runs[jobs.Processing].String() + "/cancel", "/runs/" + failed + "/again", "/workers/w1/drain", "/apps/app/drain"} {
		if answer, body := s.post(path, url.Values{}, "Cookie", cookie); answer.StatusCode != 403 || !strings.Contains(body, "jobs app.n*") {
			t.Errorf("%s: %d %.300s", path, answer.StatusCode, body)
		}
	}
	if after := s.snapshot(); after != before {
		t.Errorf("%s became %s", before, after)
	}
	if n := len(d.denied); n != 7 || !strings.Contains(d.denied[0], " POST /jobs/{key}/trigger job app.work is not in your scope") {
		t.Errorf("%d refused requests: %q", n, d.denied)
	}
	if answer, _ := s.post("/jobs/app.nightly/pause", url.Values{}, "Cookie", cookie); answer.StatusCode != 303 {
		t.Errorf("a job in the scope: %d", answer.StatusCode)
	}
}

// What changes something is a form that is posted: its address opened as a page changes nothing.
func TestReadingChangesNothing(t *testing.T) {
	source, err := os.ReadFile("ui.go")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`"POST (/[^"]*)"`).FindAllStringSubmatch(string(source), -1)
	if len(list) < 20 {
		t.Fatalf("%d routes", len(list))
	}
	s, _, tokens := guarded(t)
	cookie := s.signIn(tokens["admin"])
	before := s.snapshot()
	for _, route := range list {
		path := strings.NewReplacer("runs/{id}", "runs/"+s.runs[jobs.Processing].String(), "{id}", "abcdefgh", "{key}", "app.work", "{name}", "w1").Replace(route[1])
		for _, method := range []string{"GET", "HEAD"} {
			r := httptest.NewRequest(method, path+"?confirm=app.work&runs=cancel&on=true&kind=recurring", nil)
			r.Header.Set("Cookie", cookie)
			s.do(r)
			if after := s.snapshot(); after != before {
				t.Errorf("%s %s: %s became %s", method, path, before, after)
			}
		}
	}
	if answer, _ := s.get("/jobs/app.work/trigger", "Cookie", cookie); answer.StatusCode != 404 {
		t.Errorf("the address of a form: %d", answer.StatusCode)
	}
}
