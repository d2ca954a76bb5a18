package api

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// TooMany is the error of a request that exceeds a rate limit. It is a kind of jobs.Exhausted.
type TooMany struct{ After time.Duration }

func (e *TooMany) Error() string { return fmt.Sprintf("too many requests: try again in %v", e.After) }

// Unwrap makes errors.Is(err, jobs.Exhausted) work.
func (e *TooMany) Unwrap() error { return jobs.Exhausted }

// tooMany returns the problem of a request that exceeds a rate limit.
func tooMany(after time.Duration) *Problem {
	p := problem(http.StatusTooManyRequests, codeTooMany, "too many requests: retry after the time in Retry-After")
	p.header = map[string]string{"Retry-After": strconv.Itoa(max(1, int(math.Ceil(after.Seconds()))))}
	return p
}

// Admit counts a request of a token, and refuses it with a [TooMany] beyond 2,000 a second (4,000 at once). The pages
// call it, too, so that a person has one budget for both.
func (a *API) Admit(who ops.Who) error {
	if wait := a.rates.take(string(who.Tenant) + "/" + who.Actor); wait > 0 {
		return &TooMany{After: wait}
	}
	return nil
}

// rates are rate limits by name. The zero value allows nothing.
type rates struct {
	rate  rate.Limit // a second
	burst int        // at once

	mu    sync.Mutex
	of    map[string]*rate.Limiter
	swept time.Time
}

// maxRates is the number of names remembered, so that a client with many addresses cannot fill the memory.
const maxRates = 10_000

// take takes one request from a name's budget. It returns 0, or how long to wait for it.
func (l *rates) take(name string) time.Duration {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.of[name]
	if limiter == nil {
		limiter = rate.NewLimiter(l.rate, l.burst)
		if l.of == nil {
			l.of = map[string]*rate.Limiter{}
		}
		if len(l.of) >= maxRates {
			l.forget(now)
		}
		l.of[name] = limiter
	}
	reserved := limiter.ReserveN(now, 1)
	if wait := reserved.DelayFrom(now); wait > 0 {
		reserved.CancelAt(now)
		return wait
	}
	return 0
}

// forget makes room: it drops names that have their whole burst again, which loses nothing. If there are none, or it
// looked a moment ago, it drops any other name.
func (l *rates) forget(now time.Time) {
	if now.Sub(l.swept) > time.Second {
		l.swept = now
		maps.DeleteFunc(l.of, func(_ string, r *rate.Limiter) bool { return r.TokensAt(now) >= float64(l.burst) })
	}
	for name := range l.of {
		if len(l.of) < maxRates {
			return
		}
		delete(l.of, name)
	}
}
