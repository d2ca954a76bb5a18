// Package webhook sends an event to a URL, or to a function, when a run has failed for good, a job has paused itself, or due times were
// missed.
//
// It is not promised to programs outside this module.
//
// Where to start: [New]; receivers use [Verify].
//
// Sharp edges: events come from the leader's memory: one can arrive twice, and one that waits when the process dies is
// lost. Each is one POST of JSON, signed if there is a secret, and retried for about two minutes. Redirects are not
// followed, and the environment's proxies are not used, so that only the configuration decides where events go; the URL
// may contain a secret, and is in no log line and no error.
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// MinSecret is the shortest secret, in bytes.
const MinSecret = 16

// Config is the receiver of events. URL or Deliver is required.
type Config struct {
	URL    string // http or https; user and password in it become basic authorization
	Secret []byte // signs events, MinSecret bytes at least; nil = events are not signed
	// Deliver sends an event once, instead of a POST to URL. An error comes with the minimum wait before a retry; negative
	// means that a retry is useless. Address names the receiver in log lines, without secrets.
	Deliver func(context.Context, Event) (wait time.Duration, err error)
	Address string
	// Interval is the minimum interval between two events of one job; later events within it are merged into one at its
	// end, the newest with the number of the others. 0 = no limit.
	Interval time.Duration
	// Page is the address of the pages, to lead to a run; "" = events lead nowhere.
	Page   string
	Logger *slog.Logger // default: discard
}

// Event is what is sent, as JSON.
type Event struct {
	ID     string      `json:"id"`    // the same in retries
	Event  string      `json:"event"` // run.terminated, due.missed or job.paused
	Tenant jobs.Tenant `json:"tenant"`
	Job    jobs.Key    `json:"job"`

	Run     string     `json:"run,omitempty"` // run.terminated only, like the fields below
	Attempt uint32     `json:"attempt,omitempty"`
	Cause   string     `json:"cause,omitempty"` // error, timeout, lost, poison
	Error   string     `json:"error,omitempty"` // shortened to 2 KiB
	Ended   *time.Time `json:"ended,omitempty"`
	URL     string     `json:"url,omitempty"` // of the page of the run, or of the job

	From  *time.Time `json:"from,omitempty"` // of due.missed: the first and the last due time, and how many there are
	To    *time.Time `json:"to,omitempty"`
	Count uint64     `json:"count,omitempty"`

	Reason string `json:"reason,omitempty"` // of job.paused: which runs failed

	More uint64 `json:"more,omitempty"` // further events of the job, within Config.Interval, that are not sent
}

// The limits of waiting events and retries.
const (
	mostWaiting = 1000
	mostJobs    = 10_000 // jobs whose last event is remembered for Config.Interval
	mostError   = 2 << 10
	senders     = 4
	tries       = 7
	firstPause  = time.Second
	mostPause   = time.Minute
	timeout     = 5 * time.Second // of one try
	lastSends   = 2 * time.Second // how long waiting events are sent when the process ends
)

// Stats counts events since the process began.
type Stats struct {
	Sent    uint64 // and accepted
	Failed  uint64 // given up after all tries
	Dropped uint64 // because too many waited
	Waiting int
}

// Poster posts events. It is safe for concurrent use, and only Run blocks.
type Poster struct {
	cfg      Config
	host     string // for log lines
	episodes *episode.Log
	client   *http.Client
	queue    chan Event
	last     time.Duration // lastSends; tests set more

	mu     sync.Mutex
	stats  Stats
	recent map[string]*recent // by tenant and job
	moved  chan struct{}      // an event is held that was not before
}

// recent is a job of which an event was sent within the interval.
type recent struct {
	until time.Time
	held  *Event // the newest event since, or nil
	more  uint64 // and those before it
}

// New returns a poster. Nothing is sent before Run.
func New(c Config) (*Poster, error) {
	to, err := url.Parse(c.URL)
	switch {
	case c.Deliver != nil && c.URL != "":
		return nil, kernel.Invalid("events go to a URL or to Deliver, not to both")
	case c.Deliver == nil && (err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == ""):
		return nil, kernel.Invalid("invalid URL of the webhook: want http or https with a host") // it is not named: it may hold a secret
	case c.Secret != nil && len(c.Secret) < MinSecret:
		return nil, kernel.Invalid("the secret of the webhook has %d bytes: want at least %d", len(c.Secret), MinSecret)
	case c.Interval < 0:
		return nil, kernel.Invalid("invalid interval of the webhook %v: it is negative", c.Interval)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Poster{cfg: c, episodes: episode.New(c.Logger), host: cmp.Or(c.Address, to.Host), queue: make(chan Event, mostWaiting), last: lastSends, recent: map[string]*recent{}, moved: make(chan struct{}, 1),
		client: &http.Client{Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: timeout}).DialContext, MaxIdleConnsPerHost: senders, IdleConnTimeout: time.Minute,
				TLSHandshakeTimeout: timeout, ForceAttemptHTTP2: true}}}, nil
}

// Ended posts an event for a run that is Terminated; other runs are ignored.
func (p *Poster) Ended(run *kernel.Run) {
	if run.State != jobs.Terminated {
		return
	}
	e := Event{ID: fmt.Sprintf("%s-%d", run.ID, run.Attempt), Event: "run.terminated", Tenant: run.Tenant, Job: run.Key, Run: run.ID.String(),
		Attempt: run.Attempt, Cause: string(run.Cause), Error: cut(run.Problem()), Ended: new(run.Ended.UTC())}
	if p.cfg.Page != "" {
		e.URL = p.cfg.Page + "/runs/" + run.ID.String()
	}
	p.take(e)
}

// Missed posts an event for due times that the scheduler could not fire in time; other reasons are ignored.
func (p *Poster) Missed(tenant jobs.Tenant, key jobs.Key, m kernel.Missed) {
	if m.Reason != kernel.MissedLate {
		return
	}
	p.take(Event{ID: kernel.DerivedID(string(tenant), string(key), m.From.UTC().Format(time.RFC3339Nano), m.To.UTC().Format(time.RFC3339Nano)).String(),
		Event: "due.missed", Tenant: tenant, Job: key, From: new(m.From.UTC()), To: new(m.To.UTC()), Count: m.Count})
}

// Paused posts an event for a job that has paused itself because its runs failed; other pauses are ignored.
func (p *Poster) Paused(d *kernel.Definition) {
	if d.Paused == nil || d.Paused.By != kernel.ByItself {
		return
	}
	e := Event{ID: kernel.DerivedID(string(d.Tenant), d.UID.String(), d.Paused.At.UTC().Format(time.RFC3339Nano)).String(),
		Event: "job.paused", Tenant: d.Tenant, Job: d.Key, Reason: d.Paused.Why()}
	if p.cfg.Page != "" {
		e.URL = p.cfg.Page + "/jobs/" + string(d.Key)
	}
	p.take(e)
}

// take queues an event for a sender, or until the end of its job's interval.
func (p *Poster) take(e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg.Interval > 0 {
		name, now := string(e.Tenant)+"/"+string(e.Job), time.Now()
		if t := p.recent[name]; t != nil && now.Before(t.until) {
			if t.held != nil {
				t.more++
			}
			t.held = &e
			if t.more == 0 {
				poke(p.moved)
			}
			return
		}
		if t := p.recent[name]; t != nil && t.held != nil { // its interval has ended, but release has not run since
			e.More = t.more + 1
		}
		if p.recent[name] != nil || len(p.recent) < mostJobs { // beyond the limit, each event is sent
			p.recent[name] = &recent{until: now.Add(p.cfg.Interval)}
			poke(p.moved)
		}
	}
	p.enqueue(e)
}

// enqueue queues an event for a sender, or drops it. The lock is held.
func (p *Poster) enqueue(e Event) {
	select {
	case p.queue <- e:
	default:
		p.stats.Dropped++
		p.episodes.Failed(slog.LevelWarn, "", "webhook events dropped: too many wait", "address", p.host)
	}
}

// release queues events of jobs whose interval has ended, and returns when to run again.
func (p *Poster) release(now time.Time, all bool) (next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, t := range p.recent {
		switch {
		case now.Before(t.until) && !all:
			if next.IsZero() || t.until.Before(next) {
				next = t.until
			}
		case t.held == nil:
			delete(p.recent, name)
		default:
			e := *t.held
			e.More = t.more
			p.enqueue(e)
			*t = recent{until: now.Add(p.cfg.Interval)}
			if next.IsZero() || t.until.Before(next) {
				next = t.until
			}
		}
	}
	return next
}

// Run sends events until ctx ends, and then waiting ones for lastSends.
func (p *Poster) Run(ctx context.Context) {
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ending := make(chan struct{})
	var all sync.WaitGroup
	for range senders {
		all.Go(func() { p.send(sending, ending) })
	}
	p.hold(ctx)
	p.release(time.Now(), true)
	close(ending)
	last := time.AfterFunc(p.last, stop)
	defer last.Stop()
	all.Wait()
	if n := len(p.queue); n > 0 {
		p.cfg.Logger.Warn("webhook events lost: the process is stopping", "address", p.host, "count", n)
	}
	p.client.CloseIdleConnections()
}

// hold releases held events, until ctx ends.
func (p *Poster) hold(ctx context.Context) {
	for {
		var due <-chan time.Time
		if next := p.release(time.Now(), false); !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
		case <-p.moved:
		}
	}
}

// send sends events until ending is closed and none waits, or ctx ends.
func (p *Poster) send(ctx context.Context, ending <-chan struct{}) {
	for {
		select {
		case e := <-p.queue:
			p.deliver(ctx, ending, e)
			continue
		default:
		}
		select {
		case e := <-p.queue:
			p.deliver(ctx, ending, e)
		case <-ending:
			if len(p.queue) == 0 {
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// deliver sends an event, and retries if that may help. A process that is ending tries once.
func (p *Poster) deliver(ctx context.Context, ending <-chan struct{}, e Event) {
	body, err := json.Marshal(e)
	if err != nil {
		p.cfg.Logger.Error("cannot encode webhook event", "key", e.Job, "err", err)
		return
	}
	pause := firstPause
	for try := 1; ; try++ {
		wait, err := p.post(ctx, e, body)
		if err == nil {
			p.count(func(s *Stats) { s.Sent++ })
			return
		}
		if wait < 0 || try == tries || closed(ending) || ctx.Err() != nil {
			p.count(func(s *Stats) { s.Failed++ })
			p.episodes.Failed(slog.LevelWarn, "", "webhook event not delivered", "address", p.host, "tenant", e.Tenant, "key", e.Job, "run", e.Run, "attempts", try, "err", err)
			return
		}
		select {
		case <-time.After(max(pause, min(wait, mostPause))):
		case <-ending:
		}
		pause = min(2*pause, mostPause)
	}
}

// post sends an event once. An error comes with the minimum wait before a retry; negative means that a retry is
// useless.
func (p *Poster) post(ctx context.Context, e Event, body []byte) (wait time.Duration, err error) {
	if p.cfg.Deliver != nil {
		return p.cfg.Deliver(ctx, e)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return -1, errors.New("invalid URL")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "carillon-webhook")
	request.Header.Set("Carillon-Event-Id", e.ID)
	if p.cfg.Secret != nil {
		request.Header.Set(SignatureHeader, Sign(p.cfg.Secret, time.Now(), body))
	}
	answer, err := p.client.Do(request)
	if err != nil {
		if about, ok := errors.AsType[*url.Error](err); ok {
			err = about.Err // without the URL
		}
		return 0, err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection can be reused
	status := answer.StatusCode
	switch {
	case status >= 200 && status < 300:
		return 0, nil
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		after, _ := strconv.Atoi(cmp.Or(answer.Header.Get("Retry-After"), "0"))
		return time.Duration(max(0, min(after, 3600))) * time.Second, fmt.Errorf("the receiver answered %d", status)
	}
	return -1, fmt.Errorf("the receiver answered %d", status)
}

func (p *Poster) count(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}

// Stats returns the counts of events.
func (p *Poster) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Waiting = len(p.queue)
	for _, t := range p.recent {
		if t.held != nil {
			s.Waiting++
		}
	}
	return s
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
