package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"

	"github.com/carillon-scheduler/carillon/ops"
)

// A store's cursor is a position in a list, and means something else in another list. The API seals it with the tenant,
// the filters and the position, so that a cursor is only accepted for its own list. The key of the seal is derived from
// the store (ops.Seal): all nodes have the same, also after a restart.

const sealLen = 16

// sealed returns a cursor as clients see it; "" stays "".
func (a *API) sealed(ctx context.Context, q *ops.RunFilter, cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	key, err := a.ops.Seal(ctx, who(ctx))
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(append(seal(key, who(ctx), q, cursor), cursor...)), nil
}

// unsealed returns the store's cursor within one that a client sent.
func (a *API) unsealed(ctx context.Context, q *ops.RunFilter, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	key, err := a.ops.Seal(ctx, who(ctx))
	if err != nil {
		return "", err
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil && len(b) > sealLen && hmac.Equal(b[:sealLen], seal(key, who(ctx), q, string(b[sealLen:]))) {
		return string(b[sealLen:]), nil
	}
	return "", problem(http.StatusBadRequest, codeCursor, "the cursor is not of this list, or too old: start again without it",
		Fault{Location: "query.cursor", Message: "send the value of next, with the same filters"})
}

func seal(key []byte, asker ops.Who, q *ops.RunFilter, cursor string) []byte {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%q %q %d %q %s %s %q %d %d %q %q %q %q %q %q", asker.Tenant, q.Job, q.State, q.Worker, q.Parent, q.Batch, q.Origin, q.From.UnixNano(), q.To.UnixNano(), q.Code, q.App, q.Match, q.Tag, q.Args, cursor)
	return mac.Sum(nil)[:sealLen]
}
