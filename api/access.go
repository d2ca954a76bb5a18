package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// SessionCookie is the name of the cookie of a browser that has signed in. Over TLS it is SecureCookie, which a browser
// takes from this very host only.
const (
	SessionCookie = "carillon_session"
	SecureCookie  = "__Host-" + SessionCookie
)

// Access says who sends a request, by the token in its Authorization header or by the cookie of a session. The API and
// the pages share one, so that wrong tries count together: ten at once from one address, then one in two seconds are
// looked at; the others are told to wait. A token that is known always passes: somebody who guesses behind the same
// address locks nobody out, and there is nothing to guess in 130 random bits. What proxies say about addresses is
// ignored.
type Access struct {
	ops    *ops.Ops
	secure bool
	wrong  rates
	begun  rates // sessions, by who begins them
	again  verdicts
}

// NewAccess makes one. secure says that browsers come by https although TLS ends elsewhere.
func NewAccess(o *ops.Ops, secure bool) *Access {
	return &Access{ops: o, secure: secure, wrong: rates{rate: 0.5, burst: 10}, begun: rates{rate: 1. / 30, burst: 20}}
}

// Secure says that a request came by https, so that cookies are bound to it.
func (a *Access) Secure(r *http.Request) bool { return a.secure || r.TLS != nil }

// Cookie is the cookie that a browser keeps its session in. With an empty value it makes the browser forget.
func (a *Access) Cookie(r *http.Request, value string, until time.Time) *http.Cookie {
	c := &http.Cookie{Name: a.cookieName(r), Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: a.Secure(r), Expires: until}
	if value == "" {
		c.MaxAge, c.Expires = -1, time.Time{}
	}
	return c
}

func (a *Access) cookieName(r *http.Request) string {
	if a.Secure(r) {
		return SecureCookie
	}
	return SessionCookie
}

// Session is the value of a request's session cookie, or "".
func (a *Access) Session(r *http.Request) string {
	if c, err := r.Cookie(a.cookieName(r)); err == nil {
		return c.Value
	}
	return ""
}

// Who says who sends a request. The error is jobs.Forbidden if nobody is named who is known, and a TooMany after too
// many wrong tries. A token in the query is not looked at: it would end up in logs and histories.
//
// A request whose context comes from metastore.FromCopy has been let in before: nothing is counted against it, and what
// was found a moment ago for the same token or session counts.
func (a *Access) Who(r *http.Request) (ops.Who, error) {
	header, cookie := r.Header.Get("Authorization"), ""
	if header == "" {
		if cookie = a.Session(r); cookie == "" {
			return ops.Who{}, ops.ErrNotKnown // nothing was tried
		}
	}
	if metastore.CopyWillDo(r.Context()) {
		return a.again.of(header, cookie, func() (ops.Who, error) { return a.look(r.Context(), header, cookie) })
	}
	who, err := a.look(r.Context(), header, cookie)
	return who, a.judged(r, err)
}

// look finds who shows a header, or else a cookie.
func (a *Access) look(ctx context.Context, header, cookie string) (ops.Who, error) {
	if header == "" {
		return a.ops.SignedIn(ctx, cookie)
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ops.Who{}, ops.ErrNotKnown
	}
	return a.ops.Authenticate(ctx, strings.TrimSpace(token))
}

// SignIn begins a session for a browser; see ops.SignIn. Wrong tries count. Of right ones each holder has twenty at once
// and then one in thirty seconds: each leaves a row, and a line in the record of who changed what, which keeps so many
// and no more; nobody is to push out of it what he does not want to be read.
func (a *Access) SignIn(r *http.Request, token string) (cookie string, until time.Time, err error) {
	token = strings.TrimSpace(token)
	who, err := a.ops.Authenticate(r.Context(), token)
	if err != nil {
		return "", time.Time{}, a.judged(r, err)
	}
	if wait := a.begun.take(string(who.Tenant) + "/" + who.Actor); wait > 0 {
		return "", time.Time{}, &TooMany{After: wait}
	}
	cookie, until, err = a.ops.SignIn(r.Context(), token)
	return cookie, until, a.judged(r, err)
}

// judged counts a wrong try against the address that it came from.
func (a *Access) judged(r *http.Request, err error) error {
	if !errors.Is(err, jobs.Forbidden) {
		return err
	}
	if wait := a.wrong.take(addressOf(r)); wait > 0 {
		return &TooMany{After: wait}
	}
	return err
}

// addressOf is where a request comes from. Whoever has an IPv6 address has 2^64 of them.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap(); ip.Is6() {
		if network, err := ip.WithZone("").Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
