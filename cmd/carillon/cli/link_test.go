package cli_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// answering is a server that answers everything in the same way.
func answering(t *testing.T, answer http.HandlerFunc) map[string]string {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return map[string]string{"CARILLON_SERVER": s.URL}
}

func problem(status int, code, detail string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"type":"about:blank","status":0,"code":"` + code + `","detail":"` + detail + `"}`))
	}
}

func breakOff(w http.ResponseWriter, _ *http.Request) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		c.Close()
	}
}

// Each response of a server or proxy has its exit code and an error with what to do.
func TestAnswers(t *testing.T) {
	elsewhere := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://elsewhere.example/", http.StatusFound)
	}
	plain := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<h1>nginx</h1>", status) }
	}
	get, post := []string{"jobs", "show", "x"}, []string{"jobs", "pause", "x"}
	for _, c := range []struct {
		name   string
		args   []string
		answer http.HandlerFunc
		code   int
		want   string
	}{
		{"no token", get, problem(401, "unauthorized", "no"), 5, "CARILLON_TOKEN"},
		{"may not", post, problem(403, "forbidden", "a viewer may not pause"), 5, "a viewer may not pause"},
		{"no leader", get, problem(503, "unavailable", "not done: try again"), 6, "try again"},
		{"too often", post, problem(429, "too_many", "slower"), 6, "slower"},
		{"quota", post, problem(429, "exhausted", "a million jobs are enough"), 4, "a million"},
		{"unknown", post, problem(504, "outcome_unknown", "it may or may not have been done"), 7, "may or may not"},
		{"stale", post, problem(412, "stale", "another client was faster"), 4, "faster"},
		{"ours", get, problem(500, "internal", "something went wrong"), 1, "something"},
		{"older", []string{"audit"}, problem(404, "no_such_route", "no such route"), 1, "does not support GET /api/v1/audit"},
		{"another program", get, plain(404), 1, "not like Carillon"},
		{"a proxy without a server, asked", get, plain(502), 6, "502 Bad Gateway"},
		{"a proxy without a server, command", post, plain(502), 7, "502 Bad Gateway"},
		{"elsewhere", get, elsewhere, 1, "redirects to https://elsewhere.example/"},
		{"broken off, asked", get, breakOff, 6, "no answer"},
		{"broken off, command", post, breakOff, 7, "unknown outcome"},
		{"no JSON", get, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }, 1, "decode the server's response"},
		{"steers the terminal", get, problem(409, "conflict", `\u001b[2Jgone`), 4, `\x1b[2Jgone`},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errs, code := call{env: answering(t, c.answer)}.run(c.args...)
			if code != c.code || !strings.Contains(errs, c.want) || out != "" {
				t.Errorf("exit code %d, want %d and %q; got %s%s", code, c.code, c.want, out, errs)
			}
		})
	}
}

func TestNoServer(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	for _, args := range [][]string{{"jobs", "list"}, {"jobs", "trigger", "x"}, {"jobs", "list", "--watch"}} {
		_, errs, code := call{env: map[string]string{"CARILLON_SERVER": s.URL}}.run(args...)
		if code != 6 || !strings.Contains(errs, "no server at ") || !strings.Contains(errs, "carillon dev") {
			t.Errorf("%v: exit code %d: %s", args, code, errs)
		}
	}
}

// A request to a slow server times out.
func TestTooSlow(t *testing.T) {
	release := make(chan struct{})
	env := answering(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) })
	_, errs, code := call{env: env}.run("jobs", "pause", "x", "--request-timeout", "50ms")
	if code != 7 || !strings.Contains(errs, "within 50ms") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// A run whose making was not answered is asked for again, and made once.
func TestTriggerOnce(t *testing.T) {
	h := open(t)
	var asked atomic.Int32
	env := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			h.Handler().ServeHTTP(httptest.NewRecorder(), r)
			breakOff(w, r)
			return
		}
		h.Handler().ServeHTTP(w, r)
	})
	out, errs, code := call{env: env}.run("jobs", "trigger", "shop.pack")
	if code != 0 || !strings.Contains(out, "of shop.pack") || asked.Load() != 2 {
		t.Fatalf("exit code %d after %d requests: %s%s", code, asked.Load(), out, errs)
	}
	if list, _, _ := (call{env: h.env()}).run("runs", "list", "-o", "name"); strings.Count(list, "\n") != 1 {
		t.Errorf("more than one run:\n%s", list)
	}
}

// If that does not help, the error has the key to repeat the request with.
func TestTriggerUnknown(t *testing.T) {
	tests.Long(t)
	_, errs, code := call{env: answering(t, breakOff)}.run("jobs", "trigger", "shop.pack", "--idempotency-key", "mine")
	if code != 7 || !strings.Contains(errs, "--idempotency-key mine") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// The token is taken from where it may be, and goes along.
func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got atomic.Value
	env := answering(t, func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Header.Get("Authorization"))
		_, _ = w.Write([]byte("{}"))
	})
	for _, c := range []struct {
		name, value string
		args        []string
		want        string
	}{
		{"CARILLON_TOKEN", "from-env", nil, "Bearer from-env"},
		{"CARILLON_TOKEN_FILE", file, nil, "Bearer from-file"},
		{"CARILLON_TOKEN", "from-env", []string{"--token-file", file}, "Bearer from-file"},
		{"HOME", "x", nil, ""},
	} {
		mine := map[string]string{c.name: c.value, "CARILLON_SERVER": env["CARILLON_SERVER"]}
		if _, errs, code := (call{env: mine}).run(append([]string{"jobs", "show", "x", "-q"}, c.args...)...); code != 0 || got.Load() != c.want {
			t.Errorf("%+v: exit code %d, sent %q: %s", c, code, got.Load(), errs)
		}
	}
	_, errs, code := call{env: map[string]string{"CARILLON_TOKEN": "ge heim"}}.run("jobs", "list")
	if code != 2 || strings.Contains(errs, "heim") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// A server that proves itself by a certificate of one's own.
func TestOwnCertificate(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	t.Cleanup(s.Close)
	env := map[string]string{"CARILLON_SERVER": s.URL}
	_, errs, code := call{env: env}.run("settings", "show")
	if code != 6 || !strings.Contains(errs, "--ca-file") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := (call{env: env}).run("settings", "show", "--ca-file", file); code != 0 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	env["CARILLON_CA_FILE"], env["CARILLON_OUTPUT"] = file, "json"
	if out, errs, code := (call{env: env}).run("settings", "show"); code != 0 || !strings.HasPrefix(out, "{") {
		t.Errorf("by the environment: exit code %d: %s%s", code, out, errs)
	}
	env["CARILLON_OUTPUT"] = "xml"
	if _, errs, code := (call{env: env}).run("settings", "show"); code != 2 || !strings.Contains(errs, "invalid -o") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if out, errs, code := (call{env: env}).run("settings", "show", "-o", "json"); code != 0 {
		t.Errorf("the environment overrules a flag: %s%s", out, errs)
	}
	env["CARILLON_REQUEST_TIMEOUT"] = "soon"
	if _, errs, code := (call{env: env}).run("settings", "show"); code != 2 || !strings.Contains(errs, "invalid $CARILLON_REQUEST_TIMEOUT \"soon\"") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, errs, code := (call{env: map[string]string{"CARILLON_SERVER": "http://" + u.Host}}).run("settings", "show"); code == 0 {
		t.Errorf("plain HTTP to a server of TLS: %s", errs)
	}
}

// What an edit was made for must still hold: another change in between is not overwritten.
func TestEditStale(t *testing.T) {
	h := open(t)
	env := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch { // another client is faster
			if _, errs, code := (call{env: h.env()}).run("jobs", "edit", "shop.pack", "--retries", "1", "-q"); code != 0 {
				t.Error(errs)
			}
		}
		h.Handler().ServeHTTP(w, r)
	})
	_, errs, code := call{env: env}.run("jobs", "edit", "shop.pack", "--retries", "7")
	if code != 4 || !strings.Contains(errs, "shop.pack changed since revision 1 was read") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if out, _, _ := (call{env: h.env()}).run("jobs", "show", "shop.pack", "-o", "json"); !strings.Contains(out, `"retries": 1`) {
		t.Errorf("the other change is lost:\n%s", out)
	}
}

// Lists come in pages; the client reads as many as the limit needs.
func TestPages(t *testing.T) {
	var asked []string
	env := answering(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		n, next := 3, `,"next":"p2"`
		switch q := r.URL.Query(); {
		case strings.HasSuffix(r.URL.Path, "/audit"):
			next = `,"next":17`
			if q.Get("before") == "17" {
				next = ""
			}
		case q.Get("after") == "p2", q.Get("cursor") == "p2":
			n, next = 2, ""
		}
		items := strings.TrimSuffix(strings.Repeat(`{"key":"shop.pack","id":"x","n":1},`, n), ",")
		_, _ = w.Write([]byte(`{"items":[` + items + `]` + next + `}`))
	})
	for _, c := range []struct {
		args  []string
		count int
		asked string
	}{
		{[]string{"jobs", "list"}, 5, "limit=1000 after=p2&limit=1000"},
		{[]string{"runs", "list", "-n", "5"}, 5, "limit=5 cursor=p2&limit=2"},
		{[]string{"runs", "list", "-n", "3"}, 3, "limit=3"},
		{[]string{"audit", "-n", "100"}, 6, "limit=100 before=17&limit=97"},
	} {
		asked = nil
		out, errs, code := call{env: env}.run(append(c.args, "-o", "json")...)
		if n := strings.Count(out, `"id": "x"`); code != 0 || n != c.count || strings.Join(asked, " ") != c.asked {
			t.Errorf("%v: %d of %d items by %q, want %q: %s", c.args, n, c.count, asked, c.asked, errs)
		}
	}
}

// A client that waits for a run that does not start prints why, once.
func TestWhyItWaits(t *testing.T) {
	tests.Long(t)
	const id = "01a1fe9e-093d-74d8-bc2f-197925d5c5e0"
	for _, c := range []struct{ run, workers, want string }{
		{`"job":"shop.pack"`, `{"jobs":{"shop.wait":0}}`, "the run waits for a worker that serves shop.pack: none is online\n"},
		{`"job":"shop.pack"`, `{"jobs":{"shop.pack":0}}`, ""},
		{`"job":"shop.pack","waits":"limit/oven"`, ``, "the run waits for a slot: other runs hold all of them\n"},
	} {
		var asked atomic.Int32
		env := answering(t, func(w http.ResponseWriter, r *http.Request) {
			state := "Enqueued"
			if asked.Add(1) > 7 {
				state = "Succeeded"
			}
			if strings.HasSuffix(r.URL.Path, "/workers") {
				_, _ = w.Write([]byte(`{"items":[` + c.workers + `]}`))
				return
			}
			_, _ = w.Write([]byte(`{"id":"` + id + `","state":"` + state + `",` + c.run + `}`))
		})
		var seconds atomic.Int64
		now := func() time.Time { return time.Unix(seconds.Add(1), 0) } // each look at the clock takes a second
		if _, errs, code := (call{env: env, now: now}).run("runs", "wait", id); code != 0 || errs != c.want {
			t.Errorf("exit code %d, got %q, want %q", code, errs, c.want)
		}
	}
}

// Removing a node lists the tokens that the node stored in files, and only those.
func TestTokensOfARemovedNode(t *testing.T) {
	list := `{"items":[{"id":"aaaa1111","name":"first admin","role":"admin","by":"node:n1"},{"id":"bbbb2222","name":"ci","role":"client","by":"person:ann"}]}`
	env := answering(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case list == "":
			http.Error(w, `{"status":403,"detail":"an admin's token is wanted"}`, http.StatusForbidden)
		default:
			_, _ = w.Write([]byte(list))
		}
	})
	for node, want := range map[string]string{
		"n1": "token aaaa1111 (first admin, admin) is in a file of that node: replace it, then carillon tokens revoke aaaa1111\n",
		"n2": "",
	} {
		if _, errs, code := (call{env: env}).run("cluster", "remove", node); code != 0 || errs != want {
			t.Errorf("%s: exit code %d, got %q, want %q", node, code, errs, want)
		}
	}
	list = ""
	if _, errs, code := (call{env: env}).run("cluster", "remove", "n1"); code != 0 || !strings.Contains(errs, "are unknown") {
		t.Errorf("exit code %d, got %q", code, errs)
	}
}

// The program warns before it sends a token without TLS.
func TestTokenInTheClear(t *testing.T) {
	for _, c := range []struct {
		server, token string
		warned        bool
	}{
		{"http://carillon.invalid:8080", "x", true},
		{"http://carillon.invalid:8080", "", false},
		{"https://carillon.invalid:8080", "x", false},
		{"http://localhost:1", "x", false},
		{"http://[::1]:1", "x", false},
	} {
		_, errs, _ := call{env: map[string]string{"CARILLON_SERVER": c.server, "CARILLON_TOKEN": c.token}}.run("whoami", "--request-timeout", "100ms")
		if warned := strings.Contains(errs, "without TLS"); warned != c.warned {
			t.Errorf("%+v: %s", c, errs)
		}
	}
}
