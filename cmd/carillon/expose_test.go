package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// certify writes a certificate for 127.0.0.1 and its key.
func certify(t *testing.T, dir string) keyPair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p := keyPair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	for path, block := range map[string]*pem.Block{p.Cert: {Type: "CERTIFICATE", Bytes: raw}, p.Key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// trusting is a browser that knows a certificate.
func trusting(t *testing.T, p keyPair) *http.Client {
	t.Helper()
	conf, err := authorities(p.Cert)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true}}
}

// Page and bus over TLS, with names of their own.
func TestTLS(t *testing.T) {
	pair := certify(t, t.TempDir())
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	p := &program{t: t, out: newOutput(), stop: cancel, code: make(chan int, 1)}
	go func() {
		p.code <- execute(ctx, locked(dir, "--log-level", "error", "--http-tls-cert", pair.Cert, "--http-tls-key", pair.Key, "--nats-tls-cert", pair.Cert, "--nats-tls-key", pair.Key,
			"--http-url", "https://jobs.example.com", "--http-hosts", "other.example.com", "--debug-addr", "127.0.0.1:0"), p.out, p.out)
	}()
	printed := func(pattern string) string {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if m := regexp.MustCompile(pattern).FindStringSubmatch(p.out.String()); m != nil {
				return m[1]
			}
		}
		t.Fatalf("no %s in: %s", pattern, p.out)
		return ""
	}
	if page := printed(`page +(\S+)`); page != "https://jobs.example.com" {
		t.Errorf("the page is at %s", page)
	}
	at, at4222 := printed(`listens at https://(127.0.0.1:\d+)`), printed(`bus +tls://(\S+)\s`)
	profiler := printed(`profiler: (\S+)`)
	printed(`first token: an (admin)`)
	admin := p.tokenOf(filepath.Join(dir, adminFile))

	browser := trusting(t, pair)
	want, err := http.NewRequestWithContext(ctx, "POST", "https://"+at+"/api/v1/tokens", strings.NewReader(`{"name":"crew","role":"worker","app":"shop"}`))
	if err != nil {
		t.Fatal(err)
	}
	want.Header.Set("Authorization", "Bearer "+admin)
	want.Header.Set("Content-Type", "application/json")
	made, err := browser.Do(want)
	if err != nil {
		t.Fatal(err)
	}
	var members struct{ Text string }
	err = json.NewDecoder(made.Body).Decode(&members)
	made.Body.Close()
	token := members.Text
	if err != nil || token == "" {
		t.Fatalf("a worker's token: %s, %v", made.Status, err)
	}
	get := func(host, path string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, "GET", "https://"+at+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		answer, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer
	}
	for host, want := range map[string]int{"jobs.example.com": 200, "other.example.com:8443": 200, "localhost": 200, "evil.example.com": 421} {
		if answer := get(host, "/login"); answer.StatusCode != want || answer.ProtoMajor != 2 {
			t.Errorf("host %s: %d over %s", host, answer.StatusCode, answer.Proto)
		}
	}
	if h := get("jobs.example.com", "/login").Header.Get("Strict-Transport-Security"); h == "" {
		t.Error("no HSTS for browsers")
	}
	if answer, err := http.Get("http://" + at + "/login"); err == nil {
		if answer.Body.Close(); answer.StatusCode == 200 {
			t.Error("it answers without TLS")
		}
	}
	if answer, err := http.Get(profiler + "goroutine?debug=1"); err != nil || answer.StatusCode != 200 {
		t.Errorf("the profiler: %v", err)
	} else {
		answer.Body.Close()
	}

	if client, err := carillon.Dial("tls://" + token + "@" + at4222); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an untrusted certificate: %v", err)
		client.Close()
	}
	p.page = "https://" + at
	hire(t, "tls://"+token+"@"+at4222+"?ca="+pair.Cert)
	r, err := http.NewRequestWithContext(ctx, "GET", p.page+"/api/v1/workers", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+admin)
	for known, deadline := false, time.Now().Add(20*time.Second); !known; time.Sleep(20 * time.Millisecond) {
		answer, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if known = bytes.Contains(body, []byte("shop.pack")); time.Now().After(deadline) {
			t.Fatalf("the worker is not known: %s", body)
		}
	}
	t.Cleanup(p.end) // before the worker would wait for it
}

// A server with TLS: its host names, its headers for browsers, and the renewal of its certificate.
func TestCertificateIsRenewed(t *testing.T) {
	dir := t.TempDir()
	pair := certify(t, dir)
	conf, err := serverTLS(pair)
	if err != nil {
		t.Fatal(err)
	}
	first, err := conf.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &certificate{files: pair}
	if err := c.read(time.Now()); err != nil {
		t.Fatal(err)
	}
	certify(t, dir)
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(pair.Cert, later, later); err != nil {
		t.Fatal(err)
	}
	c.looked = time.Time{}
	second, err := c.get(&tls.ClientHelloInfo{})
	if err != nil || bytes.Equal(first.Certificate[0], second.Certificate[0]) {
		t.Errorf("the old certificate is still in use: %v", err)
	}
	if err := os.WriteFile(pair.Cert, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.looked = time.Time{}
	if third, err := c.get(nil); err != nil || third != second {
		t.Errorf("a file that is half written: %v", err)
	}
	if err := os.Chmod(pair.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := serverTLS(pair); err == nil || exitCode(err) != 2 || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key that others can read: %v", err)
	}
}

// An external NATS server without authentication is refused, by servers and workers.
func TestNATSElsewhereIsProbed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "password")
	if err := os.WriteFile(file, []byte("p4ssword\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	nats := func(cfg embedded.Config) string {
		s, err := embedded.Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Stop() })
		return s.URL()
	}
	open := nats(embedded.Config{})
	closed := nats(embedded.Config{Users: []natsbus.Grant{{User: "node", Password: "p4ssword", As: bus.Principal{Role: bus.Node, Name: natsbus.AnyName}}}})
	run := func(more ...string) (int, string) {
		var out, errs bytes.Buffer
		args := append([]string{"server", "--auth", "on", "--data", filepath.Join(dir, "data"), "--http", "127.0.0.1:0", "--log-level", "error"}, more...)
		return execute(t.Context(), args, &out, &errs), errs.String()
	}
	if code, text := run("--nats", open); code != 2 || !strings.Contains(text, "without authentication") || !strings.Contains(text, "nats-config") {
		t.Errorf("one that is open: %d %s", code, text)
	}
	if code, text := run("--nats", closed+","+open); code != 2 || !strings.Contains(text, "without authentication") {
		t.Errorf("one of two that is open: %d %s", code, text)
	}
	if code, text := run("--nats", closed); code != 5 || !strings.Contains(text, "nats.user") {
		t.Errorf("without a user: %d %s", code, text)
	}
	if code, text := run("--nats", "nats://127.0.0.1:1"); code != 6 || !strings.Contains(text, "cannot be reached") {
		t.Errorf("one that is not there: %d %s", code, text)
	}
	p := start(t, "server", "--auth", "on", "--data", filepath.Join(dir, "data"), "--http", "127.0.0.1:0", "--nats", closed, "--nats-user", "node", "--nats-password-file", file)
	p.until(200, "/readyz", "")
	p.end()
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if code, text := run("--nats", closed, "--nats-user", "node", "--nats-password-file", file); code != 2 || !strings.Contains(text, "chmod 600") || strings.Contains(text, "p4ssword") {
		t.Errorf("a password that others can read: %d %s", code, text)
	}
}

func TestNATSConfigRefused(t *testing.T) {
	for _, c := range []struct {
		tenant           string
		workers, clients []string
	}{{"a b", nil, nil}, {"x", []string{"a b"}, nil}, {"x", []string{"a/"}, nil}, {"x", nil, []string{"*"}}, {"x", []string{"a.b", "a-b"}, nil}, {"x", nil, []string{"node"}}} {
		if _, err := grantsOf(c.tenant, c.workers, c.clients); !errors.Is(err, jobs.BadInput) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	grants, err := grantsOf("acme", []string{"billing", "billing/h1"}, []string{"shop"})
	if err != nil || len(grants) != 4 || grants[1].As.Name != natsbus.AnyName || grants[2].As.Name != "h1" || grants[3].User != "shop" || grants[3].As.Tenant != "acme" {
		t.Errorf("%+v, %v", grants, err)
	}
}

// The server reads every configuration that the pages for operators show.
func TestConfigInTheManual(t *testing.T) {
	var raw []byte
	for _, page := range []string{"install", "cluster", "backup", "troubleshooting", "observability"} {
		text, err := os.ReadFile("../../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, text...)
	}
	files := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(raw), -1)
	if len(files) < 5 {
		t.Fatalf("%d configurations in the manual", len(files))
	}
	for _, f := range files {
		if strings.HasPrefix(f[1], "scrape_configs:") { // of Prometheus
			continue
		}
		if _, err := load(t, f[1], nil); err != nil {
			t.Errorf("%v:\n%s", err, f[1])
		}
	}
	for _, name := range regexp.MustCompile(`CARILLON_[A-Z_]+`).FindAllString(string(raw), -1) {
		known := name == "CARILLON_SERVER" || name == "CARILLON_TOKEN_FILE" || strings.HasSuffix(name, "_PASSWORD")
		for _, s := range settings {
			known = known || s.env() == name
		}
		if !known {
			t.Errorf("%s is no setting", name)
		}
	}
}

// dev with auth on requires tokens, and its own worker works.
func TestDevThatAsks(t *testing.T) {
	tests.Long(t)
	dir := t.TempDir()
	p := start(t, "dev", "--auth", "on", "--data", dir, "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0", "--grace", "0s")
	admin := p.tokenIn(filepath.Join(dir, adminFile))
	p.until(401, "/api/v1/jobs", "")
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if bytes.Contains(p.until(200, "/api/v1/runs?job=demo.chime&state=Succeeded", admin), []byte(`"id"`)) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing rings: %s", p.out)
		}
	}
	p.end()
}

// A proxy in front of a server without authentication gives no access.
func TestAProxyGrantsNoAccess(t *testing.T) {
	p := start(t, "dev", "--memory", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0")
	defer p.end()
	target, err := url.Parse(p.page)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(httputil.NewSingleHostReverseProxy(target))
	defer proxy.Close()
	p.get("/readyz", func(status int, _ []byte) bool { return status == 200 })
	for at, want := range map[string]int{proxy.URL: 403, p.page: 201} {
		answer, err := http.Post(at+"/api/v1/tokens", "application/json", strings.NewReader(`{"name":"mine","role":"admin"}`))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode != want || want == 403 && !bytes.Contains(body, []byte("auth: on")) {
			t.Errorf("by %s: %d %s, want %d", at, answer.StatusCode, body, want)
		}
	}
}
