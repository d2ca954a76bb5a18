package api_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// guarded is a fixture that asks who comes. Its clock is an hour ahead of the store's, so that some tokens are over.
type guarded struct {
	*fixture
	access *api.Access
	ops    *ops.Ops
	tokens map[string]string // by who holds them
	run    string            // the id of a run
	batch  string            // the id of a batch
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{fixture: newStore(t), tokens: map[string]string{"none": ""}}
	early := ops.New(ops.Config{Store: g.store, Authenticates: true})
	root := ops.Who{Actor: "person:root", Role: ops.Admin}
	for _, want := range []ops.NewToken{{Name: "keep", Role: "admin"}, {Name: "viewer", Role: "viewer"}, {Name: "operator", Role: "operator"}, {Name: "admin", Role: "admin"},
		{Name: "worker", Role: "worker"}, {Name: "client", Role: "client"}, {Name: "revoked", Role: "admin"}, {Name: "expired", Role: "admin", For: time.Minute}} {
		token, text, err := early.Grant(t.Context(), root, want)
		if err != nil {
			t.Fatal(err)
		}
		g.tokens[want.Name] = text
		if want.Name == "revoked" {
			if err := early.Revoke(t.Context(), root, token.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, other, err := early.CreateTenant(t.Context(), root, ops.NewTenant{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	admin := g.tokens["admin"]
	wrong := "A"
	if strings.HasSuffix(admin, wrong) {
		wrong = "B"
	}
	g.tokens["another tenant"] = other
	g.tokens["last character"] = admin[:len(admin)-1] + wrong
	g.tokens["prefix"] = admin[:len(admin)-10]
	g.tokens["a megabyte"] = admin + strings.Repeat("A", 1<<20)
	o := ops.New(ops.Config{Store: g.store, Sessions: ops.SessionLimits{Idle: 2 * time.Hour}, Authenticates: true, Now: func() time.Time { return time.Now().Add(time.Hour) }})
	g.ops, g.access = o, api.NewAccess(o, false)
	log := slog.New(slog.NewTextHandler(&g.log, &slog.HandlerOptions{Level: slog.LevelDebug})) // each request has a line
	g.api = api.New(api.Config{Ops: o, Who: g.access.Who, Denied: g.access.Denied, Logger: log})
	g.Handler = hangsUp(api.Guard(log, "", g.api))
	g.apply(kernel.SetAlarmTarget{Target: kernel.AlarmTarget{Name: "holidays", Kind: "slack", URL: "https://hooks.example/1"}})
	g.apply(kernel.SetAlarmRule{Rule: kernel.AlarmRule{Name: "slow", Kind: kernel.AlarmSlow, Factor: 2, Targets: []string{"holidays"}}})
	g.apply(kernel.RaiseAlarm{Rule: "slow", Job: "billing.charge", App: "billing"})
	open := kernel.OpenBatch{ID: jobs.NewID(time.Now()), Then: "billing.charge"}
	g.apply(open)
	g.batch = open.ID.String()
	g.run = g.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "billing.charge"}).Run().ID.String()
	return g
}

// as sends a request with the token of a role, from an address of its own.
func (g *guarded) as(holder, method, path, body string, headers ...string) answer {
	g.t.Helper()
	if token := g.tokens[holder]; token != "" {
		headers = append(headers, "Authorization", "Bearer "+token)
	}
	return g.send(method, path, body, headers...)
}

// operation is a route of the OpenAPI document, with the roles that it names.
type operation struct {
	method, path, role string
	also               []string
}

// permits reports whether a role is enough, by the document.
func (op *operation) permits(role string) bool {
	people := []string{"viewer", "operator", "admin"}
	return slices.Contains(op.also, role) || slices.Index(people, role) >= slices.Index(people, op.role)
}

func operations(t *testing.T) (list []operation) {
	t.Helper()
	raw, err := api.New(api.Config{Ops: ops.New(ops.Config{})}).OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths map[string]map[string]struct {
			Role     string   `json:"x-role"`
			Also     []string `json:"x-also"`
			Security []any
		}
	}
	if err := json.Unmarshal(raw, &document); err != nil || len(document.Paths) < 15 {
		t.Fatalf("%d paths (%v)", len(document.Paths), err)
	}
	for path, methods := range document.Paths {
		for method, op := range methods {
			if _, err := ops.ParseRole(op.Role); err != nil || len(op.Security) == 0 {
				t.Errorf("%s %s has no rule: %v", method, path, err)
			}
			list = append(list, operation{strings.ToUpper(method), path, op.Role, op.Also})
		}
	}
	return list
}

// of names an attempt, for what follows.
const of = `{"worker":"w-a1","run":"01996b2a-6f00-7000-8000-000000000000","attempt":1`

// bodies are what routes need to be reached at all; those that are not named take none.
var bodies = map[string]string{
	"PATCH /api/v1/jobs/{key}": `{"retries":1}`, "POST /api/v1/runs": `{"items":[{"job":"billing.charge"}]}`,
	"PATCH /api/v1/settings": `{"recurringDebug":true}`, "POST /api/v1/tokens": `{"name":"new","role":"viewer"}`, "POST /api/v1/cluster/transfer": `{}`,
	"POST /api/v1/jobs/{key}/rollback": `{"revision":1}`, "POST /api/v1/jobs": `{"key":"billing.new","kind":"triggered","app":"billing"}`,
	"PUT /api/v1/calendars/{name}":     `{"rules":[]}`,
	"PUT /api/v1/alarm-targets/{name}": `{"kind":"slack","url":"https://hooks.example/2"}`, "PUT /api/v1/alarm-rules/{name}": `{"kind":"missed","targets":["holidays"]}`,
	"POST /api/v1/outbox/refused/retry": `{"numbers":[1]}`, "POST /api/v1/outbox/refused/discard": `{"numbers":[1]}`,
	"POST /api/v1/seed/jobs/{jobId}": `{"request":[{"url":"http://example.com/"}]}`, "POST /api/v1/seed/jobs/{jobId}/update": `{"request":[{"url":"http://example.com/"}]}`,
	"POST /api/v1/jobs/{key}/backfill": `{"from":"2026-01-01T00:00:00Z"}`,
	"POST /api/v1/jobs/{key}/check-in": `{}`,
	"POST /api/v1/batches":             `{"then":"billing.charge","name":"monday"}`,
	"POST /api/v1/tenants":             `{"name":"third"}`, "PATCH /api/v1/tenants/{name}": `{"title":"x"}`, "POST /api/v1/tenants/{name}/tokens": `{"name":"new","role":"admin"}`,
	"POST /api/v1/apply":           `{"jobs":[{"key":"billing.charge","retries":1}]}`,
	"POST /api/v1/worker/register": `{"name":"w","start":"a1","app":"billing","slots":1,"jobs":[{"key":"billing.charge","kind":"triggered"}]}`,
	"POST /api/v1/worker/poll":     `{"worker":"w-a1"}`, "POST /api/v1/worker/heartbeat": `{"worker":"w-a1"}`, "POST /api/v1/worker/leave": `{"worker":"w-a1"}`,
	"POST /api/v1/worker/finish": of + `}`, "POST /api/v1/worker/progress": of + `,"done":1}`, "POST /api/v1/worker/checkpoint": of + `,"data":1}`,
	"POST /api/v1/worker/logs": of + `,"lines":[{"text":"x"}]}`,
}

// Rows 47, 49 and 80: every route answers each kind of caller as its rule says, and nothing changes where it refuses,
// nor where it only reads.
func TestEveryRouteHasARule(t *testing.T) {
	roles := []string{"viewer", "operator", "admin", "worker", "client"}
	strangers := []string{"none", "expired", "revoked", "last character", "prefix", "a megabyte", "in the query"}
	refusing := newGuarded(t)
	before := refusing.snapshot()
	for i, op := range operations(t) {
		method, path := op.method, op.path
		for _, holder := range slices.Concat(strangers, roles, []string{"another tenant"}) {
			known := slices.Contains(roles, holder)
			g, want := refusing, 0 // 0 = anything but refused
			if known && op.permits(holder) && i%tests.Size(4, 1, 1) != 0 {
				continue // who may is tried at some routes only, since each change needs an API of its own
			}
			switch {
			case holder == "another tenant": // an admin, elsewhere
				switch {
				case path == "/api/v1/backup" || strings.HasPrefix(path, "/api/v1/cluster/") || strings.HasPrefix(path, "/api/v1/tenants"):
					want = http.StatusForbidden // the server's administrators manage nodes and tenants
				case method == "PUT" && path != "/api/v1/seed/jobs/{jobId}", method == "POST" && path == "/api/v1/seed/jobs/{jobId}": // makes one of its own
				case path == "/api/v1/tokens/{id}": // to revoke what is not there changes nothing
				case strings.Contains(path, "{"):
					want = http.StatusNotFound
				}
			case !known:
				want = http.StatusUnauthorized
			case !op.permits(holder):
				want = http.StatusForbidden
			}
			if want == 0 && method != http.MethodGet {
				g = newGuarded(t) // it may change
			}
			to := strings.NewReplacer("{key}", "billing.charge", "runs/{id}", "runs/"+g.run, "batches/{id}", "batches/"+g.batch, "{id}", "zzzzzzzz", "{number}", "1", "{name}", "holidays", "{jobId}", "billing.charge").Replace(path)
			if path == "/api/v1/seed/jobs/{jobId}" && method == "PUT" {
				to += "?active=1"
			}
			if holder == "in the query" {
				to += map[bool]string{true: "&", false: "?"}[strings.Contains(to, "?")] + "token=" + g.tokens["admin"] + "&access_token=" + g.tokens["admin"]
			}
			g.access.Forgive()
			a := g.as(holder, method, to, bodies[method+" "+path])
			if a.StatusCode != want && (want != 0 || slices.Contains([]int{401, 403, 405, 429, 500}, a.StatusCode)) {
				t.Errorf("%s %s by %s: %d, want %d: %.200s", method, path, holder, a.StatusCode, want, a.body)
			}
			if a.StatusCode == 401 && a.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s by %s: it does not say how to say who one is", method, path, holder)
			}
			if strings.Contains(g.log.String(), "token=") || strings.Contains(string(a.body), g.tokens["admin"]) {
				t.Errorf("%s %s by %s: the token is revealed", method, path, holder)
			}
		}
	}
	if after := refusing.snapshot(); after != before {
		t.Errorf("all was refused or only read, and yet %s became %s", before, after)
	}
	if !strings.Contains(refusing.log.String(), "path=/api/v1/jobs ") {
		t.Error("requests are not logged, so the log does not show that tokens are left out")
	}
}

// hangsUp ends each request as soon as something is flushed.
func hangsUp(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		next.ServeHTTP(flushing{w, cancel}, r.WithContext(ctx))
	})
}

type flushing struct {
	http.ResponseWriter
	hangUp func()
}

func (f flushing) Flush() { f.hangUp() }

// What needs no token: whether the process lives, and what the API is.
func TestOpenRoutes(t *testing.T) {
	g := newGuarded(t)
	for path, want := range map[string]int{"/livez": 200, "/readyz": 503, "/leaderz": 503, "/openapi.json": 200, "/openapi.yaml": 200, "/openapi-3.0.json": 200,
		"/docs": 200, "/docs/style.css": 200, "/docs/bell.svg": 200, "/docs/reference.gohtml": 404, "/api/v1/nothing": 401, "/": 404} {
		if a := g.send("GET", path, ""); a.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, a.StatusCode, want)
		}
	}
}

// Row 48: what belongs to another tenant looks like what is not there.
func TestTenantsAreApart(t *testing.T) {
	g := newGuarded(t)
	mine := g.as("admin", "GET", "/api/v1/runs/"+g.run, "")
	theirs := g.as("another tenant", "GET", "/api/v1/runs/"+g.run, "")
	nothing := g.as("another tenant", "GET", "/api/v1/runs/"+jobs.NewID(time.Now()).String(), "")
	if mine.StatusCode != 200 || theirs.StatusCode != 404 || nothing.StatusCode != 404 || len(theirs.body) != len(nothing.body) {
		t.Errorf("%d, %d %s, %d %s", mine.StatusCode, theirs.StatusCode, theirs.body, nothing.StatusCode, nothing.body)
	}
	for _, path := range []string{"/api/v1/jobs", "/api/v1/runs", "/api/v1/audit"} {
		if a := g.as("another tenant", "GET", path, ""); a.StatusCode != 200 || strings.Contains(string(a.body), "billing") || strings.Contains(string(a.body), "viewer") {
			t.Errorf("%s shows %s", path, a.body)
		}
	}
	// Row 25: nor is a cursor taken from one to the other, or from one list to another.
	g.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "billing.charge"})
	page := read[struct{ Next string }](t, g.as("viewer", "GET", "/api/v1/runs?limit=1", ""))
	for _, c := range []struct {
		holder, query string
		want          int
	}{{"viewer", "limit=1", 200}, {"viewer", "limit=7", 200}, {"another tenant", "limit=1", 400}, {"viewer", "limit=1&job=billing.charge", 400}, {"viewer", "limit=1&state=Enqueued", 400}, {"viewer", "limit=1&code=timeout", 400}} {
		if a := g.as(c.holder, "GET", "/api/v1/runs?"+c.query+"&cursor="+page.Next, ""); page.Next == "" || a.StatusCode != c.want {
			t.Errorf("%s by %s: %d, want %d: %s", c.query, c.holder, a.StatusCode, c.want, a.body)
		}
	}
	forged := []byte(page.Next)
	forged[len(forged)-2] ^= 1
	if a := g.as("viewer", "GET", "/api/v1/runs?limit=1&cursor="+string(forged), ""); a.StatusCode != 400 {
		t.Errorf("a cursor that was changed: %d", a.StatusCode)
	}
	// Row 30: an idempotency key is one's own.
	g.as("another tenant", "POST", trigger, `{}`, "Idempotency-Key", "k")
	if run := read[api.Run](t, g.as("admin", "POST", trigger, `{}`, "Idempotency-Key", "k")); run.Duplicate {
		t.Error("the idempotency key of another tenant leads to a run")
	}
}

// Row 50: an address that sends wrong tokens has to wait; other addresses need not.
func TestWrongTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t)
		from := func(address, token string) answer {
			t.Helper()
			r := httptest.NewRequest("GET", "/api/v1/whoami", nil)
			r.RemoteAddr = address
			r.Header.Set("X-Forwarded-For", "198.51.100.7") // is not believed
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			return answer{w.Result(), w.Body.Bytes()}
		}
		statuses := map[int]int{}
		var last answer
		for i := range 10_000 {
			last = from("192.0.2.1:1234", fmt.Sprintf("carillon_default_abcdefgh_%026d", i))
			statuses[last.StatusCode]++
		}
		if p := last.problem(t); statuses[401] != 10 || statuses[429] != 9_990 || p.Code != "too_many" || last.Header.Get("Retry-After") != "2" {
			t.Errorf("%v, %+v, Retry-After %s", statuses, p, last.Header.Get("Retry-After"))
		}
		for _, c := range []struct {
			address, token string
			want           int
		}{
			{"192.0.2.1:99", g.tokens["viewer"], 200}, // another user behind the same address
			{"192.0.2.1:99", "", 401},                 // tries nothing
			{"192.0.2.2:99", "wrong", 401},
			{"[::ffff:192.0.2.1]:99", "wrong", 429},
			{"[2001:db8::1]:99", "wrong", 401},
		} {
			if a := from(c.address, c.token); a.StatusCode != c.want {
				t.Errorf("%s: %d, want %d", c.address, a.StatusCode, c.want)
			}
		}
		for i := range 10 {
			last = from(fmt.Sprintf("[2001:db8::%x]:99", i+2), "wrong")
		}
		if last.StatusCode != 429 {
			t.Errorf("a network of one owner has as many tries as addresses: %d", last.StatusCode)
		}
		time.Sleep(2 * time.Second)
		if a, b := from("192.0.2.1:1", "wrong"), from("192.0.2.1:1", "wrong"); a.StatusCode != 401 || b.StatusCode != 429 {
			t.Errorf("after a while: %d, then %d", a.StatusCode, b.StatusCode)
		}
	})
}

// Who signs in again and again must not push what others did, or what he did, out of the record.
func TestManySessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t)
		begin := func(holder string) error {
			_, _, err := g.access.SignIn(httptest.NewRequest("POST", "/login", nil), g.tokens[holder])
			return err
		}
		for i := range 20 {
			if err := begin("viewer"); err != nil {
				t.Fatalf("session %d: %v", i+1, err)
			}
		}
		if err := begin("viewer"); !errors.Is(err, jobs.Exhausted) {
			t.Errorf("one more: %v", err)
		}
		if err := begin("admin"); err != nil {
			t.Errorf("another user: %v", err)
		}
		time.Sleep(30 * time.Second)
		if err := begin("viewer"); err != nil {
			t.Errorf("a while later: %v", err)
		}
	})
}

// Each route of an operator answers 403 to one whose scope has not the job, and names the scope; nothing changes.
func TestScopeOnEveryRoute(t *testing.T) {
	g := newGuarded(t)
	_, text, err := ops.New(ops.Config{Store: g.store}).Grant(t.Context(), ops.Who{Actor: "person:root", Role: ops.Admin},
		ops.NewToken{Name: "limited", Role: "operator", Scope: kernel.Scope{Keys: []string{"shop.*"}, Tags: []string{"none"}}})
	if err != nil {
		t.Fatal(err)
	}
	g.tokens["limited"] = text
	if self := read[api.Self](t, g.as("limited", "GET", "/api/v1/whoami", "")); self.Scope == nil || !slices.Equal(self.Scope.Jobs, []string{"shop.*"}) {
		t.Errorf("%+v", self)
	}
	before, n := g.snapshot(), 0
	for _, op := range operations(t) {
		method, path := op.method, op.path
		if op.role != "operator" || strings.HasPrefix(path, "/api/v1/bulk/") || strings.Contains(path, "/outbox/") { // their results have refusals; there is no outbox
			continue
		}
		n++
		body := bodies[method+" "+path]
		url := strings.NewReplacer("{key}", "billing.charge", "{jobId}", "billing.charge", "batches/{id}", "batches/"+g.batch, "{id}", g.run, "{number}", "1", "{name}", "w").Replace(path)
		if method == "PUT" { // the only one
			url += "?active=0"
		}
		if a := g.as("limited", method, url, body); a.StatusCode != 403 || !strings.Contains(string(a.body), "jobs shop.*, tag none") {
			t.Errorf("%s %s: %d %s", method, path, a.StatusCode, a.body)
		}
	}
	if n < 8 {
		t.Errorf("%d routes were tried", n)
	}
	if after := g.snapshot(); after != before {
		t.Errorf("%s became %s", before, after)
	}
}

// Requests of people keep a session in use; those that an open page sends by itself do not.
func TestOpenPagesKeepNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t)
		cookie, _, err := g.access.SignIn(httptest.NewRequest("POST", "/login", nil), g.tokens["operator"])
		if err != nil {
			t.Fatal(err)
		}
		seen := func() time.Time {
			t.Helper()
			list, err := g.store.Sessions(t.Context(), jobs.DefaultTenant)
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			return list[0].Seen
		}
		began := seen()
		time.Sleep(2 * time.Minute)
		for _, headers := range [][]string{{"X-Fragment", "1"}, {"Accept", "text/event-stream"}} {
			if a := g.send("GET", "/api/v1/whoami", "", append(headers, "Cookie", "carillon_session="+cookie)...); a.StatusCode != 200 || !seen().Equal(began) {
				t.Errorf("%v: %d, seen %v later", headers, a.StatusCode, seen().Sub(began))
			}
		}
		if a := g.send("GET", "/api/v1/whoami", "", "Cookie", "carillon_session="+cookie); a.StatusCode != 200 || seen().Sub(began) != 2*time.Minute {
			t.Errorf("a request: %d, seen %v later", a.StatusCode, seen().Sub(began))
		}
	})
}

// Rows 53 and 59: what a browser keeps, and what it may do with it.
func TestSession(t *testing.T) {
	g := newGuarded(t)
	over := func(secure bool) *http.Request {
		r := httptest.NewRequest("POST", "/login", nil)
		if secure {
			r.TLS = &tls.ConnectionState{}
		}
		return r
	}
	// A login begins a session of its own: one planted in the browser before is refused.
	planted := over(false)
	planted.AddCookie(&http.Cookie{Name: "carillon_session", Value: "default.PLANTEDPLANTEDPLANTEDPLAN"})
	cookie, until, err := g.access.SignIn(planted, g.tokens["operator"])
	if err != nil {
		t.Fatal(err)
	}
	if a := g.send("GET", "/api/v1/whoami", "", "Cookie", "carillon_session=default.PLANTEDPLANTEDPLANTEDPLAN"); strings.Contains(cookie, "PLANTED") || a.StatusCode != 401 {
		t.Errorf("the login takes over the planted session %q: %d", cookie, a.StatusCode)
	}
	if c := g.access.Cookie(over(false), cookie, until); c.Name != "carillon_session" || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Secure || c.Path != "/" {
		t.Errorf("%+v", c)
	}
	claims := over(false) // what a client says of its connection is not believed
	claims.Header.Set("X-Forwarded-Proto", "https")
	claims.Header.Set("Forwarded", "proto=https")
	if c := g.access.Cookie(claims, cookie, until); c.Name != "carillon_session" || c.Secure {
		t.Errorf("X-Forwarded-Proto: %+v", c)
	}
	if c := g.access.Cookie(over(true), cookie, until); c.Name != "__Host-carillon_session" || !c.HttpOnly || !c.Secure || c.Path != "/" || c.Domain != "" {
		t.Errorf("over TLS: %+v", c)
	}
	if c := g.access.Cookie(over(false), "", time.Time{}); c.MaxAge >= 0 || c.Value != "" {
		t.Errorf("forgotten: %+v", c)
	}
	with := "carillon_session=" + cookie
	if self := read[api.Self](t, g.send("GET", "/api/v1/whoami", "", "Cookie", with)); self != (api.Self{Actor: "person:operator", Role: "operator", Tenant: "default"}) {
		t.Errorf("%+v", self)
	}
	// A page of a stranger sends the cookie along, and is refused.
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "null"}, {"Origin", "https://evil.com"}} {
		if a := g.send("POST", trigger, `{}`, append(headers, "Cookie", with)...); a.StatusCode != 403 || a.problem(t).Code != "cross_origin" {
			t.Errorf("%v: %d %s", headers, a.StatusCode, a.body)
		}
	}
	if a := g.send("POST", trigger, `{}`, "Cookie", with, "Sec-Fetch-Site", "same-origin"); a.StatusCode != 201 {
		t.Errorf("our own page: %d", a.StatusCode)
	}
	if a := g.send("GET", "/api/v1/whoami", "", "Cookie", "__Host-"+with); a.StatusCode != 401 {
		t.Errorf("a cookie for TLS without TLS: %d", a.StatusCode)
	}
	if a := g.send("GET", "/api/v1/whoami", "", "Cookie", "carillon_session="+g.tokens["operator"]); a.StatusCode != 401 {
		t.Errorf("a token for a cookie: %d", a.StatusCode)
	}
	if err := ops.New(ops.Config{Store: g.store}).SignOut(t.Context(), cookie); err != nil {
		t.Fatal(err)
	}
	if a := g.send("GET", "/api/v1/whoami", "", "Cookie", with); a.StatusCode != 401 {
		t.Errorf("after signing out: %d", a.StatusCode)
	}
}

func TestTokensAndAudit(t *testing.T) {
	g := newGuarded(t)
	made := read[api.GrantedToken](t, g.as("admin", "POST", "/api/v1/tokens", `{"name":"Ann","role":"operator","for":"48h"}`))
	g.tokens["Ann"] = made.Text
	if self := read[api.Self](t, g.as("Ann", "GET", "/api/v1/whoami", "")); self.Role != "operator" || made.By != "person:admin" || made.Until == nil {
		t.Errorf("%+v is %+v", made, self)
	}
	type list[T any] struct{ Items []T }
	raw := g.as("admin", "GET", "/api/v1/tokens", "")
	if tokens := read[list[api.Token]](t, raw); len(tokens.Items) != 8 || strings.Contains(string(raw.body), made.Text[len(made.Text)-26:]) {
		t.Errorf("tokens are %s", raw.body)
	}
	if p := g.as("admin", "POST", "/api/v1/tokens", `{"name":"Ann","role":"viewer"}`).problem(t); p.Status != 409 {
		t.Errorf("a second of the name: %+v", p)
	}
	g.as("admin", "PATCH", edit, `{"retries":3}`, "Carillon-Reason", "they fail at night")
	audit := read[list[api.Change]](t, g.as("admin", "GET", "/api/v1/audit?target=job+billing.close-day&limit=1", ""))
	if c := audit.Items[0]; len(audit.Items) != 1 || c.Actor != "person:admin" || c.Verb != "edit" || c.Reason != "they fail at night" ||
		string(*c.Before) != `{"retries":0}` || string(*c.After) != `{"retries":3}` {
		t.Errorf("audit: %+v %s %s", c, *c.Before, *c.After)
	}
	if a := g.as("admin", "DELETE", "/api/v1/tokens/"+made.ID, ""); a.StatusCode != 204 {
		t.Errorf("revoke: %d %s", a.StatusCode, a.body)
	}
	if a := g.as("Ann", "GET", "/api/v1/whoami", ""); a.StatusCode != 401 {
		t.Errorf("a revoked token: %d", a.StatusCode)
	}
}

// A program's token may use these routes, and no other.
func TestRoutesOfPrograms(t *testing.T) {
	want := map[string][]string{"client": {"GET /api/v1/runs/{id}", "GET /api/v1/whoami", "POST /api/v1/jobs/{key}/trigger", "POST /api/v1/runs"}, "worker": {"GET /api/v1/whoami"}}
	got := map[string][]string{}
	for _, op := range operations(t) {
		for _, role := range op.also {
			if !strings.HasPrefix(op.path, "/api/v1/worker/") || role != "worker" {
				got[role] = append(got[role], op.method+" "+op.path)
			}
		}
	}
	for role, routes := range got {
		if slices.Sort(routes); !slices.Equal(routes, want[role]) {
			t.Errorf("%s: %q, want %q", role, routes, want[role])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
}

// A client starts runs of the jobs in its scope, as programs do, and reads these. A refusal names its role.
func TestClientStartsRuns(t *testing.T) {
	g := newGuarded(t)
	_, text, err := g.ops.Grant(t.Context(), ops.Who{Actor: "person:root", Role: ops.Admin}, ops.NewToken{Name: "ci", Role: "client", Scope: kernel.Scope{Keys: []string{"billing.charge"}}})
	if err != nil {
		t.Fatal(err)
	}
	g.tokens["ci"] = text
	other := g.apply(kernel.Create{ID: jobs.NewID(time.Now()), Key: "billing.close-day"}).Run().ID.String()
	g.apply(kernel.Pause{Key: "billing.charge"})
	self := read[api.Self](t, g.as("ci", "GET", "/api/v1/whoami", ""))
	if self.Role != "client" || self.Scope == nil || !slices.Equal(self.Scope.Jobs, []string{"billing.charge"}) {
		t.Errorf("%+v", self)
	}
	made := read[api.Run](t, g.as("ci", "POST", "/api/v1/jobs/billing.charge/trigger", `{"manual":true}`))
	if made.Origin != "api" || made.State != "Scheduled" {
		t.Errorf("manual lifts the pause for a program: %+v", made)
	}
	for _, c := range []struct {
		holder, method, path, body string
		want                       int
		says                       string
	}{
		{"ci", "GET", "/api/v1/runs/" + made.ID, "", 200, `"billing.charge"`},
		{"ci", "POST", "/api/v1/runs", `{"items":[{"job":"billing.charge"}]}`, 201, `"billing.charge"`},
		{"ci", "POST", "/api/v1/jobs/billing.close-day/trigger", `{}`, 403, "job billing.close-day is not in your scope (jobs billing.charge)"},
		{"ci", "POST", "/api/v1/runs", `{"items":[{"job":"billing.charge"},{"job":"billing.close-day"}]}`, 403, "billing.close-day is not in your scope"},
		{"ci", "GET", "/api/v1/runs/" + other, "", 403, "not in your scope"},
		{"client", "GET", "/api/v1/runs/" + other, "", 200, `"billing.close-day"`},
		{"client", "POST", "/api/v1/jobs/carillon.notify.billing/trigger", `{}`, 403, "are started by the scheduler only"},
		{"client", "GET", "/api/v1/runs/" + other + "/log", "", 403, "this needs the role viewer, and the token has the role client"},
		{"client", "POST", "/api/v1/runs/" + other + "/cancel", "", 403, "this needs the role operator, and the token has the role client"},
		{"worker", "POST", "/api/v1/jobs/billing.charge/trigger", `{}`, 403, "this needs the role client or operator, and the token has the role worker"},
		{"viewer", "POST", "/api/v1/worker/poll", bodies["POST /api/v1/worker/poll"], 403, "this needs the role worker or admin, and the token has the role viewer"},
	} {
		if a := g.as(c.holder, c.method, c.path, c.body); a.StatusCode != c.want || !strings.Contains(string(a.body), c.says) {
			t.Errorf("%s %s by %s: %d %s", c.method, c.path, c.holder, a.StatusCode, a.body)
		}
	}
}
