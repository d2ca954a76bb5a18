package kernel

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Session is a browser that has signed in: with a token, or at an identity provider. It ends at Until, when it was not
// seen for Idle, by SignOut, and with its token.
type Session struct {
	Tenant  jobs.Tenant
	ID      string        // SHA-256 of the cookie's secret, 64 hex digits
	Token   string        // Token.ID; "" = the person signed in at an identity provider
	Person  Person        // without a token
	Rights  []Rights      // without a token: one for each tenant that the person may use, and of these one for Tenant
	Idle    time.Duration // 0 = no idle limit
	Created time.Time
	Seen    time.Time // last use; up to TouchEvery ago
	Until   time.Time
}

// Person is a person as an identity provider names them.
type Person struct {
	Subject string // unique and never reassigned at that provider
	Name    string
	Email   string
}

// Actor returns the actor of the person's changes.
func (p Person) Actor() string { return PersonPrefix + cmp.Or(p.Name, p.Email, p.Subject) }

// Fit returns the person without a name or e-mail address that a session cannot have.
func (p Person) Fit() Person {
	if !plainName(p.Name, maxPerson) {
		p.Name = ""
	}
	if !plainName(p.Email, maxPerson) {
		p.Email = ""
	}
	return p
}

const maxPerson = 255 // bytes of each part

// Rights are what a person may do in a tenant.
type Rights struct {
	Tenant jobs.Tenant
	Role   string // viewer, operator or admin
	Scope  Scope  // of an operator: the jobs that it may act on
}

// MaxRights is the most tenants of a session.
const MaxRights = 100

// End is when the session ends if it is not seen again.
func (s *Session) End() time.Time {
	if s.Idle > 0 {
		if idle := s.Seen.Add(s.Idle); idle.Before(s.Until) {
			return idle
		}
	}
	return s.Until
}

// TouchEvery is the shortest interval between two changes of Seen: a minute, or a tenth of Idle if that is less. Page
// loads are not commits.
func (s *Session) TouchEvery() time.Duration { return min(time.Minute, s.Idle/10) }

// In returns the rights in a tenant, or nil.
func (s *Session) In(t jobs.Tenant) *Rights {
	if i := slices.IndexFunc(s.Rights, func(r Rights) bool { return r.Tenant == t }); i >= 0 {
		return &s.Rights[i]
	}
	return nil
}

// SignIn creates a session. The store sets its Tenant, Created and Seen, and it ends with its token at the latest.
// Refused as NotFound if the token is revoked or expired.
type SignIn struct{ Session Session }

// Touch notes that a session is in use. An ended or missing session stays as it is, as does one that was seen within
// TouchEvery.
type Touch struct{ ID string }

// SignOut ends a session. Ending a missing one changes nothing.
type SignOut struct{ ID string }

// Verb returns the verb of each command.
func (SignIn) Verb() Verb  { return VerbSignIn }
func (Touch) Verb() Verb   { return VerbTouch }
func (SignOut) Verb() Verb { return VerbSignOut }

// Check validates the session.
func (c SignIn) Check() error {
	s := &c.Session
	if err := checkSessionID(s.ID); err != nil {
		return err
	}
	if s.Until.IsZero() {
		return Invalid("a session needs an end")
	}
	if err := checkTime("end of the session", s.Until); err != nil {
		return err
	}
	if s.Idle < 0 || s.Idle > MaxDelay {
		return Invalid("invalid idle limit %v of a session: want 0 (none) to %v", s.Idle, MaxDelay)
	}
	if s.Token != "" {
		if s.Person != (Person{}) || len(s.Rights) > 0 {
			return Invalid("a session of token %.20q has a person or rights: those of its token apply", s.Token)
		}
		return checkTokenID(s.Token)
	}
	return cmp.Or(s.Person.check(), checkRights(s.Rights))
}

func (p Person) check() error {
	for _, part := range []struct {
		name, text string
		must       bool
	}{{"subject", p.Subject, true}, {"name", p.Name, false}, {"e-mail", p.Email, false}} {
		if (part.must || part.text != "") && !plainName(part.text, maxPerson) {
			return Invalid("invalid %s %.300q of a person: want 1 to %d bytes without control characters", part.name, part.text, maxPerson)
		}
	}
	return nil
}

func checkRights(list []Rights) error {
	if len(list) == 0 || len(list) > MaxRights {
		return Invalid("a session has rights in %d tenants: want 1 to %d", len(list), MaxRights)
	}
	seen := map[jobs.Tenant]bool{}
	for _, r := range list {
		if err := CheckName("tenant", string(r.Tenant)); err != nil {
			return err
		}
		if seen[r.Tenant] {
			return Invalid("a session has two roles in tenant %s", r.Tenant)
		}
		seen[r.Tenant] = true
		if r.Role != RoleViewer && r.Role != RoleOperator && r.Role != RoleAdmin {
			return Invalid("invalid role %.40q of a session: want one of %s, %s, %s", r.Role, RoleViewer, RoleOperator, RoleAdmin)
		}
		if err := r.Scope.Check(r.Role); err != nil {
			return err
		}
	}
	return nil
}

// Check validates the ID.
func (c Touch) Check() error { return checkSessionID(c.ID) }

// Check validates the ID.
func (c SignOut) Check() error { return checkSessionID(c.ID) }

func checkSessionID(id string) error {
	if _, err := hex.DecodeString(id); err != nil || len(id) != 64 || id != strings.ToLower(id) {
		return Invalid("invalid session id %.80q: want a SHA-256 of 64 lower-case hex digits", id)
	}
	return nil
}

// SessionRef returns the reference of a session.
func SessionRef(t jobs.Tenant, id string) Ref { return Ref{Kind: RowSession, Tenant: t, Name: id} }

// Ref returns the reference of the session.
func (s *Session) Ref() Ref { return SessionRef(s.Tenant, s.ID) }

func wireSession(c *coder, s *Session) {
	text(c, &s.Tenant)
	text(c, &s.ID)
	text(c, &s.Token)
	text(c, &s.Person.Subject)
	text(c, &s.Person.Name)
	text(c, &s.Person.Email)
	list(c, &s.Rights, 5, wireRights)
	wireDuration(c, &s.Idle)
	c.time(&s.Created)
	c.time(&s.Seen)
	c.time(&s.Until)
}

func wireRights(c *coder, r *Rights) {
	text(c, &r.Tenant)
	text(c, &r.Role)
	wireScope(c, &r.Scope)
}
