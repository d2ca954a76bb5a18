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

// TooMany is why a request is refused that comes too soon after others. It is a kind of jobs.Exhausted.
type TooMany struct{ After time.Duration }

func (e *TooMany) Error() string { return fmt.Sprintf("too many requests: try again in %v", e.After) }

// Unwrap makes errors.Is(err, jobs.Exhausted) work.
func (e *TooMany) Unwrap() error { return jobs.Exhausted }

// tooMany is the problem of coming too soon.
func tooMany(after time.Duration) *Problem {
	p := problem(http.StatusTooManyRequests, codeTooMany, "too many requests: wait as long as Retry-After says")
	p.header = map[string]string{"Retry-After": strconv.Itoa(max(1, int(math.Ceil(after.Seconds()))))}
	return p
}

// Admit counts a request of a token, and refuses it with a [TooMany] beyond 2,000 a second (4,000 at once). The pages ask
// it, too, so a person has one budget for both.
func (a *API) Admit(who ops.Who) error {
	if wait := a.rates.take(string(who.Tenant) + "/" + who.Actor); wait > 0 {
		return &TooMany{After: wait}
	}
	return nil
}

// rates are rates by name. The zero value allows nothing.
type rates struct {
	rate  rate.Limit // a second
	burst int        // at once

	mu    sync.Mutex
	of    map[string]*rate.Limiter
	swept time.Time
}

// maxRates is how many names are remembered. A stranger with many addresses must not fill the memory.
const maxRates = 10_000

// take takes one, and answers 0, or how long it would have to wait for it.
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

// forget makes room: names that have been quiet long enough to have their whole burst again are as good as unknown.
// If there are none, or they were looked for a moment ago, some other name goes.
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
