package httpjob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Breaker configures when a target - a host and a port - is paused: after so many calls in a row without an answer, or
// with a gateway's error (502, 503, 504). Runs that would call it are put off until it is tried again, without using up
// retries.
type Breaker struct {
	Off      bool
	After    int           // failures in a row; 0 = 5
	Interval time.Duration // after which failures are forgotten while it is called; 0 = 60 s
	Pause    time.Duration // how long it is paused; 0 = 120 s
	Probes   int           // calls that then must succeed, and the most at the same time; 0 = 1
}

// Defaults of a Breaker.
const (
	breakerAfter    = 5
	breakerInterval = 60 * time.Second
	breakerPause    = 120 * time.Second
	breakerProbes   = 1
)

// maxTargets bounds how many targets are watched.
const maxTargets = 5000

// CodeCircuitOpen is the code of an attempt that was put off because its target is paused.
const CodeCircuitOpen = "circuit_open"

// Circuit is a target that is paused, or being tried again.
type Circuit struct {
	Target string // host:port
	State  string // open, half-open
	Since  time.Time
	Until  time.Time // when it is tried again
}

// circuit is one target.
type circuit struct {
	*gobreaker.TwoStepCircuitBreaker[struct{}]
	mu     sync.Mutex
	opened time.Time // when it was last paused
	used   time.Time
}

// breakers watch all targets.
type breakers struct {
	Breaker
	mu      sync.Mutex
	targets map[string]*circuit
	refused uint64 // calls that were not made
}

func newBreakers(b Breaker) *breakers {
	b.After, b.Probes = cmp.Or(b.After, breakerAfter), cmp.Or(b.Probes, breakerProbes)
	b.Interval, b.Pause = cmp.Or(b.Interval, breakerInterval), cmp.Or(b.Pause, breakerPause)
	return &breakers{Breaker: b, targets: map[string]*circuit{}}
}

// circuitOpen is why a call was not made.
type circuitOpen struct {
	target string
	until  time.Time
	wait   error // a jobs.Snooze
}

func (e *circuitOpen) Error() string {
	return fmt.Sprintf("%s did not answer several times in a row and is paused until %s", e.target, e.until.UTC().Format("2006-01-02 15:04:05 MST"))
}

// Unwrap makes the run wait.
func (e *circuitOpen) Unwrap() error { return e.wait }

// targetOf returns the host and the port of a URL.
func targetOf(to string) string {
	u, err := url.Parse(to)
	if err != nil {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[bool]string{true: "443", false: "80"}[u.Scheme == "https"]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// of returns the circuit of a target.
func (b *breakers) of(target string) *circuit {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.targets[target]
	if c == nil {
		if len(b.targets) >= maxTargets {
			b.forget()
		}
		c = &circuit{}
		c.TwoStepCircuitBreaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
			Name: target, MaxRequests: uint32(b.Probes), Interval: b.Interval, Timeout: b.Pause,
			ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= uint32(b.After) },
			OnStateChange: func(_ string, _, to gobreaker.State) {
				if to == gobreaker.StateOpen {
					c.mu.Lock()
					c.opened = time.Now()
					c.mu.Unlock()
				}
			},
			IsExcluded: func(err error) bool { return errors.Is(err, errNotItsFault) },
		})
		b.targets[target] = c
	}
	c.used = time.Now()
	return c
}

// forget drops targets that answer, the longest unused first. Called with mu held.
func (b *breakers) forget() {
	names := make([]string, 0, len(b.targets))
	for name := range b.targets {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int { return b.targets[x].used.Compare(b.targets[y].used) })
	for _, name := range names[:len(names)/10+1] {
		delete(b.targets, name)
	}
}

// errNotItsFault marks calls whose failure is not the target's.
var errNotItsFault = errors.New("the call was not made, or broken off")

// pass makes a call to a target, unless that is paused.
func (b *breakers) pass(ctx context.Context, to string, call func() (*Answer, error)) (*Answer, error) {
	if b.Off {
		return call()
	}
	target := targetOf(to)
	c := b.of(target)
	done, err := c.Allow()
	if err != nil {
		return nil, b.putOff(c, target, err)
	}
	verdict := errNotItsFault // of a call that panicked, too
	defer func() { done(verdict) }()
	a, err := call()
	verdict = judge(ctx, a, err)
	return a, err
}

// judge returns what a call shows of its target: nil = available, errNotItsFault = nothing, anything else =
// unavailable.
func judge(ctx context.Context, a *Answer, err error) error {
	switch {
	case err == nil && (a.Status == http.StatusBadGateway || a.Status == http.StatusServiceUnavailable || a.Status == http.StatusGatewayTimeout):
		return errors.New("its gateway gets no answer")
	case err == nil:
		return nil
	case errors.Is(err, ErrBlocked), jobs.CodeOf(err) == jobs.BadInput, ctx.Err() != nil:
		return errNotItsFault
	}
	return err
}

// soonest is the least delay of a run: while a target is being tried, it may be back any moment.
const soonest = time.Second

// putOff delays the run until the target is tried again; the delay is spread, so that runs do not return all at once.
func (b *breakers) putOff(c *circuit, target string, why error) error {
	c.mu.Lock()
	until := c.opened.Add(b.Pause)
	c.mu.Unlock()
	now := time.Now()
	if errors.Is(why, gobreaker.ErrTooManyRequests) || until.Before(now.Add(soonest)) {
		until = now.Add(soonest)
	}
	b.mu.Lock()
	b.refused++
	b.mu.Unlock()
	wait := until.Sub(now)
	return &circuitOpen{target: target, until: until, wait: jobs.Snooze(wait + rand.N(wait/10+soonest))}
}

// Circuits returns the targets that are paused, or being tried again, and how many calls were not made so far because
// of that.
func (r *Runner) Circuits() (list []Circuit, refused uint64) {
	b := r.breakers
	b.mu.Lock()
	all := make(map[string]*circuit, len(b.targets))
	for name, c := range b.targets {
		all[name] = c
	}
	refused = b.refused
	b.mu.Unlock()
	for name, c := range all {
		if s := c.State(); s != gobreaker.StateClosed {
			c.mu.Lock()
			list = append(list, Circuit{Target: name, State: s.String(), Since: c.opened, Until: c.opened.Add(b.Pause)})
			c.mu.Unlock()
		}
	}
	slices.SortFunc(list, func(x, y Circuit) int { return cmp.Compare(x.Target, y.Target) })
	return list, refused
}
