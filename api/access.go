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

// SessionCookie is the name of a browser's session cookie. Over TLS it is SecureCookie, which browsers accept only from
// this host.
const (
	SessionCookie = "carillon_session"
	SecureCookie  = "__Host-" + SessionCookie
)

// Access authenticates requests by the token in the Authorization header or by a session cookie. The API and the pages
// share one, so that failed attempts count together: each address may fail ten times at once, then once in two seconds.
// A valid token is never refused, so the failures of others do not lock its holder out; guessing is hopeless against
// 130 random bits. Headers of proxies about addresses are ignored.
type Access struct {
	ops      *ops.Ops
	secure   bool
	provider Provider // nil = none
	wrong    rates
	begun    rates // session starts, by token holder
	again    verdicts
}

// NewAccess returns an Access. With secure, cookies are marked Secure although TLS ends at a proxy.
func NewAccess(o *ops.Ops, secure bool) *Access {
	return &Access{ops: o, secure: secure, wrong: rates{rate: 0.5, burst: 10}, begun: rates{rate: 1. / 30, burst: 20}}
}

// Secure reports whether a request came by https, so that cookies are bound to it.
func (a *Access) Secure(r *http.Request) bool { return a.secure || r.TLS != nil }

// Cookie returns the session cookie for a browser. An empty value deletes it.
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

// Session returns the value of a request's session cookie, or "".
func (a *Access) Session(r *http.Request) string {
	if c, err := r.Cookie(a.cookieName(r)); err == nil {
		return c.Value
	}
	return ""
}

// Who authenticates a request. The error is jobs.Forbidden without a valid token or session, and a TooMany after too
// many failures. A token in the query is ignored: it would end up in logs and histories.
//
// A request whose context comes from metastore.FromCopy was authenticated before: failures are not counted, and a
// recent result for the same token or session is reused.
func (a *Access) Who(r *http.Request) (ops.Who, error) {
	header, cookie := r.Header.Get("Authorization"), ""
	if header == "" {
		if cookie = a.Session(r); cookie == "" {
			return ops.Who{}, ops.ErrNotKnown // no credentials were sent
		}
	}
	if metastore.CopyWillDo(r.Context()) {
		who, err := a.again.of(header, cookie, func() (ops.Who, error) { return a.look(r.Context(), header, cookie, true) })
		return who, unspecific(err)
	}
	who, err := a.look(r.Context(), header, cookie, background(r))
	if header != "" { // sessions end every day
		a.ops.FailedSignIn("sign-in", addressOf(r), err)
	}
	return who, a.judged(r, unspecific(err))
}

// unspecific is the error that the sender of an access token gets.
func unspecific(err error) error {
	if _, none := errors.AsType[*ops.NoRights](err); none {
		return ops.ErrNotKnown
	}
	return err
}

// Denied notes for the audit what a caller may not do: target is the route.
func (a *Access) Denied(r *http.Request, who ops.Who, target, why string) {
	a.ops.Denied(ops.Denied{Tenant: who.Tenant, Actor: who.Actor, Target: target, From: addressOf(r), Why: why})
}

// background reports whether a page sent a request by itself: pages that are left open do not keep a session in use.
func background(r *http.Request) bool {
	return r.Header.Get("X-Fragment") != "" || r.Header.Get("Accept") == "text/event-stream"
}

// look authenticates an Authorization header, or else a cookie, whose session is then in use unless a page asks by
// itself.
func (a *Access) look(ctx context.Context, header, cookie string, background bool) (ops.Who, error) {
	switch {
	case header == "" && background:
		return a.ops.SignedIn(ctx, cookie)
	case header == "":
		return a.ops.InUse(ctx, cookie)
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ops.Who{}, ops.ErrNotKnown
	}
	token = strings.TrimSpace(token)
	if a.provider == nil || !a.provider.Bearer() || ops.IsToken(token) {
		return a.ops.Authenticate(ctx, token)
	}
	id, err := a.provider.Authenticate(ctx, token)
	if err != nil {
		return ops.Who{}, err
	}
	return id.Who(), nil
}

// SignIn starts a session for a browser; see ops.SignIn. Failures count. Each token holder may start twenty sessions at
// once and then one in thirty seconds: each adds an entry to the audit, whose size is limited, and a user must not be
// able to push entries out of it.
func (a *Access) SignIn(r *http.Request, token string) (cookie string, until time.Time, err error) {
	token = strings.TrimSpace(token)
	who, err := a.ops.Authenticate(r.Context(), token)
	if err != nil {
		a.ops.FailedSignIn("sign-in", addressOf(r), err)
		return "", time.Time{}, a.judged(r, err)
	}
	if wait := a.begun.take(string(who.Tenant) + "/" + who.Actor); wait > 0 {
		return "", time.Time{}, &TooMany{After: wait}
	}
	if cookie, until, err = a.ops.SignIn(r.Context(), token); err != nil {
		a.ops.FailedSignIn("sign-in", addressOf(r), err)
	}
	return cookie, until, a.judged(r, err)
}

// judged counts a failed attempt against the address of its request.
func (a *Access) judged(r *http.Request, err error) error {
	if !errors.Is(err, jobs.Forbidden) {
		return err
	}
	if wait := a.wrong.take(addressOf(r)); wait > 0 {
		return &TooMany{After: wait}
	}
	return err
}

// addressOf returns the address of a request's sender, for rate limits: of IPv6 the /64 prefix, because one host has
// 2^64 addresses.
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
