package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// Requests that wait or stream end within a second after their token or session was revoked or has expired. Requests
// whose body arrives slowly are checked again when it has arrived.

const (
	stillEvery = 500 * time.Millisecond // how often each of them is checked
	stillFresh = 250 * time.Millisecond // how long a result is reused for others with the same token
)

// whilePermitted ends a context, with a *Problem as its cause, once the sender of a request may not use its route any
// more. An unavailable store ends nothing.
func (a *API) whilePermitted(ctx context.Context, r *http.Request, route string) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	r = r.WithContext(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(stillEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if p := a.still(r, route); p != nil {
				cancel(p)
				return
			}
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

// still returns why the sender of a request may not use its route any more, or nil.
func (a *API) still(r *http.Request, route string) *Problem {
	asker, err := a.who(r.WithContext(metastore.FromCopy(r.Context())))
	switch {
	case errors.Is(err, jobs.Forbidden):
		return a.refuse(r.Context(), err)
	case err != nil:
		return nil
	}
	return a.permit(asker, route)
}

// checkedAgain returns why a request whose body took long must not be served, or nil. Feedback has no sender to check.
func (a *API) checkedAgain(r *http.Request, took time.Duration) *Problem {
	if took < stillEvery || who(r.Context()).Actor == "" {
		return nil
	}
	return a.still(r, a.Route(r))
}

// verdicts caches recent checks, by token or session, so that many streams of one cost one read.
type verdicts struct {
	mu sync.Mutex
	by map[[sha256.Size]byte]verdict
}

type verdict struct {
	who ops.Who
	err error
	at  time.Time
}

const manyVerdicts = 1_000

func (v *verdicts) of(header, cookie string, look func() (ops.Who, error)) (ops.Who, error) {
	key := sha256.Sum256([]byte(header + "\n" + cookie))
	v.mu.Lock()
	last, known := v.by[key]
	v.mu.Unlock()
	now := time.Now()
	if known && now.Sub(last.at) < stillFresh {
		return last.who, last.err
	}
	who, err := look()
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.by) >= manyVerdicts {
		maps.DeleteFunc(v.by, func(_ [sha256.Size]byte, old verdict) bool { return now.Sub(old.at) >= stillFresh })
	}
	if v.by == nil {
		v.by = map[[sha256.Size]byte]verdict{}
	}
	v.by[key] = verdict{who, err, now}
	return who, err
}
