package httpjob

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// Rows 65 and 66: addresses that are not public are not called, in any notation.
func TestNotPublic(t *testing.T) {
	var g Guard
	for _, a := range []string{"169.254.169.254", "100.100.100.200", "fd00:ec2::254", "127.0.0.1", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "::127.0.0.1", "10.1.2.3",
		"172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "fe80::1", "fe80::1%eth0", "fc00::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a9fe:a9fe::1",
		"224.0.0.1", "255.255.255.255", "240.0.0.1", "198.18.0.1", "2001::1", "ff02::1", "192.0.0.8",
		"168.63.129.16", "::ffff:0:127.0.0.1", "::ffff:0:a9fe:a9fe", "64:ff9b::a83f:8110"} {
		if err := g.Check(netip.AddrPortFrom(netip.MustParseAddr(a), 443)); !errors.Is(err, ErrBlocked) {
			t.Errorf("%s: %v", a, err)
		}
	}
	for _, a := range []string{"93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822", "11.0.0.1"} {
		if err := g.Check(netip.AddrPortFrom(netip.MustParseAddr(a), 443)); err != nil {
			t.Errorf("%s: %v", a, err)
		}
		if err := g.Check(netip.AddrPortFrom(netip.MustParseAddr(a), 22)); !errors.Is(err, ErrBlocked) {
			t.Errorf("%s at port 22: %v", a, err)
		}
	}
	g = Guard{Allow: prefixes("10.1.0.0/16"), Ports: []int{8443}}
	for to, open := range map[string]bool{"10.1.2.3:5000": true, "10.1.2.3:22": false, "10.1.2.3:6379": false, "10.2.2.3:443": false, "93.184.216.34:8443": true, "93.184.216.34:8444": false, "[::ffff:10.1.2.3]:80": true} {
		if err := g.Check(netip.MustParseAddrPort(to)); (err == nil) != open {
			t.Errorf("%s: %v", to, err)
		}
	}
}

// own is a guard that allows a test server, and no other port of this machine.
func own(t *testing.T, servers ...*httptest.Server) *Guard {
	t.Helper()
	return &Guard{Allow: prefixes("127.0.0.1/32")}
}

func get(t *testing.T, g *Guard, to string, header map[string]string) (*Answer, error) {
	t.Helper()
	client := g.client()
	t.Cleanup(client.CloseIdleConnections)
	return call(t.Context(), client, "GET", to, header, nil, false)
}

// Row 66 again, through a real client and real names: no connection is made.
func TestBlockedBeforeTheFirstPacket(t *testing.T) {
	var reached atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(server.Close)
	port := server.URL[strings.LastIndexByte(server.URL, ':'):]
	for _, host := range []string{"127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "0177.0.0.1", "127.1"} {
		if a, err := get(t, &Guard{}, "http://"+host+port+"/", nil); err == nil {
			t.Errorf("%s answered %d", host, a.Status)
		}
	}
	if n := reached.Load(); n > 0 {
		t.Errorf("%d calls came through", n)
	}
	if a, err := get(t, own(t, server), server.URL, nil); err != nil || a.Status != 200 || reached.Load() != 1 {
		t.Errorf("a call that is allowed: %+v, %v", a, err)
	}
}

// Row 68: each hop of a redirect is checked, and no secret goes along to another host.
func TestRedirects(t *testing.T) {
	var seen atomic.Value
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { seen.Store(r.Header.Clone()) }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := r.URL.Query().Get("to")
		if r.URL.Path == "/many" {
			n := len(to)
			if n == 0 {
				return
			}
			to = "/many?to=" + to[1:]
		}
		http.Redirect(w, r, to, http.StatusFound)
	}))
	t.Cleanup(server.Close)
	secure := httptest.NewTLSServer(http.RedirectHandler(other.URL, http.StatusFound))
	t.Cleanup(secure.Close)

	through := func(to string) string { return server.URL + "/?to=" + url.QueryEscape(to) }
	for _, to := range []string{"http://[::1]:9/", "http://10.0.0.1/", "file:///etc/passwd", "gopher://127.0.0.1/", "http://u:p@127.0.0.1/"} {
		if a, err := get(t, own(t), through(to), nil); !errors.Is(err, ErrBlocked) {
			t.Errorf("a redirect to %s: %+v, %v", to, a, err)
		}
	}
	if a, err := get(t, own(t), server.URL+"/many?to=xxx", nil); err != nil || a.Status != 200 {
		t.Errorf("three redirects: %+v, %v", a, err)
	}
	if _, err := get(t, own(t), server.URL+"/many?to=xxxx", nil); err == nil {
		t.Error("four redirects were followed")
	}
	if _, err := get(t, own(t), through(other.URL), map[string]string{"Authorization": "Bearer x", "X-Key": "y", "Cookie": "z"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Authorization", "X-Key", "Cookie", "Referer"} {
		if v := seen.Load().(http.Header).Get(name); v != "" {
			t.Errorf("%s went along to another host: %q", name, v)
		}
	}
	again := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(again.Close)
	seen.Store(http.Header{})
	if a, err := call(t.Context(), own(t).client(), "POST", again.URL, map[string]string{}, []byte(`{"token":"secret"}`), true); !errors.Is(err, ErrBlocked) || len(seen.Load().(http.Header)) > 0 {
		t.Errorf("a body to another host: %+v, %v", a, err)
	}
	if a, err := call(t.Context(), own(t).client(), "GET", again.URL, map[string]string{}, nil, false); err != nil || a.Status != 200 {
		t.Errorf("no body to another host: %+v, %v", a, err)
	}
	client := own(t).client()
	client.Transport.(*http.Transport).TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig
	if _, err := call(t.Context(), client, "GET", secure.URL, nil, nil, false); !errors.Is(err, ErrBlocked) {
		t.Errorf("from https to http: %v", err)
	}
}

// Row 70: an answer that does not end is read up to a bound.
func TestLargeAnswers(t *testing.T) {
	tests.Long(t)
	sent := map[string]*atomic.Int64{"/flood": {}, "/bomb": {}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var out io.Writer = w
		if r.URL.Path == "/bomb" {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			out = z
		}
		part := make([]byte, 64<<10)
		for sent := sent[r.URL.Path]; sent.Load() < 320<<20; {
			n, err := out.Write(part)
			if sent.Add(int64(n)) > 8<<20 { // so that it is no race: who reads may have to wait for the processor
				time.Sleep(10 * time.Millisecond)
			}
			if err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	for _, path := range []string{"/flood", "/bomb"} {
		a, err := get(t, own(t), server.URL+path, nil)
		if err != nil || len(a.Body) != MaxKept || !a.Cut {
			t.Fatalf("%s: %d bytes, cut %v, %v", path, len(a.Body), a.Cut, err)
		}
		if n := sent[path].Load(); n > 256<<20 {
			t.Errorf("%s: the server got rid of %d MiB", path, n>>20)
		}
	}
}

// Row 72: a proxy in the environment is not asked.
func TestNoProxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "by proxy") }))
	t.Cleanup(proxy.Close)
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	if a, err := get(t, own(t), "http://jobs.invalid/", nil); err == nil {
		t.Errorf("an answer came for an unavailable host: %s", a.Body)
	}
}

// Errors do not contain the URL, and a call ends with its context.
func TestReasons(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	t.Cleanup(func() { close(hang); server.Close() })
	ctx, cancel := context.WithCancelCause(t.Context())
	time := errors.New("enough")
	go cancel(time)
	if _, err := call(ctx, own(t).client(), "GET", server.URL+"/?token=s3cr3t", nil, nil, false); !errors.Is(err, time) {
		t.Errorf("a call whose run ends: %v", err)
	}
	server.CloseClientConnections()
	if _, err := get(t, own(t), "http://127.0.0.1:1/?token=s3cr3t", nil); err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("no listener: %v", err)
	}
}
