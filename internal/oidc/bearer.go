package oidc

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// Access tokens of service accounts. They are verified here, with the provider's keys, and stored nowhere: they end when
// they expire.

const (
	maxBearer = 8 << 10         // bytes: longer texts are not tokens
	keysEvery = 5 * time.Second // shortest interval between two reads of the keys: anyone can send tokens of unknown keys
)

// Bearer reports whether the API accepts access tokens of the provider.
func (p *Provider) Bearer() bool { return p.cfg.Audience != "" }

// Authenticate returns who an access token is about: a JWT of the issuer for Config.Audience. An error of
// jobs.Unavailable means that the provider's keys cannot be read; others are ops.ErrNotKnown, or *ops.NoRights.
func (p *Provider) Authenticate(ctx context.Context, token string) (ops.Identity, error) {
	p.mu.Lock()
	known := p.known
	p.mu.Unlock()
	switch {
	case p.cfg.Audience == "" || len(token) > maxBearer:
		return ops.Identity{}, ops.ErrNotKnown
	case known == nil:
		return ops.Identity{}, p.unavailable()
	}
	verified, err := known.bearers.Verify(ctx, token)
	if _, expired := errors.AsType[*oidc.TokenExpiredError](err); err != nil && !expired && known.keys.failing() {
		return ops.Identity{}, kernel.Refuse(jobs.Unavailable, "the keys of %s cannot be read", p.cfg.Label)
	}
	var all claims
	if err != nil || verified.Claims(&all) != nil {
		return ops.Identity{}, ops.ErrNotKnown
	}
	return p.cfg.identify(all)
}

// paced limits how often keys are read, and remembers whether the last read failed.
type paced struct {
	next http.RoundTripper

	mu     sync.Mutex
	last   time.Time
	failed bool
}

var errPaced = errors.New("the keys were read a moment ago")

func (t *paced) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	if time.Since(t.last) < keysEvery {
		t.mu.Unlock()
		return nil, errPaced
	}
	t.last = time.Now()
	t.mu.Unlock()
	res, err := t.next.RoundTrip(r)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = err != nil || res.StatusCode != http.StatusOK
	return res, err
}

func (t *paced) failing() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}
