package browsertest

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/ops"
)

// provider is an OpenID Connect provider that others wrote, in a process of its own.
type provider struct {
	t    *testing.T
	port string
	url  string
	end  func()
}

// newProvider reserves a port for a provider.
func newProvider(t *testing.T) *provider {
	t.Helper()
	if _, err := os.Stat("provider/node_modules/oidc-provider"); err != nil {
		tests.Missing(t, "oidc-provider is not installed: npm ci --ignore-scripts --prefix ui/browsertest/provider")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return &provider{t: t, port: port, url: "http://127.0.0.1:" + port}
}

// start starts the provider for a server, and waits until it answers.
func (p *provider) start(server string) {
	p.t.Helper()
	cmd := exec.Command("node", "provider/provider.js", p.port, server)
	cmd.Stderr = p.t.Output()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.end = func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); p.end = func() {} }
	p.t.Cleanup(func() { p.end() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "ready" {
			return
		}
	}
	p.t.Fatal("the provider does not start")
}

// signIn goes from the login page through the pages of the provider, as a person.
func (b *tab) signIn(person string) {
	b.t.Helper()
	b.leads(`//a[contains(., "Sign in with the test provider")]`)
	b.sees("Sign-in")
	b.write(`input[name="login"]`, person)
	b.write(`input[name="password"]`, "any")
	b.leads(`button[type="submit"]`)
	b.sees("Authorize")
	b.leads(`button[type="submit"]`)
}

// accessToken returns a token of the service account robot for an audience.
func (p *provider) accessToken(audience string) string {
	p.t.Helper()
	r, err := http.NewRequest("POST", p.url+"/token", strings.NewReader(url.Values{"grant_type": {"client_credentials"}, "resource": {audience}}.Encode()))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth("robot", "not-a-secret-in-tests")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	var got struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil || strings.Count(got.Token, ".") != 2 {
		p.t.Fatalf("%d: an access token is %q (%v)", res.StatusCode, got.Token, err)
	}
	return got.Token
}

// A service account uses the API with an access token of the provider, with the rights that rules give to its client ID,
// also while the provider is away. Tokens for others, and altered ones, are refused.
func TestServiceAccount(t *testing.T) {
	p := newProvider(t)
	h := build(t, embed.Config{Tokens: true, SignIn: &embed.SignIn{Issuer: p.url, ClientID: "carillon", Audience: "urn:carillon",
		Rules: []embed.SignInRule{{Claim: "client_id", Value: "robot", Role: "operator", Jobs: []string{"shop.c*"}}}}}, shop()...)
	send := func(token, method, path string) (int, string) {
		t.Helper()
		r, err := http.NewRequest(method, h.url+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	if status, body := send("a.b.c", "GET", "/api/v1/jobs"); status != 503 {
		t.Errorf("before the provider answers: %d %s", status, body)
	}
	p.start(h.url)
	token := p.accessToken("urn:carillon")
	h.until("the server finds the provider", func() bool { status, _ := send(token, "GET", "/api/v1/whoami"); return status == 200 })
	if _, body := send(token, "GET", "/api/v1/whoami"); !strings.Contains(body, `"actor":"person:robot"`) || !strings.Contains(body, `"role":"operator"`) || !strings.Contains(body, "shop.c*") {
		t.Errorf("whoami: %s", body)
	}
	other := p.accessToken("urn:other")
	p.end()
	at := strings.LastIndexByte(token, '.') + 5
	altered := token[:at] + string('A'+(token[at]-'A'+1)%26) + token[at+1:]
	unsigned := "eyJhbGciOiJub25lIn0." + strings.Split(token, ".")[1] + "."
	for _, c := range []struct {
		name, token, method, path string
		status                    int
	}{
		{"a job in its scope", token, "POST", "/api/v1/jobs/shop.charge/trigger", 201}, {"another", token, "POST", "/api/v1/jobs/shop.pack/trigger", 403},
		{"more than its role", token, "GET", "/api/v1/tokens", 403}, {"a token for others", other, "GET", "/api/v1/jobs", 401},
		{"an altered token", altered, "GET", "/api/v1/jobs", 401}, {"an unsigned token", unsigned, "GET", "/api/v1/jobs", 401},
		{"no token", "a.b.c", "GET", "/api/v1/jobs", 401}, {"8 KiB", strings.Repeat("a", 9000), "GET", "/api/v1/jobs", 401},
	} {
		if status, body := send(c.token, c.method, c.path); status != c.status {
			t.Errorf("%s: %d, want %d: %s", c.name, status, c.status, body)
		}
	}
}

// People sign in at a provider's own pages and have the rights of their groups; sessions outlive the provider, and the
// login page shows that it is not available.
func TestSignInAtAProvider(t *testing.T) {
	p := newProvider(t)
	h := build(t, embed.Config{Tokens: true, SignIn: &embed.SignIn{Issuer: p.url, ClientID: "carillon", Secret: "not-a-secret-in-tests", Label: "the test provider",
		Rules: []embed.SignInRule{{Group: "carillon-admins", Role: "admin"}, {Group: "finance", Tenant: "finance", Role: "viewer"}, {Group: "shop", Role: "operator"}}}}, shop()...)
	if _, _, err := h.Ops().CreateTenant(t.Context(), ann, ops.NewTenant{Name: "finance"}); err != nil {
		t.Fatal(err)
	}

	// The server has started without it.
	b := h.newTab(true)
	b.expect("request to another site: " + p.url)
	b.expect("fonts.googleapis.com")
	b.expect("favicon.ico")
	b.expect("503") // Chromium reports the page's status
	b.expect("403")
	b.open("/login?next=%2Fjobs%2Fshop.count")
	b.sees("Sign-in with the test provider is not available right now, since")
	p.start(h.url)
	h.until("the server finds the provider", func() bool {
		b.open("/login?next=%2Fjobs%2Fshop.count")
		return !strings.Contains(b.text(), "not available right now")
	})
	b.inOrder("/login")

	// Rights in two tenants: the person chooses, and is then where they wanted to go.
	b.signIn("ann")
	b.sees("Choose a tenant")
	b.inOrder("/session")
	b.leads(`//button[.="default"]`)
	b.sees("Counts what is in the till")
	if path := b.path(); path != "/jobs/shop.count" {
		t.Errorf("signed in, the browser is at %s", path)
	}
	b.streams()
	b.open("/access")
	b.sees("ann of tests")
	b.sees("ann@example.com")
	b.inOrder("/access")
	b.open("/audit")
	b.sees("session of ann")
	b.leads(`//a[@title="Switch to another tenant"]`)
	b.leads(`//button[.="finance"]`)
	b.open("/jobs")
	if text := b.text(); strings.Contains(text, "shop.count") {
		t.Errorf("tenant finance has the jobs of another: %s", text)
	}
	if status := b.open("/access"); status != 403 {
		t.Errorf("a viewer opens /access: %d", status)
	}

	// Without a matching group there is a page with the groups, and no session.
	eve := h.newTab(true)
	eve.expect("request to another site: " + p.url)
	eve.expect("fonts.googleapis.com")
	eve.expect("favicon.ico")
	eve.expect("403")
	eve.open("/login")
	eve.signIn("eve")
	eve.sees("no rule of this server gives you rights")
	eve.sees("kitchen")
	if eve.open("/jobs"); !strings.HasPrefix(eve.path(), "/login") {
		t.Errorf("without rights, a person sees %s", eve.path())
	}
	// A response of the provider to another browser's request is of no use in this one.
	eve.open("/login/callback?code=stolen&state=stolen&iss=" + url.QueryEscape(p.url))
	eve.sees("was not started in this browser")

	// The session goes on while the provider is away.
	p.end()
	if b.open("/runs"); b.path() != "/runs" {
		t.Errorf("without the provider, the session is at %s", b.path())
	}
	eve.expect("503")
	h.until("the server misses the provider", func() bool {
		res, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Get(h.url + "/login/provider")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode == 503
	})
	eve.open("/login/provider")
	eve.sees("Sign-in with the test provider is not available right now, since")
	p.start(h.url)
	h.until("the server finds the provider again", func() bool {
		eve.open("/login")
		return !strings.Contains(eve.text(), "not available right now")
	})

	// Signing out ends the session here, and leads to the provider's page for that, which leads back.
	b.leads(`//button[contains(normalize-space(), "Sign out")]`)
	h.until("the browser comes back from the provider", func() bool { return b.path() == "/login" })
	if !b.requested(p.url + "/session/end?client_id=carillon&post_logout_redirect_uri=") {
		t.Error("signing out ends no session at the provider")
	}
	if b.open("/runs"); !strings.HasPrefix(b.path(), "/login") {
		t.Errorf("signed out, the browser still sees %s", b.path())
	}
}

// requested reports whether the tab has sent a request to a URL of another site that begins so.
func (b *tab) requested(url string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.ContainsFunc(b.forgiven, func(text string) bool { return strings.HasPrefix(text, "request to another site: "+url) })
}
