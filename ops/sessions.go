package ops

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// SessionLimits are when sessions end.
type SessionLimits struct {
	Idle    time.Duration // without a request for so long; default 1 h
	Longest time.Duration // in any case; default 12 h
}

func (l SessionLimits) orDefault() SessionLimits {
	return SessionLimits{Idle: cmp.Or(l.Idle, time.Hour), Longest: cmp.Or(l.Longest, 12*time.Hour)}
}

// Check validates the limits.
func (l SessionLimits) Check() error {
	if l = l.orDefault(); l.Idle < time.Minute || l.Longest < l.Idle || l.Longest > 30*24*time.Hour {
		return kernel.Invalid("invalid limits of sessions: idle %v, longest %v: want at least 1m, and at most 720h and not less than idle", l.Idle, l.Longest)
	}
	return nil
}

// Identity is a person as an identity provider names them, with their rights in each tenant that they may use.
type Identity struct {
	Person kernel.Person
	Rights []kernel.Rights // at least one; the first is where a session begins
}

// Who returns the identity as a caller, in the first tenant of its rights: for requests without a session.
func (id Identity) Who() Who {
	if len(id.Rights) == 0 {
		return Who{Actor: id.Person.Actor()}
	}
	return whoIn(&kernel.Session{Tenant: id.Rights[0].Tenant, Person: id.Person, Rights: id.Rights[:1]})
}

// NoRights means that a person has signed in at their identity provider, but no rule gives them rights here.
type NoRights struct {
	Person kernel.Person
	Claim  string   // that names groups
	Groups []string // that the provider sent
}

func (e *NoRights) Error() string {
	return fmt.Sprintf("no rule gives rights to %s, whose groups are %q", e.Person.Actor(), e.Groups)
}

// SignIn starts a session for a browser of a token's holder, with a secret of its own. It also ends with its token. A
// token of a program is refused like an unknown one.
func (o *Ops) SignIn(ctx context.Context, token string) (cookie string, until time.Time, err error) {
	t, err := o.holder(ctx, token)
	if err != nil {
		return "", time.Time{}, err
	}
	who := whoOf(t)
	if !who.Role.Covers(Viewer) {
		return "", time.Time{}, &WrongToken{t, "a token of the role " + t.Role + " cannot sign in"}
	}
	s := kernel.Session{Tenant: t.Tenant, Token: t.ID}
	if !t.Until.IsZero() {
		s.Until = t.Until
	}
	return o.begin(ctx, who, s)
}

// SignInAs starts a session for a browser of a person, in the first tenant of their rights that exists.
func (o *Ops) SignInAs(ctx context.Context, id Identity) (cookie string, until time.Time, err error) {
	rights, err := o.existing(ctx, id.Rights, time.Time{})
	if err != nil {
		return "", time.Time{}, err
	}
	if len(rights) == 0 {
		return "", time.Time{}, &NoRights{Person: id.Person}
	}
	s := kernel.Session{Tenant: rights[0].Tenant, Person: id.Person, Rights: rights}
	return o.begin(ctx, whoIn(&s), s)
}

// Switch ends a person's session and starts one in another tenant of their rights, as they were at the sign-in. It ends
// when the first one would.
func (o *Ops) Switch(ctx context.Context, cookie string, to jobs.Tenant) (_ string, until time.Time, err error) {
	who, s, err := o.signedIn(ctx, cookie)
	if err != nil {
		return "", time.Time{}, err
	}
	next := kernel.Session{Tenant: to, Person: s.Person, Until: s.Until}
	if next.Rights, err = o.existing(ctx, s.Rights, s.Created); err != nil {
		return "", time.Time{}, err
	}
	if next.In(to) == nil {
		return "", time.Time{}, kernel.Refuse(jobs.Forbidden, "you have no rights in tenant %.200s, or it was created after your sign-in: sign in again", to)
	}
	fresh, until, err := o.begin(ctx, whoIn(&next), next)
	if err == nil {
		err = o.end(ctx, who, s.ID)
	}
	return fresh, until, err
}

// existing returns the rights in tenants that exist, and did when a session began, if that is not zero: another tenant may
// have had the name.
func (o *Ops) existing(ctx context.Context, rights []kernel.Rights, began time.Time) (list []kernel.Rights, err error) {
	for _, r := range rights {
		g, err := o.store.Global(ctx, r.Tenant)
		if err != nil {
			return nil, err
		}
		if g.Exists(r.Tenant) && (began.IsZero() || !g.Tenancy.Since.After(began)) {
			list = append(list, r)
		}
	}
	return list, nil
}

// begin creates a session; its Until may only make it shorter.
func (o *Ops) begin(ctx context.Context, who Who, s kernel.Session) (cookie string, until time.Time, err error) {
	secret := rand.Text()
	s.ID, s.Idle = sessionID(secret), o.sessions.Idle
	if until = o.Now().Add(o.sessions.Longest); s.Until.IsZero() || until.Before(s.Until) {
		s.Until = until
	}
	if _, err := o.apply(ctx, who, kernel.SignIn{Session: s}); err != nil {
		if errors.Is(err, jobs.NotFound) && s.Token != "" { // the token was revoked meanwhile
			err = ErrNotKnown
		}
		return "", time.Time{}, err
	}
	return string(s.Tenant) + "." + secret, s.Until, nil
}

// SignedIn returns the holder of a session cookie.
func (o *Ops) SignedIn(ctx context.Context, cookie string) (Who, error) {
	who, _, err := o.signedIn(ctx, cookie)
	return who, err
}

// InUse is SignedIn for a request that a person made: the session's idle time begins anew. That may fail without a
// consequence, since the next request does the same.
func (o *Ops) InUse(ctx context.Context, cookie string) (Who, error) {
	who, s, err := o.signedIn(ctx, cookie)
	if err == nil && o.Now().Sub(s.Seen) >= s.TouchEvery() && metastore.AgeOf(ctx) == 0 {
		short, cancel := context.WithTimeout(ctx, touchTime)
		defer cancel()
		_, _ = o.apply(short, who, kernel.Touch{ID: s.ID})
	}
	return who, err
}

// touchTime is how long a page may wait for the commit of a Touch.
const touchTime = time.Second

func (o *Ops) signedIn(ctx context.Context, cookie string) (Who, *kernel.Session, error) {
	s, err := o.Session(ctx, cookie)
	if err != nil {
		return Who{}, nil, err
	}
	if s.Token == "" {
		return whoIn(s), s, nil
	}
	t, err := o.store.Token(ctx, s.Tenant, s.Token)
	switch {
	case errors.Is(err, jobs.NotFound):
		return Who{}, nil, ErrNotKnown
	case err != nil:
		return Who{}, nil, err
	case !t.Live(o.Now()):
		return Who{}, nil, ErrNotKnown
	}
	return whoOf(t), s, nil
}

// whoIn returns a person in their session.
func whoIn(s *kernel.Session) Who {
	who := Who{Tenant: s.Tenant, Actor: s.Person.Actor(), Choice: len(s.Rights) > 1}
	if r := s.In(s.Tenant); r != nil {
		who.Role, _ = ParseRole(r.Role)
		who.Scope = scoped(r.Scope)
	}
	return who
}

// Session returns the session of a cookie; ErrNotKnown if there is none or it has ended. Its token may have.
func (o *Ops) Session(ctx context.Context, cookie string) (*kernel.Session, error) {
	tenant, secret := cutCookie(cookie)
	if len(cookie) > maxCookie || kernel.CheckName("tenant", string(tenant)) != nil {
		return nil, ErrNotKnown
	}
	s, err := o.store.Session(ctx, tenant, sessionID(secret))
	switch {
	case errors.Is(err, jobs.NotFound):
		return nil, o.unknown(ctx)
	case err != nil:
		return nil, err
	case !s.End().After(o.Now()):
		return nil, ErrNotKnown
	}
	return s, nil
}

// SignOut ends a session. Ending it again changes nothing.
func (o *Ops) SignOut(ctx context.Context, cookie string) error {
	who, s, err := o.signedIn(ctx, cookie)
	if errors.Is(err, jobs.Forbidden) {
		return nil
	}
	if err != nil {
		return err
	}
	return o.end(ctx, who, s.ID)
}

// end ends a session of the caller's tenant. Ending a missing one changes nothing.
func (o *Ops) end(ctx context.Context, who Who, id string) error {
	_, err := o.apply(ctx, who, kernel.SignOut{ID: id})
	return err
}

// EndSession ends a session that Sessions lists, in whichever tenant it is.
func (o *Ops) EndSession(ctx context.Context, who Who, id string) error {
	list, err := o.Sessions(ctx, who)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(s SessionInfo) bool { return s.ID == id })
	if i < 0 {
		return kernel.Refuse(jobs.NotFound, "there is no such session: it has ended, or its person has switched to another tenant, which began a new one; look at the list again")
	}
	who.Home, who.Tenant = who.tenant(), list[i].Tenant
	return o.end(ctx, who, id)
}

// SessionInfo is a session, whose it is, and what it may do in the tenant whose sessions are listed.
type SessionInfo struct {
	*kernel.Session
	Actor string
	Role  string
	Away  bool   // it is in another tenant, from which it may switch
	Scope string // of an operator: the jobs that it may act on; "" = all
}

// Sessions lists the sessions that may act in the caller's tenant and have not ended, newest first: also those of people
// who are in another tenant, and may switch.
func (o *Ops) Sessions(ctx context.Context, who Who) ([]SessionInfo, error) {
	all, err := o.store.Sessions(ctx, who.tenant())
	if err != nil {
		return nil, err
	}
	tokens, err := o.Tokens(ctx, who)
	if err != nil {
		return nil, err
	}
	now := o.Now()
	live := map[string]Who{}
	for _, t := range tokens {
		if t.Live(now) {
			live[t.ID] = whoOf(t)
		}
	}
	var list []SessionInfo
	for _, s := range all {
		away := s.Tenant != who.tenant()
		if away {
			rights, err := o.existing(ctx, []kernel.Rights{*s.In(who.tenant())}, s.Created)
			if err != nil {
				return nil, err
			}
			if len(rights) == 0 { // in an earlier tenant of this name
				continue
			}
		}
		here := *s
		here.Tenant = who.tenant()
		of, ok := whoIn(&here), true
		if s.Token != "" {
			of, ok = live[s.Token]
		}
		if ok && s.End().After(now) {
			info := SessionInfo{Session: s, Actor: of.Actor, Role: of.Role.String(), Away: away}
			if of.Scope != nil {
				info.Scope = of.Scope.String()
			}
			list = append(list, info)
		}
	}
	return list, nil
}

// cutCookie parses a cookie; the tenant's name may contain dots.
func cutCookie(cookie string) (tenant jobs.Tenant, secret string) {
	i := strings.LastIndexByte(cookie, '.')
	return jobs.Tenant(cookie[:max(i, 0)]), cookie[i+1:]
}

func sessionID(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
