// Package webhook tells a URL of yours when a run has ended badly, or due times were missed.
//
// Each event is one POST of JSON, signed if there is a secret, tried again for about two minutes if it is not taken. What
// is told comes from the leading node's memory: an event can arrive twice, and one that waits when the process dies is
// lost. The page and the API know all runs, whatever became of the call.
//
// Where to start: [New]; [Verify] is for those who are called. Sharp edges: redirects are not followed, and proxies of
// the environment are not used, so that nobody else decides where events go; the URL may hold a secret, and is in no
// log line and no error.
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

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// MinSecret is the least length of a secret, in bytes.
const MinSecret = 16

// Config says whom to tell. URL is required.
type Config struct {
	URL    string // http or https; user and password in it become basic authorization
	Secret []byte // signs what is sent, MinSecret bytes at least; nil = it is not signed
	// Interval is how long a job that has been told of is not told of again; what happens to it meanwhile is told as
	// one event afterwards, the newest with the number of the others. 0 = each is told.
	Interval time.Duration
	// Page is the address of the pages, to lead to a run; "" = events lead nowhere.
	Page   string
	Logger *slog.Logger // default: nowhere
}

// Event is what is sent, as JSON.
type Event struct {
	ID     string      `json:"id"`    // the same when it is sent again
	Event  string      `json:"event"` // run.terminated, due.missed or job.paused
	Tenant jobs.Tenant `json:"tenant"`
	Job    jobs.Key    `json:"job"`

	Run     string     `json:"run,omitempty"` // of run.terminated, as what follows
	Attempt uint32     `json:"attempt,omitempty"`
	Cause   string     `json:"cause,omitempty"` // error, timeout, lost, poison
	Error   string     `json:"error,omitempty"` // shortened to 2 KiB
	Ended   *time.Time `json:"ended,omitempty"`
	URL     string     `json:"url,omitempty"` // of the page of the run, or of the job

	From  *time.Time `json:"from,omitempty"` // of due.missed: the first and the last due time, and how many there are
	To    *time.Time `json:"to,omitempty"`
	Count uint64     `json:"count,omitempty"`

	Reason string `json:"reason,omitempty"` // of job.paused: which runs failed

	More uint64 `json:"more,omitempty"` // further events of the job, within Config.Interval, that are not told
}

// The bounds of what waits, and of patience.
const (
	mostWaiting = 1000
	mostJobs    = 10_000 // that are remembered for Config.Interval
	mostError   = 2 << 10
	senders     = 4
	tries       = 7
	firstPause  = time.Second
	mostPause   = time.Minute
	timeout     = 5 * time.Second // of one try
	lastWords   = 5 * time.Second // what waits may take when the process ends
)

// Stats counts events since the process began.
type Stats struct {
	Sent    uint64 // and taken
	Failed  uint64 // given up after all tries
	Dropped uint64 // because too many waited
	Waiting int
}

// Poster posts events. Its methods may be called at the same time, and none but Run waits for anything.
type Poster struct {
	cfg    Config
	host   string // for log lines
	client *http.Client
	queue  chan Event
	last   time.Duration // lastWords; tests give more

	mu    sync.Mutex
	stats Stats
	told  map[string]*told // by tenant and job
	moved chan struct{}    // something is held that was not
}

// told is a job of which an event was sent not long ago.
type told struct {
	until time.Time
	held  *Event // the newest event since, or nil
	more  uint64 // and those before it
}

// New makes a poster. Nothing is sent before Run.
func New(c Config) (*Poster, error) {
	to, err := url.Parse(c.URL)
	switch {
	case err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "":
		return nil, kernel.Invalid("the URL of the webhook must be one of http or https with a host") // it is not named: it may hold a secret
	case c.Secret != nil && len(c.Secret) < MinSecret:
		return nil, kernel.Invalid("the secret of the webhook has %d bytes, it needs %d at least", len(c.Secret), MinSecret)
	case c.Interval < 0:
		return nil, kernel.Invalid("the interval of the webhook is %v, it must not be negative", c.Interval)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Poster{cfg: c, host: to.Host, queue: make(chan Event, mostWaiting), last: lastWords, told: map[string]*told{}, moved: make(chan struct{}, 1),
		client: &http.Client{Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: timeout}).DialContext, MaxIdleConnsPerHost: senders, IdleConnTimeout: time.Minute,
				TLSHandshakeTimeout: timeout, ForceAttemptHTTP2: true}}}, nil
}

// Ended tells of a run that has been Terminated; others are passed over.
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

// Missed tells of due times that passed without a run because nobody could fire them in time; others are passed over.
func (p *Poster) Missed(tenant jobs.Tenant, key jobs.Key, m kernel.Missed) {
	if m.Reason != kernel.MissedLate {
		return
	}
	p.take(Event{ID: kernel.DerivedID(string(tenant), string(key), m.From.UTC().Format(time.RFC3339Nano), m.To.UTC().Format(time.RFC3339Nano)).String(),
		Event: "due.missed", Tenant: tenant, Job: key, From: new(m.From.UTC()), To: new(m.To.UTC()), Count: m.Count})
}

// Paused tells of a job that has paused itself, because its runs failed; others are passed over.
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

// take lets an event wait for a sender, or for the end of its job's interval.
func (p *Poster) take(e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg.Interval > 0 {
		name, now := string(e.Tenant)+"/"+string(e.Job), time.Now()
		if t := p.told[name]; t != nil && now.Before(t.until) {
			if t.held != nil {
				t.more++
			}
			t.held = &e
			if t.more == 0 {
				poke(p.moved)
			}
			return
		}
		if t := p.told[name]; t != nil && t.held != nil { // its time was over, and nobody has looked since
			e.More = t.more + 1
		}
		if p.told[name] != nil || len(p.told) < mostJobs { // beyond, each is told
			p.told[name] = &told{until: now.Add(p.cfg.Interval)}
			poke(p.moved)
		}
	}
	p.enqueue(e)
}

// enqueue lets an event wait for a sender, or drops it. The lock is held.
func (p *Poster) enqueue(e Event) {
	select {
	case p.queue <- e:
	default:
		if p.stats.Dropped++; p.stats.Dropped&(p.stats.Dropped-1) == 0 { // the 1st, 2nd, 4th, 8th ...
			p.cfg.Logger.Warn("webhook events are dropped, because too many wait", "address", p.host, "count", p.stats.Dropped)
		}
	}
}

// release lets events go whose job's interval is over, and says when to look again.
func (p *Poster) release(now time.Time, all bool) (next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, t := range p.told {
		switch {
		case now.Before(t.until) && !all:
			if next.IsZero() || t.until.Before(next) {
				next = t.until
			}
		case t.held == nil:
			delete(p.told, name)
		default:
			e := *t.held
			e.More = t.more
			p.enqueue(e)
			*t = told{until: now.Add(p.cfg.Interval)}
			if next.IsZero() || t.until.Before(next) {
				next = t.until
			}
		}
	}
	return next
}

// Run sends until ctx ends, and then what still waits, for a few seconds.
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
		p.cfg.Logger.Warn("webhook events are lost with the end of the process", "address", p.host, "count", n)
	}
	p.client.CloseIdleConnections()
}

// hold releases what was held, until ctx ends.
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

// deliver tries to send an event, and again if that may help. A process that is ending tries once.
func (p *Poster) deliver(ctx context.Context, ending <-chan struct{}, e Event) {
	body, err := json.Marshal(e)
	if err != nil {
		p.cfg.Logger.Error("webhook event cannot be written", "key", e.Job, "err", err)
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
			p.cfg.Logger.Warn("webhook event was not taken", "address", p.host, "tenant", e.Tenant, "key", e.Job, "run", e.Run, "attempts", try, "err", err)
			return
		}
		select {
		case <-time.After(max(pause, min(wait, mostPause))):
		case <-ending:
		}
		pause = min(2*pause, mostPause)
	}
}

// post sends an event once. An error comes with how long to wait at least before the next try; negative means that
// there is no use in one.
func (p *Poster) post(ctx context.Context, e Event, body []byte) (wait time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return -1, errors.New("the URL cannot be used")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "carillon-webhook")
	request.Header.Set("Carillon-Event-Id", e.ID)
	if p.cfg.Secret != nil {
		request.Header.Set(SignatureHeader, sign(p.cfg.Secret, time.Now(), body))
	}
	answer, err := p.client.Do(request)
	if err != nil {
		if about, ok := errors.AsType[*url.Error](err); ok {
			err = about.Err // without the URL
		}
		return 0, err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection can be used again
	status := answer.StatusCode
	switch {
	case status >= 200 && status < 300:
		return 0, nil
	case status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		after, _ := strconv.Atoi(cmp.Or(answer.Header.Get("Retry-After"), "0"))
		return time.Duration(max(0, min(after, 3600))) * time.Second, fmt.Errorf("the answer was %d", status)
	}
	return -1, fmt.Errorf("the answer was %d", status)
}

func (p *Poster) count(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}

// Stats counts what has become of events.
func (p *Poster) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Waiting = len(p.queue)
	for _, t := range p.told {
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
