package ui

import (
	"errors"
	"net/http"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Access authenticates users: it knows tokens and sessions, and limits failed attempts.
type Access interface {
	// Who authenticates a request; jobs.Forbidden without a valid token or session.
	Who(r *http.Request) (ops.Who, error)
	// Denied notes for the audit that a caller may not do something.
	Denied(r *http.Request, who ops.Who, route, why string)
	// SignIn starts a session for the holder of a token.
	SignIn(r *http.Request, token string) (cookie string, until time.Time, err error)
	// Session returns the value of a request's session cookie, or "".
	Session(r *http.Request) string
	// Cookie returns the session cookie for a browser. An empty value deletes it.
	Cookie(r *http.Request, value string, until time.Time) *http.Cookie
}

// loginPage is the form for a token.
type loginPage struct {
	Next     string // where to redirect
	Fault    string // of the token
	Refused  string // why the sign-in at the provider failed
	Provider *providerView
}

func (u *UI) login(r *http.Request, _ visitor) (answer, error) {
	next := local(r.URL.Query().Get("next"))
	if u.access == nil {
		return answer{next: next}, nil // the server requires no authentication
	}
	return answer{page: "login", title: "Sign in", data: loginPage{Next: next, Provider: u.provider()}}, nil
}

// signIn starts a session for a token.
func (u *UI) signIn(r *http.Request, _ visitor) (answer, error) {
	next := local(r.PostFormValue("next"))
	if u.access == nil {
		return answer{next: next}, nil
	}
	value, until, err := u.access.SignIn(r, r.PostFormValue("token"))
	switch {
	case errors.Is(err, jobs.Forbidden):
		return answer{page: "login", title: "Sign in", status: http.StatusUnauthorized,
			data: loginPage{Next: next, Provider: u.provider(), Fault: "Invalid or expired token. Worker and client tokens cannot sign in here."}}, nil
	case errors.Is(err, jobs.Exhausted):
		return answer{page: "login", title: "Sign in", status: http.StatusTooManyRequests,
			data: loginPage{Next: next, Provider: u.provider(), Fault: "Too many sign-in attempts with this token or from this address. Try again in a minute."}}, nil
	case err != nil:
		return answer{}, err
	}
	return answer{next: next, cookies: []*http.Cookie{u.access.Cookie(r, value, until)}}, nil
}

// signOut ends the session, if there is one, and that at the identity provider if it began there.
func (u *UI) signOut(r *http.Request, _ visitor) (answer, error) {
	if u.access == nil {
		return answer{next: "/"}, nil
	}
	a := answer{next: "/login", cookies: []*http.Cookie{u.access.Cookie(r, "", time.Time{})}}
	if cookie := u.access.Session(r); cookie != "" {
		s, _ := u.ops.Session(r.Context(), cookie) // an ended one has nothing left to end
		if err := u.ops.SignOut(r.Context(), cookie); err != nil {
			return answer{}, err
		}
		if s != nil && s.Token == "" && u.signInAt != nil {
			if to := u.signInAt.End(); to != "" {
				a.next, a.away = "", to
			}
		}
	}
	return a, nil
}
