package kernel

import (
	"bytes"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/carillon-scheduler/carillon/jobs"
)

// The roles of a token. A viewer reads, an operator also starts and cancels runs, an admin also manages jobs and
// tokens; they are for people and their tools. A worker runs jobs and a client starts runs, over the bus or HTTP.
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

// The text of a token is TokenPrefix, then its tenant, ID and secret with underscores between them.
const (
	TokenPrefix  = "carillon_"
	MaxTokenText = 300 // bytes: longer texts are no tokens
)

// Token is a token without its secret: that is shown once and never stored; only its SHA-256 is.
type Token struct {
	Tenant  jobs.Tenant
	ID      string // 8 of a-z 0-9
	Name    string // unique among the live tokens of a tenant
	Role    string
	App     string // of a worker's token: the app it is for; "" = any
	Scope   Scope  // of an operator's or a client's token: the jobs it may act on
	Hash    []byte // SHA-256 of the secret, 32 bytes
	By      string // who granted it
	Created time.Time
	Until   time.Time // zero = for ever
}

// Live reports whether the token is valid at a time.
func (t *Token) Live(at time.Time) bool { return t.Until.IsZero() || t.Until.After(at) }

// Master reports whether the token is an admin's and never expires. A tenant that has had one keeps one, so that it
// cannot lock itself out.
func (t *Token) Master() bool { return t.Role == RoleAdmin && t.Until.IsZero() }

// Same reports whether two tokens were granted by equal requests.
func (t *Token) Same(o *Token) bool {
	return t.ID == o.ID && t.Name == o.Name && t.Role == o.Role && t.App == o.App && t.Scope.Same(&o.Scope) && bytes.Equal(t.Hash, o.Hash) && t.Until.Equal(o.Until)
}

// Grant creates a token. The store sets its Tenant, By and Created. Refused as Conflict if a live token has its name,
// or if its ID is taken.
type Grant struct{ Token Token }

// Revoke revokes a token and ends its sessions. The last admin token that never expires stays: Conflict. Revoking a
// missing token changes nothing.
type Revoke struct{ ID string }

// Verb returns the verb of each command.
func (Grant) Verb() Verb  { return VerbGrant }
func (Revoke) Verb() Verb { return VerbRevoke }

// Check validates the token.
func (c Grant) Check() error {
	t := &c.Token
	if err := checkTokenID(t.ID); err != nil {
		return err
	}
	if !plainName(t.Name, 100) {
		return Invalid("invalid token name %.120q: want 1 to 100 bytes without control characters", t.Name)
	}
	if !slices.Contains(Roles(), t.Role) {
		return Invalid("invalid role %.40q: want one of %s", t.Role, strings.Join(Roles(), ", "))
	}
	if t.App != "" {
		if t.Role != RoleWorker {
			return Invalid("app %.60q: only a worker's token is for an app, this one is for a %s", t.App, t.Role)
		}
		if err := CheckName("app", t.App); err != nil {
			return err
		}
	}
	if err := t.Scope.Check(t.Role); err != nil {
		return err
	}
	if len(t.Hash) != 32 {
		return Invalid("token %s: the hash has %d bytes: want the 32 of SHA-256", t.ID, len(t.Hash))
	}
	return checkTime("end of the token", t.Until)
}

// Check validates the ID.
func (c Revoke) Check() error { return checkTokenID(c.ID) }

// plainName reports whether a text has 1 to most bytes of UTF-8 and no control characters.
func plainName(text string, most int) bool {
	return text != "" && len(text) <= most && !strings.ContainsFunc(text, unicode.IsControl)
}

// CutToken parses a token's text. Only the tenant's name may contain underscores.
func CutToken(text string) (tenant jobs.Tenant, id, secret string, ok bool) {
	rest, found := strings.CutPrefix(text, TokenPrefix)
	i := strings.LastIndexByte(rest, '_')
	if !found || i < 0 || len(text) > MaxTokenText {
		return "", "", "", false
	}
	rest, secret = rest[:i], rest[i+1:]
	if i = strings.LastIndexByte(rest, '_'); i < 0 {
		return "", "", "", false
	}
	tenant, id = jobs.Tenant(rest[:i]), rest[i+1:]
	// What cannot be an ID is not looked up: a database would return an error instead of no row.
	return tenant, id, secret, Revoke{ID: id}.Check() == nil && CheckName("tenant", string(tenant)) == nil
}

func checkTokenID(id string) error {
	if len(id) != TokenIDLen || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return Invalid("invalid token id %.20q: want %d characters of a-z 0-9", id, TokenIDLen)
	}
	return nil
}

// TokenRef returns the reference of a token.
func TokenRef(t jobs.Tenant, id string) Ref { return Ref{Kind: RowToken, Tenant: t, Name: id} }

// Ref returns the reference of the token.
func (t *Token) Ref() Ref { return TokenRef(t.Tenant, t.ID) }

// TokenName returns the unique key that reserves a token's name; it expires with the token.
func TokenName(name string) string { return "token/" + name }

// TokenKey returns the ID of a token in a unique key.
func TokenKey(id string) jobs.ID { return DerivedID("token", id) }

func wireToken(c *coder, t *Token) {
	text(c, &t.Tenant)
	text(c, &t.ID)
	text(c, &t.Name)
	text(c, &t.Role)
	text(c, &t.App)
	wireScope(c, &t.Scope)
	bytesOf(c, &t.Hash)
	text(c, &t.By)
	c.time(&t.Created)
	c.time(&t.Until)
}
