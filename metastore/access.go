package metastore

import (
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Tokens and the sessions of browsers. The number of admin tokens without an end is in the
// tenant's Global, and a unique key reserves a name, so that no command looks through all tokens.

func (c *change) token(id string) *kernel.Token {
	t, _ := c.tx.Get(kernel.TokenRef(c.env.Tenant, id)).(*kernel.Token)
	return t
}

func (c *change) grant(k kernel.Grant) error {
	t := k.Token
	t.Tenant, t.By, t.Created = c.env.Tenant, c.env.Actor, c.at
	if row := c.token(t.ID); row != nil {
		if !row.Same(&t) {
			return kernel.Refuse(jobs.Conflict, "token id %s is taken: generate another", t.ID)
		}
		c.effect.Existing, c.effect.Token = true, row
		return nil
	}
	if !t.Live(c.at) {
		return kernel.Invalid("token %s would expire at %s: that time has passed", t.Name, stamp(t.Until))
	}
	name := kernel.TokenName(t.Name)
	if c.uniqueRow(name, t.Name) != nil {
		return kernel.Refuse(jobs.Conflict, "there is a token called %q: choose another name, or revoke it first", t.Name)
	}
	c.tx.Put(&kernel.UniqueKey{Tenant: t.Tenant, Name: name, ID: kernel.TokenKey(t.ID), Until: t.Until})
	c.tx.Put(&t)
	if t.Master() {
		c.count(func(g *kernel.Global) { g.Admins++ })
	}
	c.effect.Token = &t
	c.audit(tokenTarget(&t), nil, tokenFields(&t))
	return nil
}

func (c *change) revoke(k kernel.Revoke) error {
	t := c.token(k.ID)
	if t == nil {
		c.effect.Existing = true
		return nil
	}
	if t.Master() && c.global().Admins < 2 {
		return kernel.Refuse(jobs.Conflict, "token %s (%s) is the last admin token that never expires: grant another such token first", t.ID, t.Name)
	}
	ref := kernel.UniqueRef(t.Tenant, kernel.TokenName(t.Name))
	if u, ok := c.tx.Get(ref).(*kernel.UniqueKey); ok && u.ID == kernel.TokenKey(t.ID) {
		c.tx.Delete(ref)
	}
	c.tx.Delete(t.Ref())
	if t.Master() {
		c.count(func(g *kernel.Global) { g.Admins-- })
	}
	c.audit(tokenTarget(t), tokenFields(t), nil)
	return nil
}

func tokenTarget(t *kernel.Token) string { return "token " + t.ID + " (" + t.Name + ")" }

// tokenFields is a token in an audit: never its hash.
func tokenFields(t *kernel.Token) fields {
	f := fields{"name": t.Name, "role": t.Role}
	if t.App != "" {
		f["app"] = t.App
	}
	if !t.Scope.All() {
		f["scope"] = t.Scope.String()
	}
	if !t.Until.IsZero() {
		f["until"] = t.Until
	}
	return f
}

func (c *change) session(id string) *kernel.Session {
	s, _ := c.tx.Get(kernel.SessionRef(c.env.Tenant, id)).(*kernel.Session)
	return s
}

func (c *change) signIn(k kernel.SignIn) error {
	s := k.Session
	s.Tenant, s.Created, s.Seen = c.env.Tenant, c.at, c.at
	if row := c.session(s.ID); row != nil {
		if row.Token != s.Token || row.Person != s.Person {
			return kernel.Refuse(jobs.Conflict, "the session exists and belongs to another token or person")
		}
		c.effect.Existing = true
		return nil
	}
	if s.Token != "" {
		t := c.token(s.Token)
		if t == nil || !t.Live(c.at) {
			return kernel.Refuse(jobs.NotFound, "token %s does not exist or has expired", s.Token)
		}
		if !t.Until.IsZero() && s.Until.After(t.Until) {
			s.Until = t.Until
		}
	} else if s.In(s.Tenant) == nil {
		return kernel.Refuse(jobs.Forbidden, "the session has no rights in tenant %s", s.Tenant)
	}
	if !s.Until.After(c.at) {
		return kernel.Invalid("the session would expire at %s: that time has passed", stamp(s.Until))
	}
	c.tx.Put(&s)
	c.audit(c.sessionTarget(&s), nil, sessionFields(&s))
	return nil
}

func (c *change) seen(k kernel.Touch) error {
	s := c.session(k.ID)
	if s == nil || !s.End().After(c.at) || c.at.Sub(s.Seen) < max(s.TouchEvery(), 1) {
		c.effect.Existing = true
		return nil
	}
	now := *s
	now.Seen = c.at
	c.tx.Put(&now)
	return nil
}

func (c *change) signOut(k kernel.SignOut) error {
	s := c.session(k.ID)
	if s == nil {
		c.effect.Existing = true
		return nil
	}
	c.tx.Delete(s.Ref())
	c.audit(c.sessionTarget(s), nil, nil)
	return nil
}

// sessionTarget names a session by its token or its person: its ID changes with each sign-in.
func (c *change) sessionTarget(s *kernel.Session) string {
	if s.Token == "" {
		return "session of " + s.Person.Subject
	}
	if t := c.token(s.Token); t != nil {
		return tokenTarget(t)
	}
	return "token " + s.Token
}

// sessionFields is a person's session in an audit: with the subject in the target, it shows which account used a name.
func sessionFields(s *kernel.Session) fields {
	if s.Token != "" {
		return nil
	}
	r := s.In(s.Tenant)
	f := fields{"role": r.Role}
	if !r.Scope.All() {
		f["scope"] = r.Scope.String()
	}
	if s.Person.Name != "" {
		f["name"] = s.Person.Name
	}
	if s.Person.Email != "" {
		f["email"] = s.Person.Email
	}
	return f
}
