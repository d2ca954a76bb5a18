package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/secretfile"
)

// Exposure: loopback needs no authentication. Listening beyond loopback requires tokens and TLS, since a token that is
// read once on the network is lost.

// check checks the combination of settings.
func (c *config) check() {
	if err := kernel.CheckName("node", c.Node); err != nil {
		c.wrong("%v", err)
	}
	if c.Memory && c.values["data"].origin != "default" {
		c.wrong("both data (from %s) and memory (from %s) are set: remove one", c.values["data"].origin, c.values["memory"].origin)
	}
	if !c.Memory && c.Data == "" {
		c.wrong("data is empty: want a directory, or set memory to store nothing")
	}
	c.checkStore()
	c.checkCluster()
	c.checkAddresses()
	c.checkOutside()
	c.checkPair("http", c.HTTPTLS)
	c.checkPair("nats", c.NATSTLS)
	c.checkNames()
	c.checkSignIn()
	if len(c.mistakes) == 0 {
		c.checkExposed()
	}
}

func (c *config) checkAddresses() {
	for _, a := range []struct{ flag, addr string }{{"--http", c.HTTP}, {"--nats-addr", c.NATS}, {"--debug-addr", c.Debug}} {
		if a.addr == "" && a.flag == "--debug-addr" {
			continue
		}
		host, _, err := net.SplitHostPort(a.addr)
		switch {
		case err != nil:
			c.wrong("invalid %s %s: want host:port, such as 127.0.0.1:8080", a.flag, a.addr)
		case a.flag == "--debug-addr" && !isLoopback(host):
			c.wrong("--debug-addr %s is reachable from other machines: the profiler shows memory without authentication; use loopback", a.addr)
		}
	}
}

// checkOutside checks the settings about an external NATS server.
func (c *config) checkOutside() {
	for one := range strings.SplitSeq(c.URL, ",") {
		if one == "" {
			continue
		}
		u, err := url.Parse(one)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls":
			c.wrong("invalid nats.url (from %s): want a URL such as nats://127.0.0.1:4222", c.values["nats.url"].origin)
		case u.User != nil && c.values["nats.url"].origin == "--nats":
			c.wrong("--nats has a user or a token before the @, which other users of this machine can read: " +
				"set nats.user and nats.password-file, or nats.token-file")
		case u.User != nil && c.Login != natsLogin{CA: c.Login.CA}:
			c.wrong("nats.url has a user or a token before the @, and nats.user, nats.token-file or nats.creds-file is set, too: remove one")
		case !isLoopback(u.Hostname()) && u.Scheme != "tls" && !c.NATSOpen:
			c.wrong("nats.url %s is not on loopback and has no TLS: use tls://, or set nats.plain: true if you trust everyone on that network", u.Host)
		}
	}
	login := map[string]string{"nats.user": c.Login.User, "nats.password-file": c.Login.PasswordFile, "nats.token-file": c.Login.TokenFile,
		"nats.creds-file": c.Login.CredsFile, "nats.tls-ca": c.Login.CA}
	ours := map[string]string{"nats.tls-cert": c.NATSTLS.Cert, "nats.tls-key": c.NATSTLS.Key}
	for _, m := range []struct {
		given   map[string]string
		useless bool
		why     string
	}{{login, c.URL == "", "is for an external NATS server, but nats.url is not set"}, {ours, c.URL != "", "is for the built-in NATS server, but nats.url names an external one"}} {
		keys := make([]string, 0, len(m.given))
		for key, text := range m.given {
			if m.useless && text != "" {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		for _, key := range keys {
			c.wrong("%s (from %s) %s", key, c.values[key].origin, m.why)
		}
	}
	if (c.Login.User == "") != (c.Login.PasswordFile == "") {
		c.wrong("nats.user and nats.password-file belong together: set both or neither")
	}
	if n := given(c.Login.User, c.Login.TokenFile, c.Login.CredsFile); n > 1 {
		c.wrong("more than one of nats.user, nats.token-file and nats.creds-file is set: keep one")
	}
}

func given(texts ...string) (n int) {
	for _, t := range texts {
		if t != "" {
			n++
		}
	}
	return n
}

func (c *config) checkPair(section string, p keyPair) {
	if (p.Cert == "") != (p.Key == "") {
		c.wrong("%s.tls-cert and %[1]s.tls-key belong together: set both or neither", section)
	}
}

// checkNames checks the names under which the page is known.
func (c *config) checkNames() {
	if c.Public != "" {
		u, err := url.Parse(c.Public)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			c.wrong("invalid http.url (from %s): want scheme and host only, such as https://jobs.example.com", c.values["http.url"].origin)
		}
	}
	for _, h := range c.hosts() {
		if strings.ContainsAny(h, "/:@ *") && net.ParseIP(h) == nil {
			c.wrong("http.hosts (from %s): %q is not a host name: want names without ports, comma-separated", c.values["http.hosts"].origin, h)
		}
	}
}

// checkExposed requires authentication and TLS on addresses that other machines can reach.
func (c *config) checkExposed() {
	if c.Auth == "off" {
		for _, a := range c.open() {
			c.wrong("%s is reachable from other machines, but auth (from %s) is off: remove auth to require tokens, or listen on 127.0.0.1", a, c.values["auth"].origin)
		}
		return
	}
	if !c.authenticates() {
		return
	}
	if c.Memory {
		c.wrong("authentication needs a data directory: with memory, tokens are lost at a restart")
	}
	if host, _, _ := net.SplitHostPort(c.HTTP); !isLoopback(host) && c.HTTPTLS.Cert == "" && !strings.HasPrefix(c.Public, "https://") && !c.HTTPOpen {
		c.wrong("http.addr %s is reachable from other machines without TLS: set http.tls-cert and http.tls-key, "+
			"or http.url: https://... if a proxy does TLS, or http.plain: true if you trust everyone on that network", c.HTTP)
	}
	if host, _, _ := net.SplitHostPort(c.NATS); c.URL == "" && !isLoopback(host) && c.NATSTLS.Cert == "" && !c.NATSOpen {
		c.wrong("nats.addr %s is reachable from other machines without TLS: set nats.tls-cert and nats.tls-key, "+
			"or nats.plain: true if you trust everyone on that network", c.NATS)
	}
}

// open returns the settings by which other machines can reach this process.
func (c *config) open() (all []string) {
	if host, _, _ := net.SplitHostPort(c.HTTP); !isLoopback(host) {
		all = append(all, "http.addr "+c.HTTP)
	}
	if host, _, _ := net.SplitHostPort(c.NATS); c.URL == "" && !isLoopback(host) {
		all = append(all, "nats.addr "+c.NATS)
	}
	if u, err := url.Parse(c.Public); err == nil && c.Public != "" && !isLoopback(u.Hostname()) {
		all = append(all, "http.url "+c.Public) // a proxy forwards requests
	}
	for _, h := range commas(c.Hosts) {
		if !isLoopback(h) {
			all = append(all, "http.hosts "+h) // the same
		}
	}
	return all
}

// authenticates reports whether requests need a token or a session.
func (c *config) authenticates() bool {
	return c.Auth == "on" || c.Auth == "auto" && (len(c.open()) > 0 || c.SignIn.Issuer != "")
}

// hosts returns the page's host names besides loopback's: from the settings, and the listen address.
func (c *config) hosts() []string {
	var names []string
	names = append(names, commas(c.Hosts)...)
	if u, err := url.Parse(c.Public); err == nil && u.Hostname() != "" {
		names = append(names, u.Hostname())
	}
	if host, _, err := net.SplitHostPort(c.HTTP); err == nil && host != "" {
		names = append(names, host)
	}
	return names
}

// secure reports whether browsers use TLS, to this process or to a proxy.
func (c *config) secure() bool {
	return c.HTTPTLS.Cert != "" || strings.HasPrefix(c.Public, "https://")
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// reread is the minimum interval between two reads of a certificate's files.
const reread = 10 * time.Second

// certificate is a pair of files that may be renewed while the process runs.
type certificate struct {
	files keyPair

	mu      sync.Mutex
	now     *tls.Certificate
	changed time.Time // of the newer file
	looked  time.Time
}

// serverTLS returns TLS with a certificate from files, nil if there are none. New files are used within seconds.
func serverTLS(p keyPair) (*tls.Config, error) {
	if p.Cert == "" {
		return nil, nil
	}
	if err := private(p.Key); err != nil {
		return nil, err
	}
	c := &certificate{files: p}
	if err := c.read(time.Now()); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}, nil
}

// get is called for each connection.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) > reread {
		_ = c.read(now) // keep the old pair while files are half-written
	}
	return c.now, nil
}

func (c *certificate) read(now time.Time) error {
	c.looked = now
	var newest time.Time
	for _, path := range []string{c.files.Cert, c.files.Key} {
		info, err := os.Stat(path)
		if err != nil {
			return usageError{err}
		}
		if info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	if c.now != nil && newest.Equal(c.changed) {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(c.files.Cert, c.files.Key)
	if err != nil {
		return usage("certificate %s with key %s: %v", c.files.Cert, c.files.Key, err)
	}
	c.now, c.changed = &pair, newest
	return nil
}

// private refuses a file with a secret that others can read.
func private(path string) error {
	if err := secretfile.Check(path); err != nil {
		return usageError{err}
	}
	return nil
}

// secretIn reads a file with one secret.
func secretIn(path string) (string, error) {
	if err := private(path); err != nil {
		return "", err
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", usageError{err}
	}
	secret := strings.TrimRight(string(raw), "\r\n")
	if secret == "" {
		return "", usage("%s is empty", path)
	}
	return secret, nil
}

// authorities reads certificate authorities from a file.
func authorities(path string) (*tls.Config, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, usageError{err}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, usage("%s has no PEM certificates", path)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// withoutUsers returns an address without users and secrets.
func withoutUsers(address string) string {
	var all []string
	for one := range strings.SplitSeq(address, ",") {
		u, err := url.Parse(one)
		if err != nil {
			return "an invalid address"
		}
		all = append(all, fmt.Sprintf("%s://%s", u.Scheme, u.Host))
	}
	return strings.Join(all, ",")
}
