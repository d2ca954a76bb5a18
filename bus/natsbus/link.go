package natsbus

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/url"
	"regexp"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// ended is why we ended a context ourselves; a context that ended for the caller's own reasons has no such cause.
type ended struct{ error }

func (e ended) Unwrap() error { return e.error }

// errLost is the result of an exchange whose connection broke: it may have been done.
var errLost = ended{kernel.Refuse(jobs.Unknown, "the connection to NATS was lost before the answer came")}

// link tracks whether there is a connection.
type link struct {
	mu    sync.Mutex
	up    chan struct{}   // closed while there is one
	holds context.Context // ends when it breaks; ended while there is none
	lose  context.CancelCauseFunc
}

func (l *link) fresh() {
	l.up = make(chan struct{})
	l.holds, l.lose = context.WithCancelCause(context.Background())
	l.lose(errLost)
}

func (l *link) rise() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds.Err() != nil {
		l.holds, l.lose = context.WithCancelCause(context.Background())
		close(l.up)
	}
}

func (l *link) fall(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holds.Err() == nil {
		l.lose(why)
		l.up = make(chan struct{})
	}
}

func (l *link) state() (up <-chan struct{}, holds context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up, l.holds
}

func (l *link) connected() bool {
	_, holds := l.state()
	return holds.Err() == nil
}

// wait returns when there is a connection.
func (l *link) wait(ctx, life context.Context) error {
	up, _ := l.state()
	select {
	case <-up:
		return nil
	case <-life.Done():
		return bus.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Bus) connected(nc *nats.Conn) {
	b.link.rise()
	if b.life.Err() != nil {
		b.link.fall(ended{bus.ErrClosed})
		return
	}
	server := withoutUser(nc.ConnectedUrl())
	switch {
	case b.wires.within():
		server = "in this process" // the URL is one that was never dialled
	case b.wires.way != nil:
		server = b.wires.now().RemoteAddr().String()
	}
	b.episodes.End("", "bus disconnected")
	b.log.Info("bus connected", "server", server, "version", nc.ConnectedServerVersion())
}

// withoutUser returns a server's address as it may be shown: a user without a password is a token, too.
func withoutUser(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

func (b *Bus) disconnected(_ *nats.Conn, err error) {
	b.link.fall(errLost)
	level := slog.LevelWarn
	if b.wires.way != nil {
		level = slog.LevelInfo // the server has moved
	}
	if b.life.Err() == nil {
		b.episodes.Began(level, "", "bus disconnected", "err", err)
	}
}

// asyncError logs the server's errors about messages that have no answer.
func (b *Bus) asyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	if subject, denied := deniedSubject(err); denied {
		b.denials.notify(subject)
	}
	if b.wires.way != nil && errors.Is(err, io.ErrClosedPipe) {
		return // the server in this process has closed
	}
	if sub != nil {
		b.episodes.Failed(slog.LevelWarn, sub.Subject, "bus error", "err", err, "subject", sub.Subject)
		return
	}
	b.episodes.Failed(slog.LevelWarn, "", "bus error", "err", err)
}

var violation = regexp.MustCompile(`Permissions Violation for (?:Publish|Subscription) to "(\S+)"`)

// deniedSubject is the subject that the server's permissions refuse to this user, if that is what err reports.
func deniedSubject(err error) (string, bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", false
	}
	m := violation.FindStringSubmatch(err.Error())
	if m == nil {
		return "", false
	}
	return m[1], true
}

func forbidden(subject string) error {
	return kernel.Refuse(jobs.Forbidden, "the NATS server's permissions refuse this user the subject %s", subject)
}

// denials notifies those who wait for an answer that the server has refused their request: it reports that on the side.
type denials struct {
	mu      sync.Mutex
	waiting map[string]map[int]context.CancelCauseFunc
	last    int
}

func (d *denials) watch(subject string, cancel context.CancelCauseFunc) (forget func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting == nil {
		d.waiting = map[string]map[int]context.CancelCauseFunc{}
	}
	w := d.waiting[subject]
	if w == nil {
		w = map[int]context.CancelCauseFunc{}
		d.waiting[subject] = w
	}
	d.last++
	id := d.last
	w[id] = cancel
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if delete(w, id); len(w) == 0 && len(d.waiting[subject]) == 0 {
			delete(d.waiting, subject)
		}
	}
}

func (d *denials) notify(subject string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, cancel := range d.waiting[subject] {
		cancel(ended{forbidden(subject)})
	}
}

// attempt is a context for one exchange on a subject. It ends with ctx, with Close, when the connection breaks, and
// when the server refuses the subject; [Bus.reason] returns which. A missing connection is an end, too.
func (b *Bus) attempt(ctx context.Context, subject string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	_, holds := b.link.state()
	stop := context.AfterFunc(holds, func() { cancel(context.Cause(holds)) })
	forget := b.denials.watch(subject, cancel)
	return ctx, func() {
		stop()
		forget()
		cancel(nil)
	}
}

// lasting returns a context for what continues until ctx ends or the bus is closed.
func (b *Bus) lasting(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(b.life, func() { cancel(bus.ErrClosed) })
	context.AfterFunc(ctx, func() { stop() })
	return ctx, cancel
}
