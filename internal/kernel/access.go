package kernel

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/jobs"
)

// The roles of a token. A viewer reads, an operator also runs and stops, an admin also decides who may; they are for
// people and their tools. A worker and a client are let in on the bus alone.
const (
	RoleViewer   = "viewer"
	RoleOperator = "operator"
	RoleAdmin    = "admin"
	RoleWorker   = "worker"
	RoleClient   = "client"
)

// Roles are the roles that a token may have.
func Roles() []string { return []string{RoleViewer, RoleOperator, RoleAdmin, RoleWorker, RoleClient} }

// TokenIDLen is the length of Token.ID.
const TokenIDLen = 8

// Token lets somebody in. Its secret is shown once and never kept; only the SHA-256 of it is.
type Token struct {
	Tenant  jobs.Tenant
	ID      string // 8 of a-z 0-9
	Name    string // what people call it; no two live tokens of a tenant have the same
	Role    string
	App     string // of a worker's token: the app it is for; "" = any
	Hash    []byte // SHA-256 of the secret, 32 bytes
	By      string // who granted it
	Created time.Time
	Until   time.Time // zero = for ever
}

// Live says that the token lets in at a time.
func (t *Token) Live(at time.Time) bool { return t.Until.IsZero() || t.Until.After(at) }

// Master says that the token is an admin's and has no end. A tenant that has had one keeps one, so that nobody locks
// himself out.
func (t *Token) Master() bool { return t.Role == RoleAdmin && t.Until.IsZero() }

// Same says that two tokens were granted with the same words.
func (t *Token) Same(o *Token) bool {
	return t.ID == o.ID && t.Name == o.Name && t.Role == o.Role && t.App == o.App && bytes.Equal(t.Hash, o.Hash) && t.Until.Equal(o.Until)
}

// Session is a browser that has signed in with a token. It is worth nothing once the token is gone.
type Session struct {
	Tenant  jobs.Tenant
	ID      string // SHA-256 of the cookie's secret, 64 hex digits
	Token   string // Token.ID
	Created time.Time
	Until   time.Time
}

// Grant makes a token. Tenant, By and Created of it are set by the store. Refused as Conflict if a live token has its
// name, or if its ID is taken.
type Grant struct{ Token Token }

// Revoke ends a token, and with it the sessions that came in by it. The last admin's token without an end stays:
// Conflict. To revoke what is gone, or never was, changes nothing.
type Revoke struct{ ID string }

// SignIn makes a session. Tenant and Created of it are set by the store, and it ends with its token at the latest.
// Refused as NotFound if the token is gone or its time is over.
type SignIn struct{ Session Session }

// SignOut ends a session. To end one that is gone changes nothing.
type SignOut struct{ ID string }

// Verb of each command.
func (Grant) Verb() Verb   { return VerbGrant }
func (Revoke) Verb() Verb  { return VerbRevoke }
func (SignIn) Verb() Verb  { return VerbSignIn }
func (SignOut) Verb() Verb { return VerbSignOut }

// Check says what is wrong with the token.
func (c Grant) Check() error {
	t := &c.Token
	if err := checkTokenID(t.ID); err != nil {
		return err
	}
	if t.Name == "" || len(t.Name) > 100 || !utf8.ValidString(t.Name) || strings.ContainsFunc(t.Name, unicode.IsControl) {
		return Invalid("token name %.120q: a name has 1 to 100 bytes and no control characters", t.Name)
	}
	if !slices.Contains(Roles(), t.Role) {
		return Invalid("role %.40q is none of %s", t.Role, strings.Join(Roles(), ", "))
	}
	if t.App != "" {
		if t.Role != RoleWorker {
			return Invalid("app %.60q: only a worker's token is for an app, this one is for a %s", t.App, t.Role)
		}
		if err := CheckName("app", t.App); err != nil {
			return err
		}
	}
	if len(t.Hash) != 32 {
		return Invalid("token %s: its hash has %d bytes, SHA-256 has 32", t.ID, len(t.Hash))
	}
	return checkTime("end of the token", t.Until)
}

// Check says what is wrong with the ID.
func (c Revoke) Check() error { return checkTokenID(c.ID) }

// Check says what is wrong with the session.
func (c SignIn) Check() error {
	if err := checkSessionID(c.Session.ID); err != nil {
		return err
	}
	if c.Session.Until.IsZero() {
		return Invalid("a session has an end")
	}
	if err := checkTime("end of the session", c.Session.Until); err != nil {
		return err
	}
	return checkTokenID(c.Session.Token)
}

// Check says what is wrong with the ID.
func (c SignOut) Check() error { return checkSessionID(c.ID) }

func checkTokenID(id string) error {
	if len(id) != TokenIDLen || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return Invalid("token id %.20q is not %d characters of a-z 0-9", id, TokenIDLen)
	}
	return nil
}

func checkSessionID(id string) error {
	if _, err := hex.DecodeString(id); err != nil || len(id) != 64 || id != strings.ToLower(id) {
		return Invalid("session id %.80q is not a SHA-256 of 64 lower-case hex digits", id)
	}
	return nil
}

// TokenRef points to a token.
func TokenRef(t jobs.Tenant, id string) Ref { return Ref{Kind: RowToken, Tenant: t, Name: id} }

// SessionRef points to a session.
func SessionRef(t jobs.Tenant, id string) Ref { return Ref{Kind: RowSession, Tenant: t, Name: id} }

// Ref points to the token.
func (t *Token) Ref() Ref { return TokenRef(t.Tenant, t.ID) }

// Ref points to the session.
func (s *Session) Ref() Ref { return SessionRef(s.Tenant, s.ID) }

// TokenName is the name under which a token holds its name: a unique key that lapses with the token.
func TokenName(name string) string { return "token/" + name }

// TokenKey stands for a token in a unique key.
func TokenKey(id string) jobs.ID { return DerivedID("token", id) }

func wireToken(c *coder, t *Token) {
	text(c, &t.Tenant)
	text(c, &t.ID)
	text(c, &t.Name)
	text(c, &t.Role)
	text(c, &t.App)
	bytesOf(c, &t.Hash)
	text(c, &t.By)
	c.time(&t.Created)
	c.time(&t.Until)
}

func wireSession(c *coder, s *Session) {
	text(c, &s.Tenant)
	text(c, &s.ID)
	text(c, &s.Token)
	c.time(&s.Created)
	c.time(&s.Until)
}
