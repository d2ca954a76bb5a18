package ui

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// SignIn is the way of a browser to an identity provider and back.
type SignIn interface {
	// Label is the provider's name on pages.
	Label() string
	// Away returns since when the provider does not answer; zero: it does.
	Away() time.Time
	// Start returns the URL of the provider's sign-in page, and the cookie that the browser keeps meanwhile. next is the
	// path to return to.
	Start(r *http.Request, next string) (to string, keep *http.Cookie, err error)
	// Return starts a session for a browser that the provider sent back; several: in one of several tenants. The error
	// is *ops.NoRights if the person has no rights here.
	Return(r *http.Request) (session *http.Cookie, next string, several bool, err error)
	// Forget returns the cookie that deletes the one of Start.
	Forget(r *http.Request) *http.Cookie
	// End returns the provider's sign-out page, or "".
	End() string
	// Origins returns the sites to which signing out may lead.
	Origins() []string
}

// providerView is the identity provider on the login page.
type providerView struct {
	Label string
	Away  time.Time // since when it does not answer; zero: it does
}

func (u *UI) provider() *providerView {
	if u.signInAt == nil {
		return nil
	}
	return &providerView{Label: u.signInAt.Label(), Away: u.signInAt.Away()}
}

// leave sends the browser to the identity provider.
func (u *UI) leave(r *http.Request, _ visitor) (answer, error) {
	if u.signInAt == nil {
		return answer{}, kernel.Refuse(jobs.NotFound, "page not found")
	}
	next := local(r.URL.Query().Get("next"))
	to, keep, err := u.signInAt.Start(r, next)
	if errors.Is(err, jobs.Unavailable) {
		return answer{page: "login", title: "Sign in", status: http.StatusServiceUnavailable, data: loginPage{Next: next, Provider: u.provider()}}, nil
	}
	if err != nil {
		return answer{}, err
	}
	return answer{away: to, cookies: []*http.Cookie{keep}}, nil
}

// arrive starts a session for a browser that the identity provider sent back.
func (u *UI) arrive(r *http.Request, _ visitor) (answer, error) {
	if u.signInAt == nil {
		return answer{}, kernel.Refuse(jobs.NotFound, "page not found")
	}
	forget := u.signInAt.Forget(r)
	session, next, several, err := u.signInAt.Return(r)
	a := answer{page: "login", title: "Sign in", cookies: []*http.Cookie{forget}}
	page := loginPage{Next: "/", Provider: u.provider()}
	if none, ok := errors.AsType[*ops.NoRights](err); ok {
		a.page, a.title, a.status, a.data = "norights", "No access", http.StatusForbidden, none
		return a, nil
	}
	switch {
	case errors.Is(err, jobs.Forbidden), errors.Is(err, jobs.BadInput):
		page.Refused, a.status = said(err), http.StatusForbidden
	case errors.Is(err, jobs.Exhausted):
		page.Refused, a.status = "Too many sign-in attempts from this address. Try again in a minute.", http.StatusTooManyRequests
	case errors.Is(err, jobs.Unavailable):
		a.status = http.StatusServiceUnavailable
	case err != nil:
		return answer{cookies: a.cookies}, err
	default:
		if next = local(next); several {
			next = "/session?next=" + url.QueryEscape(next)
		}
		return answer{next: next, cookies: []*http.Cookie{forget, session}}, nil
	}
	a.data = page
	return a, nil
}

// sessionPage is where a person chooses a tenant.
type sessionPage struct {
	visitor
	*kernel.Session
	Next string
}

func (u *UI) session(r *http.Request, v visitor) (answer, error) {
	if u.access == nil {
		return answer{}, kernel.Refuse(jobs.NotFound, "page not found")
	}
	s, err := u.ops.Session(r.Context(), u.access.Session(r))
	if err != nil {
		return answer{}, err
	}
	return answer{page: "session", title: "Choose a tenant", data: sessionPage{v, s, local(r.URL.Query().Get("next"))}}, nil
}

// switchTenant continues in another tenant.
func (u *UI) switchTenant(r *http.Request, v visitor) (answer, error) {
	if u.access == nil {
		return answer{}, kernel.Refuse(jobs.NotFound, "page not found")
	}
	to, next := jobs.Tenant(r.PostFormValue("tenant")), local(r.PostFormValue("next"))
	if to == v.Who.Tenant {
		return answer{next: next}, nil
	}
	value, until, err := u.ops.Switch(r.Context(), u.access.Session(r), to)
	if err != nil {
		return answer{}, err
	}
	return answer{next: next, cookies: []*http.Cookie{u.access.Cookie(r, value, until)}}, nil
}

// endSession ends a session for an admin.
func (u *UI) endSession(r *http.Request, v visitor) (answer, error) {
	v.Who.Reason = r.PostFormValue("reason")
	if err := u.ops.EndSession(r.Context(), v.Who, r.PathValue("id")); err != nil {
		return u.accessFault(r, v, err, http.StatusNotFound)
	}
	return goTo("/access", "ended"), nil
}
