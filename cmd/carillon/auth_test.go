package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// ask makes a request with a token, "" for none, and answers with its status.
func (p *program) ask(method, path, token, body string) (int, http.Header, []byte) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.page+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	direct := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := direct.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, text
}

// until asks until the status is the wanted one, and the body contains all texts.
func (p *program) until(want int, path, token string, texts ...string) []byte {
	p.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		status, _, body := p.ask("GET", path, token, "")
		lacks := func(text string) bool { return !strings.Contains(string(body), text) }
		if status == want && !slices.ContainsFunc(texts, lacks) {
			return body
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: last %d %.300s, want %d with %q: %s", path, status, body, want, texts, p.out)
		}
	}
}

// tokenIn waits until the program is ready, and then wants a private file with a token.
func (p *program) tokenIn(path string) string {
	p.t.Helper()
	p.until(200, "/readyz", "")
	if _, err := os.Stat(path); err != nil {
		p.t.Errorf("the program is ready before its token: %v", err)
	}
	return p.tokenOf(path)
}

// tokenOf is tokenIn of a program that is known to be ready.
func (p *program) tokenOf(path string) string {
	p.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		raw, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || err == nil && !bytes.HasSuffix(raw, []byte("\n")) {
			continue
		}
		if err != nil {
			p.t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			p.t.Errorf("%s has mode %v (%v)", path, info.Mode(), err)
		}
		return strings.TrimSpace(string(raw))
	}
	p.t.Fatalf("no file %s: %s", path, p.out)
	return ""
}

func locked(dir string, more ...string) []string {
	return append([]string{"server", "--auth", "on", "--data", dir, "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0"}, more...)
}

// worker has an admin create a worker's token for an app.
func (p *program) worker(admin, app string) string {
	p.t.Helper()
	status, _, body := p.ask("POST", "/api/v1/tokens", admin, `{"name":"crew","role":"worker","app":"`+app+`"}`)
	var made struct{ Text string }
	if err := json.Unmarshal(body, &made); err != nil || status != 201 || made.Text == "" {
		p.t.Fatalf("a worker's token: %d %s", status, body)
	}
	return made.Text
}

// The first admin's token is the one in the given file. Later starts need it no more. A text that is no token is refused.
func TestGivenFirstToken(t *testing.T) {
	dir, admin := t.TempDir(), ops.TokenText(jobs.DefaultTenant)
	file := secretFile(t, "admin", admin)
	p := start(t, locked(dir, "--admin-token-file", file)...)
	if body := p.until(200, "/api/v1/tokens", admin); bytes.Count(body, []byte(`"role"`)) != 1 {
		t.Errorf("the first tokens are %s", body)
	}
	if strings.Contains(p.out.String(), admin) {
		t.Error("the token is printed")
	}
	p.end()
	if files, err := filepath.Glob(filepath.Join(dir, "*.token")); err != nil || len(files) != 0 {
		t.Errorf("the start leaves %v, %v", files, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	p = start(t, locked(dir, "--admin-token-file", file)...)
	p.until(200, "/api/v1/tokens", admin)
	p.end()

	for _, text := range []string{"hunter2", "carillon_default_abcd2345_short", "carillon_other_abcd2345_ABCDEFGHIJKLMNOPQRSTUVWXYZ", "carillon_default_ABCD2345_ABCDEFGHIJKLMNOPQRSTUVWXYZ"} {
		var out bytes.Buffer
		if code := execute(t.Context(), locked(t.TempDir(), "--admin-token-file", secretFile(t, "wrong", text)), io.Discard, &out); code == 0 || !strings.Contains(out.String(), "wrong: ") || !strings.Contains(out.String(), "want carillon_default_ID_SECRET") || strings.Contains(out.String(), text) {
			t.Errorf("%q: code %d, %s", text, code, out.String())
		}
	}
}

// A server that authenticates leaves an admin's token in a file, and none for workers: that one would be valid for
// every app. Without a token nothing is served.
func TestFirstToken(t *testing.T) {
	dir := t.TempDir()
	p := start(t, locked(dir)...)
	admin := p.tokenIn(filepath.Join(dir, adminFile))
	if body := p.until(200, "/api/v1/tokens", admin); bytes.Count(body, []byte(`"role"`)) != 1 {
		t.Errorf("the first tokens are %s", body)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*.token")); err != nil || len(files) != 1 {
		t.Errorf("the first start leaves %v, %v", files, err)
	}
	members := p.worker(admin, "shop")
	for _, path := range []string{"/api/v1/jobs", "/api/v1/workers", "/api/v1/tokens", "/api/v1/whoami", "/metrics"} {
		for what, token := range map[string]string{"none": "", "a wrong one": admin[:len(admin)-1] + "x", "a part": admin[:30]} {
			if status, h, _ := p.ask("GET", path, token, ""); status != 401 && status != 429 || status == 401 && h.Get("WWW-Authenticate") == "" {
				t.Errorf("%s with token %s: %d", path, what, status)
			}
		}
		if status, _, body := p.ask("GET", path, admin, ""); status != 200 {
			t.Errorf("%s with the admin's token: %d %s", path, status, body)
		}
	}
	if status, _, _ := p.ask("GET", "/api/v1/jobs", members, ""); status != 403 {
		t.Errorf("a worker's token opens the API: %d", status)
	}
	if status, h, _ := p.ask("GET", "/", "", ""); status != 303 || !strings.HasPrefix(h.Get("Location"), "/login") {
		t.Errorf("the page: %d, to %s", status, h.Get("Location"))
	}
	if status, _, _ := p.ask("GET", "/livez", "", ""); status != 200 {
		t.Errorf("livez: %d", status)
	}

	p.signsIn(admin, members)

	tick := jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { return nil }), jobs.Options{Key: "tick", Every: time.Second})
	for _, url := range []string{p.bus, strings.Replace(p.bus, "://", "://"+admin+"@", 1), strings.Replace(p.bus, "://", "://x:"+members+"y@", 1)} {
		if _, err := carillon.NewWorker(url, worker.Config{}, tick); !errors.Is(err, jobs.Forbidden) || strings.Contains(err.Error(), admin) {
			t.Errorf("a worker comes in: %v", err)
		}
	}
	hire(t, strings.Replace(p.bus, "://", "://"+members+"@", 1))
	for p.until(200, "/api/v1/workers", admin); !bytes.Contains(p.until(200, "/api/v1/workers", admin), []byte("shop.pack")); {
		time.Sleep(20 * time.Millisecond)
	}
	if status, _, body := p.ask("POST", "/api/v1/jobs/shop.pack/trigger", admin, "{}"); status >= 300 {
		t.Fatalf("trigger: %d %s", status, body)
	}
	for !bytes.Contains(p.until(200, "/api/v1/runs?job=shop.pack&state=Succeeded", admin), []byte(`"id"`)) {
		time.Sleep(20 * time.Millisecond)
	}
	if body := p.until(200, "/api/v1/audit", admin); !bytes.Contains(body, []byte("first start")) || !bytes.Contains(body, []byte(`"person:first admin"`)) {
		t.Errorf("the audit log has %s", body)
	}
	if out := p.out.String(); strings.Contains(out, admin) || strings.Contains(out, members) || !strings.Contains(out, adminFile) {
		t.Errorf("output: %s", out)
	}
	p.end()

	// Another start changes nothing; one that is asked to makes another admin.
	p = start(t, locked(dir, "--new-admin-token")...)
	var found []string
	for len(found) == 0 {
		found, _ = filepath.Glob(filepath.Join(dir, "admin-*.token"))
	}
	second := p.tokenIn(found[0])
	if second == admin || p.tokenIn(filepath.Join(dir, adminFile)) != admin {
		t.Error("the first token was overwritten")
	}
	p.until(200, "/api/v1/jobs", second)
	p.until(200, "/api/v1/jobs", admin)
	p.end()
}

// signsIn checks that a browser can sign in with an admin's token, not with a worker's, and sign out again.
func (p *program) signsIn(admin, members string) {
	p.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	post := func(path string, form url.Values) *http.Response {
		answer, err := browser.PostForm(p.page+path, form)
		if err != nil {
			p.t.Fatal(err)
		}
		answer.Body.Close()
		return answer
	}
	if answer := post("/login", url.Values{"token": {members}}); answer.StatusCode != 401 && answer.StatusCode != 429 { // after so many wrong ones
		p.t.Errorf("a worker's token signs in: %d", answer.StatusCode)
	}
	if answer := post("/login", url.Values{"token": {admin}, "next": {"/workers"}}); answer.StatusCode != 200 || answer.Request.URL.Path != "/workers" {
		p.t.Errorf("signing in: %d at %s", answer.StatusCode, answer.Request.URL)
	}
	if answer := post("/logout", nil); answer.Request.URL.Path != "/login" {
		p.t.Errorf("signing out leads to %s", answer.Request.URL)
	}
	answer, err := browser.Get(p.page + "/workers")
	if err != nil {
		p.t.Fatal(err)
	}
	answer.Body.Close()
	if answer.Request.URL.Path != "/login" {
		p.t.Errorf("after signing out, %s is answered", answer.Request.URL)
	}
}

// A start that was cut off between the file and the grant is made good: the token in the file is the one that holds.
func TestFirstTokensAfterACrash(t *testing.T) {
	dir := t.TempDir()
	text := ops.TokenText(jobs.DefaultTenant)
	if err := os.WriteFile(filepath.Join(dir, adminFile), []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, locked(dir)...)
	p.until(200, "/api/v1/jobs", text)
	p.end()

	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, adminFile), []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	if code := execute(t.Context(), append(locked(dir), "--log-level", "error"), &out, &errs); code != 2 || !strings.Contains(errs.String(), "chmod 600") {
		t.Errorf("with a token that others can read: exit code %d: %s", code, errs.String())
	}
}

func TestNewAdminTokenNeedsAuth(t *testing.T) {
	var out, errs bytes.Buffer
	if code := execute(t.Context(), []string{"server", "--memory", "--new-admin-token"}, &out, &errs); code != 2 || !strings.Contains(errs.String(), "auth: on") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}
