package httpjob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon/httpspec"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Guard decides which addresses may be called. The zero value allows public addresses, at ports 80 and 443.
//
// It checks the address that is dialled, after the name was looked up: a name that resolves differently for the check
// and for the call gains nothing.
type Guard struct {
	// Allow are networks that may be called although they are not public, such as 10.1.0.0/16 or 127.0.0.1/32.
	Allow []netip.Prefix
	// Ports may be called beside 80 and 443; at networks of Allow, every port may be. Ports that are known for other
	// protocols than HTTP may never be called (httpspec.HTTPPort).
	Ports []int
}

// ErrBlocked means that a call was not made because of its address.
var ErrBlocked = errors.New("the address may not be called")

// CodeBlocked is the code that a run fails with whose call was blocked.
const CodeBlocked = "blocked_address"

// notPublic are networks that are unassigned, a machine's own, or private, and the address at which Azure serves each
// of its machines. IPv4 addresses embedded in IPv6 are unwrapped first.
var notPublic = prefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
	"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
	"::/128", "::1/128", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8")

var (
	nat64   = netip.MustParsePrefix("64:ff9b::/96")
	sixFour = netip.MustParsePrefix("2002::/16")
	siit    = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765, not to be mistaken for ::ffff:0:0/96
	compat  = netip.MustParsePrefix("::/96")
)

func prefixes(list ...string) (all []netip.Prefix) {
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// inner is the IPv4 address that an IPv6 one embeds, or the address itself.
func inner(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if !a.Is6() {
		return a
	}
	b := a.As16()
	switch {
	case nat64.Contains(a), siit.Contains(a), compat.Contains(a) && b[12] != 0:
		return netip.AddrFrom4([4]byte(b[12:]))
	case sixFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}

// Check returns why an address may not be called, or nil.
func (g *Guard) Check(to netip.AddrPort) error {
	if err := httpspec.HTTPPort(int(to.Port())); err != nil {
		return fmt.Errorf("%w: %v", ErrBlocked, err)
	}
	a := inner(to.Addr())
	within := func(p netip.Prefix) bool { return p.Contains(a) }
	if slices.ContainsFunc(g.Allow, within) {
		return nil
	}
	if slices.ContainsFunc(notPublic, within) {
		return fmt.Errorf("%w: %s is not public, and no network of it is allowed", ErrBlocked, to.Addr())
	}
	if port := int(to.Port()); port != 80 && port != 443 && !slices.Contains(g.Ports, port) {
		return fmt.Errorf("%w: port %d is not allowed", ErrBlocked, port)
	}
	return nil
}

// control is called for each connection with the address it goes to, before the first packet is sent.
func (g *Guard) control(network, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !strings.HasPrefix(network, "tcp") {
		return fmt.Errorf("%w: %s %s", ErrBlocked, network, address)
	}
	return g.Check(to)
}

// Limits of a call.
const (
	maxRedirects = 3
	maxHeader    = 64 << 10
	// MaxKept is how much of an answer is kept; MaxRead is how much is read before the connection is closed.
	MaxKept = 64 << 10
	MaxRead = 10 << 20
	// idleConns is how many connections to a host are kept for the next call: as many as there may be calls at a time
	// to a single host, because dialling costs as much as the rest of a call.
	idleConns = 512
)

// client makes calls that the guard allows. It ignores proxies of the environment.
func (g *Guard) client() *http.Client { return g.clientBy(nil) }

// clientBy is client with names looked up by a resolver; nil = as the machine does.
func (g *Guard) clientBy(names *net.Resolver) *http.Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, Control: g.control, Resolver: names}
	return &http.Client{
		Transport: &http.Transport{DialContext: dialer.DialContext, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: idleConns, MaxIdleConns: 4 * idleConns,
			IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: maxHeader},
		CheckRedirect: redirect,
	}
}

// redirect follows few, never from https to http, and takes no header and no body along to another host: any of them
// may hold a secret.
func redirect(next *http.Request, via []*http.Request) error {
	first, last := via[0], via[len(via)-1]
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case next.URL.Scheme != "http" && next.URL.Scheme != "https":
		return fmt.Errorf("%w: a redirect leads to scheme %s", ErrBlocked, next.URL.Scheme)
	case last.URL.Scheme == "https" && next.URL.Scheme == "http":
		return fmt.Errorf("%w: a redirect leads from https to http", ErrBlocked)
	case next.URL.User != nil:
		return fmt.Errorf("%w: a redirect has a user or a password in it", ErrBlocked)
	}
	if next.URL.Host != first.URL.Host {
		if next.Body != nil && next.Body != http.NoBody {
			return fmt.Errorf("%w: a redirect would take the body to another host", ErrBlocked)
		}
		next.Header = http.Header{"User-Agent": first.Header["User-Agent"], "Accept": first.Header["Accept"]}
	}
	return nil
}

// Answer is the answer to a call.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // at most MaxKept bytes
	Cut    bool   // there was more
	Took   time.Duration
}

// call makes one call.
func call(ctx context.Context, client *http.Client, method, to string, header map[string]string, body []byte, isJSON bool) (*Answer, error) {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return nil, kernel.Invalid("that is no URL to call")
	}
	var content io.Reader
	if body != nil {
		content = strings.NewReader(string(body))
	}
	r, err := http.NewRequestWithContext(ctx, method, to, content)
	if err != nil {
		return nil, kernel.Invalid("that is no URL to call")
	}
	r.Header.Set("User-Agent", "carillon")
	r.Header.Set("Accept", "application/json, */*")
	if isJSON {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	begun := time.Now()
	response, err := client.Do(r)
	if err != nil {
		return nil, reason(ctx, err)
	}
	defer response.Body.Close()
	a := &Answer{Status: response.StatusCode, Header: response.Header}
	if a.Body, err = io.ReadAll(io.LimitReader(response.Body, MaxKept+1)); err != nil {
		return nil, reason(ctx, err)
	}
	if len(a.Body) > MaxKept {
		a.Body, a.Cut = a.Body[:MaxKept], true
		// A little more is read so that the connection can be reused; a flood is not.
		if _, err := io.CopyN(io.Discard, response.Body, MaxRead-MaxKept); err != nil && err != io.EOF {
			return nil, reason(ctx, err)
		}
	}
	a.Took = time.Since(begun)
	return a, nil
}

// errCallTimeout is the end of a call without an answer.
var errCallTimeout = errors.New("no answer within")

// within bounds a call.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%w %v", errCallTimeout, d))
}

// reason returns why a call failed, without its URL, which may have a secret.
func reason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return err
}
