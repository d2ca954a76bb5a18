package api

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/carillon-scheduler/carillon/ops"
)

// Provider is an identity provider, such as internal/oidc.
type Provider interface {
	// Label is its name on pages.
	Label() string
	// Away returns since when it does not answer; zero: it does.
	Away() time.Time
	// Begin returns the URL of its sign-in page, and a text that the browser keeps for Finish. next is the path of this
	// site to return to.
	Begin(ctx context.Context, next string) (to, kept string, err error)
	// Finish returns who has signed in, from the query with which it sent the browser back.
	Finish(ctx context.Context, kept string, query url.Values) (id ops.Identity, next string, err error)
	// Bearer reports whether the API accepts its access tokens.
	Bearer() bool
	// Authenticate returns who an access token is about; jobs.Forbidden or *ops.NoRights without rights.
	Authenticate(ctx context.Context, token string) (ops.Identity, error)
	// End returns its sign-out page, or "".
	End() string
	// Origins returns the sites to which signing out may lead.
	Origins() []string
}

// SignIn is the way of a browser to an identity provider and back.
type SignIn struct {
	Provider
	access *Access
}

// SignInAt returns the sign-in at a provider, whose failed attempts count with those of wrong tokens.
// Its access tokens are accepted from now on. Call it before requests come.
func (a *Access) SignInAt(p Provider) *SignIn {
	a.provider = p
	return &SignIn{p, a}
}

// The cookie of a sign-in under way. Only the browser that began it has it, for ten minutes.
const (
	startedCookie = "carillon_signin"
	startedLife   = 10 * time.Minute
)

// Start returns where to send a browser, and the cookie that it keeps meanwhile.
func (s *SignIn) Start(r *http.Request, next string) (to string, keep *http.Cookie, err error) {
	to, kept, err := s.Begin(r.Context(), next)
	if err != nil {
		return "", nil, err
	}
	return to, s.cookie(r, kept), nil
}

// Return starts a session for a browser that the provider sent back. next is where it wanted to go, several that the
// person may choose among tenants. The error is that of Provider.Finish, or TooMany. The cookie of Start is of no
// further use: forget deletes it.
func (s *SignIn) Return(r *http.Request) (session *http.Cookie, next string, several bool, err error) {
	kept := ""
	if c, err := r.Cookie(s.name(r)); err == nil {
		kept = c.Value
	}
	id, next, err := s.Finish(r.Context(), kept, r.URL.Query())
	if err != nil {
		s.access.ops.FailedSignIn("sign-in", addressOf(r), err)
		return nil, "", false, s.access.judged(r, err)
	}
	actor := string(id.Rights[0].Tenant) + "/" + id.Person.Actor()
	if wait := s.access.begun.take(actor); wait > 0 {
		return nil, "", false, &TooMany{After: wait}
	}
	value, until, err := s.access.ops.SignInAs(r.Context(), id)
	if err != nil {
		return nil, "", false, err
	}
	return s.access.Cookie(r, value, until), next, len(id.Rights) > 1, nil
}

// Forget returns the cookie that deletes the one of Start.
func (s *SignIn) Forget(r *http.Request) *http.Cookie { return s.cookie(r, "") }

func (s *SignIn) name(r *http.Request) string {
	if s.access.Secure(r) {
		return "__Host-" + startedCookie
	}
	return startedCookie
}

func (s *SignIn) cookie(r *http.Request, value string) *http.Cookie {
	c := s.access.Cookie(r, value, time.Time{})
	c.Name, c.Expires = s.name(r), time.Time{}
	c.MaxAge = cmp.Or(c.MaxAge, int(startedLife/time.Second))
	return c
}
