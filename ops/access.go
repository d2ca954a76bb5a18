package ops

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"slices"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Authentication. A token's text is "carillon_<tenant>_<id>_<secret>" and is shown once; the store keeps the SHA-256 of
// the secret. The secret has 130 random bits, so a slow hash would add only cost.

// ErrNotKnown is the only error for an invalid token or cookie, so that it reveals nothing. It is jobs.Forbidden.
var ErrNotKnown = kernel.Refuse(jobs.Forbidden, "the token is unknown, expired or revoked")

const (
	maxCookie = 300 // bytes: longer texts are no cookies
)

// Authenticate returns the holder of a token.
func (o *Ops) Authenticate(ctx context.Context, token string) (Who, error) {
	t, err := o.holder(ctx, token)
	if err != nil {
		return Who{}, err
	}
	return whoOf(t), nil
}

// Admit returns as whom the holder of a worker or client token may use the bus. The client chooses the name. app is the
// only worker group that a worker may serve, "" for any. The bus knows no jobs, so it cannot limit a client to some.
func (o *Ops) Admit(ctx context.Context, token string) (principal bus.Principal, app string, err error) {
	t, err := o.holder(ctx, token)
	if err != nil {
		return bus.Principal{}, "", err
	}
	switch t.Role {
	case string(bus.Worker):
		return bus.Principal{Tenant: t.Tenant, Role: bus.Worker}, t.App, nil
	case string(bus.Client):
		if !t.Scope.All() {
			return bus.Principal{}, "", &WrongToken{t, "a client that is limited to jobs may use the HTTP API only"}
		}
		return bus.Principal{Tenant: t.Tenant, Role: bus.Client}, "", nil
	}
	return bus.Principal{}, "", ErrNotKnown
}

// Seal returns a key that all nodes of a scheduler share, that survives restarts, and is never shown. The API seals
// values with it that clients send back. It is derived from the oldest token of the tenant; without tokens there is no
// authentication, and nothing is worth forging.
func (o *Ops) Seal(ctx context.Context, who Who) ([]byte, error) {
	list, err := o.store.Tokens(ctx, who.tenant())
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	sum.Write([]byte("carillon seal " + who.tenant()))
	if len(list) > 0 {
		oldest := slices.MinFunc(list, func(a, b *kernel.Token) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
		})
		sum.Write(oldest.Hash)
	}
	return sum.Sum(nil), nil
}

// holder finds the row of a token. Whatever is wrong with it, the error is the same, and takes as long.
func (o *Ops) holder(ctx context.Context, text string) (*kernel.Token, error) {
	tenant, id, secret, ok := kernel.CutToken(text)
	var row *kernel.Token
	if ok {
		t, err := o.store.Token(ctx, tenant, id)
		if err != nil && !errors.Is(err, jobs.NotFound) {
			return nil, err
		}
		row = t
	}
	want := make([]byte, sha256.Size)
	if row != nil {
		want = row.Hash
	}
	sum := sha256.Sum256([]byte(secret))
	if same := subtle.ConstantTimeCompare(sum[:], want) == 1; row == nil || !same || !row.Live(o.Now()) {
		if row == nil {
			return nil, o.unknown(ctx)
		}
		return nil, wrong(row, same)
	}
	return row, nil
}

// unknown returns ErrNotKnown, unless the store is still loading: a token that is not loaded yet is not invalid.
func (o *Ops) unknown(ctx context.Context) error {
	if _, none := o.live.(noLive); !none {
		if err := o.Ready(ctx); err != nil {
			return err
		}
	}
	return ErrNotKnown
}

func whoOf(t *kernel.Token) Who {
	return Who{Tenant: t.Tenant, Actor: kernel.PersonPrefix + t.Name, Role: roleNamed(t.Role), Scope: scoped(t.Scope), App: t.App}
}
