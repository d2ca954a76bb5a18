package ops

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// NewToken describes a token to create.
type NewToken struct {
	Name string // name of its holder; unique among the tenant's live tokens
	Role string // one of kernel.Roles()
	App  string // of a worker: the only worker group that it may serve; "" = any
	// Scope limits an operator or a client to some jobs.
	Scope kernel.Scope
	For   time.Duration // validity; 0 = until it is revoked
}

// Grant creates a token. Only this call returns its text.
func (o *Ops) Grant(ctx context.Context, who Who, want NewToken) (*kernel.Token, string, error) {
	text := TokenText(who.tenant())
	t, err := o.Adopt(ctx, who, want, text)
	if err != nil {
		return nil, "", err
	}
	return t, text, nil
}

// TokenText returns the text for a new token.
func TokenText(tenant jobs.Tenant) string {
	return kernel.TokenPrefix + string(tenant) + "_" + strings.ToLower(rand.Text()[:kernel.TokenIDLen]) + "_" + rand.Text()
}

// Adopt is Grant of a token whose text was generated before (by TokenText) and is stored already, such as in a file, so
// that the text cannot be lost. Repeating it creates no second token.
func (o *Ops) Adopt(ctx context.Context, who Who, want NewToken, text string) (*kernel.Token, error) {
	t, err := o.tokenOf(who.tenant(), want, text)
	if err != nil {
		return nil, err
	}
	effect, err := o.apply(ctx, who, kernel.Grant{Token: t})
	if err != nil {
		return nil, err
	}
	return effect.Token, nil
}

// tokenOf returns the token of a tenant that has a text.
func (o *Ops) tokenOf(tenant jobs.Tenant, want NewToken, text string) (kernel.Token, error) {
	if want.For < 0 || want.For > kernel.MaxDelay {
		return kernel.Token{}, kernel.Invalid("invalid validity %v of a token: want 0 (until revoked) to %v", want.For, kernel.MaxDelay)
	}
	if err := CheckTokenText(tenant, text); err != nil {
		return kernel.Token{}, err
	}
	tenant, id, secret, _ := kernel.CutToken(text)
	sum := sha256.Sum256([]byte(secret))
	t := kernel.Token{Tenant: tenant, ID: id, Name: want.Name, Role: want.Role, App: want.App, Scope: want.Scope, Hash: sum[:]}
	if want.For > 0 {
		t.Until = o.Now().Add(want.For)
	}
	return t, nil
}

// CheckTokenText returns why a text cannot be that of a tenant's token.
func CheckTokenText(tenant jobs.Tenant, text string) error {
	of, _, secret, ok := kernel.CutToken(text)
	if !ok || of != tenant || len(secret) < leastSecret {
		return kernel.Invalid("invalid token text: want carillon_%s_ID_SECRET, with an ID of %d lower-case letters and digits and a random secret of at least %d letters and digits", tenant, kernel.TokenIDLen, leastSecret)
	}
	return nil
}

// IsToken reports whether a text begins like that of a token.
func IsToken(text string) bool { return strings.HasPrefix(text, kernel.TokenPrefix) }

// leastSecret is the shortest secret of a token: that of crypto/rand.Text, 130 bits.
const leastSecret = 26

// Revoke revokes a token and ends its sessions. The last admin token cannot be revoked.
func (o *Ops) Revoke(ctx context.Context, who Who, id string) error {
	_, err := o.apply(ctx, who, kernel.Revoke{ID: id})
	return err
}

// Tokens lists the tenant's tokens by name.
func (o *Ops) Tokens(ctx context.Context, who Who) ([]*kernel.Token, error) {
	return o.store.Tokens(ctx, who.tenant())
}

// Audits lists the audit, newest first, or oldest first with Since. The tenant of the query is the caller's.
func (o *Ops) Audits(ctx context.Context, who Who, q metastore.AuditQuery) ([]*kernel.Audit, error) {
	if q.Limit < 1 || q.Limit > metastore.MaxPage {
		return nil, kernel.Invalid("invalid page size %d: want 1 to %d", q.Limit, metastore.MaxPage)
	}
	q.Tenant = who.tenant()
	return o.store.Audits(ctx, q)
}

// AuditHead is the end of a tenant's audit.
type AuditHead struct {
	Tenant jobs.Tenant
	N      uint64 // number of the last audit; 0 = there is none
	Hash   []byte // its hash
}

// AuditHead returns the end of the tenant's audit. Lines that end with its hash are complete.
func (o *Ops) AuditHead(ctx context.Context, who Who) (AuditHead, error) {
	g, err := o.store.Global(ctx, who.tenant())
	if err != nil {
		return AuditHead{}, err
	}
	return AuditHead{Tenant: who.tenant(), N: g.Audits, Hash: g.AuditHead}, nil
}
