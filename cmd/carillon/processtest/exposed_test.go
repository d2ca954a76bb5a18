//go:build unix

package processtest

import (
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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// outside is an address of this machine that others could reach.
func outside(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	tests.Missing(t, "an address beside those of loopback, for what others can reach")
	return ""
}

// castle is a server that others can reach, with TLS on all its doors.
type castle struct {
	t          *testing.T
	page, bus  string // https://..., host:port
	cert, data string
	browser    *http.Client
}

func newCastle(t *testing.T) *castle {
	t.Helper()
	ip, dir := outside(t), t.TempDir()
	c := &castle{t: t, cert: filepath.Join(dir, "cert.pem"), data: filepath.Join(dir, "data")}
	key := filepath.Join(dir, "key.pem")
	pool := certify(t, net.ParseIP(ip), c.cert, key)
	c.browser = browser(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	port := func() string {
		_, port, err := net.SplitHostPort(freeport.Address(t))
		if err != nil {
			t.Fatal(err)
		}
		return net.JoinHostPort(ip, port)
	}
	c.page, c.bus = port(), port()
	path, err := carillonProgram()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, "carillon server", path, nil, "server", "--data", c.data, "--http", c.page, "--nats-addr", c.bus,
		"--http-tls-cert", c.cert, "--http-tls-key", key, "--nats-tls-cert", c.cert, "--nats-tls-key", key)
	c.page = "https://" + c.page
	await(t, "the first token is granted", func() bool {
		if p.over() {
			t.Fatalf("%s ended with %v:\n%s", p.name, p.err, p.out)
		}
		return p.out.has("first token:")
	})
	return c
}

// browser goes nowhere by itself.
func browser(trust *tls.Config) *http.Client {
	return &http.Client{
		Transport:     &http.Transport{TLSClientConfig: trust},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// certify writes a certificate for an address and its key, and returns a pool that trusts it.
func certify(t *testing.T, ip net.IP, certFile, keyFile string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{ip}, IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: raw}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}

// ask makes a request with a token, or with none.
func (c *castle) ask(method, path, token, body string) (status int, answer []byte, header http.Header) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.page+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	a, err := c.browser.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer a.Body.Close()
	if answer, err = io.ReadAll(a.Body); err != nil {
		c.t.Fatal(err)
	}
	return a.StatusCode, answer, a.Header
}

// file returns the token in a file of the first start.
func (c *castle) file(name string) string {
	c.t.Helper()
	path := filepath.Join(c.data, name)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		c.t.Fatalf("%s: %v, %v", path, info, err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}

// url returns the address of the bus with a token.
func (c *castle) url(token string) string { return "tls://" + token + "@" + c.bus + "?ca=" + c.cert }

// state returns a run's state.
func (c *castle) state(admin string, run jobs.ID) string {
	c.t.Helper()
	status, answer, _ := c.ask(http.MethodGet, "/api/v1/runs/"+run.String(), admin, "")
	if status != http.StatusOK {
		c.t.Fatalf("run %s: %d %s", run, status, answer)
	}
	return decode[api.Run](c.t, answer).State
}

// An exposed server refuses requests without a token, and accepts those with a valid one until it expires or is
// revoked.
func TestExposedServer(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCastle(t)
	admin := c.file("admin.token")
	status, answer, _ := c.ask(http.MethodPost, "/api/v1/tokens", admin, `{"name":"crew","role":"worker","app":"process"}`)
	if status != http.StatusCreated {
		t.Fatalf("a token for workers: %d %s", status, answer)
	}
	members := decode[struct{ Text string }](t, answer).Text

	for what, token := range map[string]string{"none": "", "a wrong one": admin[:len(admin)-1] + "!"} {
		for _, path := range []string{"/api/v1/jobs", "/metrics"} {
			if status, answer, _ := c.ask(http.MethodGet, path, token, ""); status != http.StatusUnauthorized {
				t.Errorf("%s with token %s: %d %.200s", path, what, status, answer)
			}
		}
	}
	if status, _, h := c.ask(http.MethodGet, "/", "", ""); status != http.StatusSeeOther || !strings.HasPrefix(h.Get("Location"), "/login") {
		t.Errorf("the page: %d to %q", status, h.Get("Location"))
	}
	if status, answer, _ := c.ask(http.MethodGet, "/api/v1/jobs", admin, ""); status != http.StatusOK {
		t.Fatalf("with the admin's token: %d %s", status, answer)
	}

	// A worker process and a client with an admin's tokens connect over TLS.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(workerSpec{URL: c.url(members), Name: "h1", Journal: t.TempDir(), Slots: 4})
	if err != nil {
		t.Fatal(err)
	}
	h1 := start(t, "worker h1", self, []string{workerVariable + "=" + string(raw)})
	await(t, "the worker registers its jobs", func() bool {
		status, _, _ := c.ask(http.MethodGet, "/api/v1/jobs/"+string(plainJob), admin, "")
		return status == http.StatusOK
	})
	status, answer, _ = c.ask(http.MethodPost, "/api/v1/tokens", admin, `{"name":"shop","role":"client"}`)
	if status != http.StatusCreated {
		t.Fatalf("a token for a client: %d %s", status, answer)
	}
	shop := decode[struct{ Text string }](t, answer).Text
	client, err := carillon.Dial(c.url(shop))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	run, err := plainJob.Enqueue(t.Context(), client, task{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the run ends", func() bool { return c.state(admin, run.ID) == jobs.Succeeded.String() })

	// Wrong tokens, and tokens for other endpoints.
	for what, url := range map[string]string{
		"a wrong token": c.url(shop[:len(shop)-1] + "x"), "a worker's token": c.url(members), "an admin's token": c.url(admin), "none": "tls://" + c.bus + "?ca=" + c.cert,
	} {
		if other, err := carillon.Dial(url); !errors.Is(err, jobs.Forbidden) {
			t.Errorf("a client with %s: %v", what, err)
			if err == nil {
				other.Close()
			}
		}
	}

	// A token that is revoked ends its connection, and does not come back.
	var id string
	_, answer, _ = c.ask(http.MethodGet, "/api/v1/tokens", admin, "")
	for _, k := range decode[list[struct{ ID, Role string }]](t, answer).Items {
		if k.Role == "worker" {
			id = k.ID
		}
	}
	if status, answer, _ = c.ask(http.MethodDelete, "/api/v1/tokens/"+id, admin, ""); status >= 300 {
		t.Fatalf("revoke %s: %d %s", id, status, answer)
	}
	await(t, "the worker is disconnected", func() bool { return h1.out.has("authorization violation") })
	if run, err = plainJob.Enqueue(t.Context(), client, task{}); err != nil {
		t.Fatal(err)
	}
	// The leader may push it to h1, before the bus reports that no process receives it; then it waits again.
	await(t, "the run waits", func() bool { return c.state(admin, run.ID) == jobs.Enqueued.String() })
	if status, answer, _ = c.ask(http.MethodDelete, "/api/v1/tokens/"+strings.Split(admin, "_")[2], admin, ""); status != http.StatusConflict {
		t.Errorf("the last admin's token: %d %s", status, answer)
	}
}
