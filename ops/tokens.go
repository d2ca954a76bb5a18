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

// NewToken is a token that should be.
type NewToken struct {
	Name string        // whose it is; the tenant's live tokens have different ones
	Role string        // one of kernel.Roles()
	App  string        // of a worker: the only worker group that it may serve; "" = any
	For  time.Duration // how long it is good; 0 = until it is revoked
}

// Grant makes a token. Its text is answered here and never again.
func (o *Ops) Grant(ctx context.Context, who Who, want NewToken) (*kernel.Token, string, error) {
	text := TokenText(who.tenant())
	t, err := o.Adopt(ctx, who, want, text)
	if err != nil {
		return nil, "", err
	}
	return t, text, nil
}

// TokenText is the text of a token that nobody has yet.
func TokenText(tenant jobs.Tenant) string {
	return tokenPrefix + string(tenant) + "_" + strings.ToLower(rand.Text()[:kernel.TokenIDLen]) + "_" + rand.Text()
}

// Adopt is Grant of a token whose text was made before (by TokenText) and is where it belongs already, such as in a
// file: so that nothing is granted whose text is then lost. The same words twice are one token.
func (o *Ops) Adopt(ctx context.Context, who Who, want NewToken, text string) (*kernel.Token, error) {
	if want.For < 0 || want.For > kernel.MaxDelay {
		return nil, kernel.Invalid("a token is good for %v: it must be between 0, which is until it is revoked, and %v", want.For, kernel.MaxDelay)
	}
	tenant, id, secret, ok := cutToken(text)
	if !ok || tenant != who.tenant() || len(secret) < leastSecret {
		return nil, kernel.Invalid("this is not the text of a token of tenant %s", who.tenant())
	}
	sum := sha256.Sum256([]byte(secret))
	t := kernel.Token{Tenant: tenant, ID: id, Name: want.Name, Role: want.Role, App: want.App, Hash: sum[:]}
	if want.For > 0 {
		t.Until = o.Now().Add(want.For)
	}
	effect, err := o.apply(ctx, who, kernel.Grant{Token: t})
	if err != nil {
		return nil, err
	}
	return effect.Token, nil
}

// leastSecret is how many characters a token's secret has at least: those of crypto/rand.Text, 130 bits.
const leastSecret = 26

// Revoke ends a token, and the sessions that were begun with it. The last one of an admin stays.
func (o *Ops) Revoke(ctx context.Context, who Who, id string) error {
	_, err := o.apply(ctx, who, kernel.Revoke{ID: id})
	return err
}

// Tokens lists the tenant's tokens by name.
func (o *Ops) Tokens(ctx context.Context, who Who) ([]*kernel.Token, error) {
	return o.store.Tokens(ctx, who.tenant())
}

// Audits lists what was changed, newest first. The tenant of the query is that of who asks.
func (o *Ops) Audits(ctx context.Context, who Who, q metastore.AuditQuery) ([]*kernel.Audit, error) {
	if q.Limit < 1 || q.Limit > metastore.MaxPage {
		return nil, kernel.Invalid("page size is %d, it must be between 1 and %d", q.Limit, metastore.MaxPage)
	}
	q.Tenant = who.tenant()
	return o.store.Audits(ctx, q)
}
