// Package natsbus is the bus on NATS: an external server, or the one in this process (package embedded).
//
// It is not promised to programs outside this module.
//
// All is plain NATS, without JetStream. subjects.go has every subject, permissions.go who may use which.
//
// Where to start: [Connect]. Sharp edges: without a connection nothing is buffered (unless [Config.Buffer] is set) and
// everything returns bus.ErrNoReceiver at once, but a push jobs.Unavailable; what was under way when a connection broke
// ends as jobs.Unknown. A new connection resumes what was served, listened to and accepted.
package natsbus

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// headroom is the part of a message that is left for its headers.
const headroom = 1 << 10

// Config is the identity and the settings of a connection.
type Config struct {
	// As is the identity of this end. On a server with users the user must be allowed to be that one, a worker with its
	// app.
	As bus.Principal
	// Logger gets connection events and malformed messages. Default: none.
	Logger *slog.Logger

	// User and Password, or Token, or a file with credentials: as the server requires. Default: none.
	User, Password, Token, CredentialsFile string
	// TLS secures the connection. Default: as the server demands.
	TLS *tls.Config

	// InProcess is a server in this process. With it, the URL is ignored. An [Insider]'s supplies the credentials
	// itself.
	InProcess Server
	// Way finds the server anew for each connection, for one that moves. With it, the URL is ignored, Connect succeeds
	// without a server, and the way supplies the credentials itself.
	Way Way
	// Retry makes Connect succeed without a server: it is tried until there is one.
	Retry bool
	// Buffer is how many bytes of signals are buffered while the connection is lost. Default: none.
	Buffer int

	pings time.Duration // how often the library asks whether the server is there
}

// Server is a server that can be reached without a network.
type Server interface {
	InProcessConn() (net.Conn, error)
}

// Insider is a server that authenticates its own process by a secret.
type Insider interface {
	Insider() (token string)
}

// Bus is one connection. It is a [bus.Bus].
type Bus struct {
	as       bus.Principal
	log      *slog.Logger
	episodes *episode.Log
	nc       *nats.Conn

	life    context.Context // ends with Close
	end     context.CancelFunc
	link    link
	denials denials
	large   chan struct{} // has an element for each large request under way
	wires   wires
	doubted atomic.Bool // a check of the server runs

	// Answers to what this end asks: those that come to its inbox, and workers' to pushes. Their marks differ, so that a
	// worker that sees the one learns nothing of the other.
	inbox, workers *answers

	malformed atomic.Uint64
}

var _ bus.Bus = (*Bus)(nil)

// Connect connects to a server (or several, with commas: one of them is used, another when it goes). It returns once
// connected, or with the reason why not; with Config.Retry it does not wait. A lost connection is tried again for ever.
func Connect(ctx context.Context, url string, cfg Config) (*Bus, error) {
	b := &Bus{as: cfg.As, log: cfg.Logger, workers: newAnswers(answersTo), large: make(chan struct{}, largeAtOnce)}
	b.inbox = newAnswers(func(mark string) string { return inboxPrefix(cfg.As) + "." + mark + ".*" })
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.episodes = episode.New(b.log)
	b.life, b.end = context.WithCancel(context.Background())
	b.link.fresh()
	if cfg.Way != nil {
		url, cfg.Retry = nats.DefaultURL, true
	}
	nc, err := nats.Connect(url, b.options(ctx, cfg)...)
	if err != nil {
		b.end()
		if cfg.InProcess != nil {
			// A server in this process hangs up without an error if the password is wrong.
			err = fmt.Errorf("%w (is the user right?)", err)
		}
		return nil, fmt.Errorf("connect to NATS: %w", refusedBy(err))
	}
	b.nc = nc
	if !cfg.Retry {
		if err := b.link.wait(ctx, b.life); err != nil {
			_ = b.Close()
			return nil, fmt.Errorf("connect to NATS: %w", err)
		}
	}
	return b, nil
}

func (b *Bus) options(ctx context.Context, cfg Config) []nats.Option {
	timeout := 5 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, max(time.Until(deadline), time.Millisecond))
	}
	b.wires.dialer.Timeout = timeout
	o := []nats.Option{
		nats.SetCustomDialer(&b.wires),
		nats.Name(introduction(cfg.As)),
		nats.Timeout(timeout),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(reconnectDelay),
		nats.IgnoreAuthErrorAbort(), // the password may be put right while we try
		nats.RetryOnFailedConnect(cfg.Retry),
		nats.ReconnectBufSize(cmp.Or(cfg.Buffer, -1)),
		nats.PingInterval(cmp.Or(cfg.pings, 5*time.Second)), // for those that only listen: see wire.go
		nats.ConnectHandler(b.connected),
		nats.ReconnectHandler(b.connected),
		nats.DisconnectErrHandler(b.disconnected),
		nats.ClosedHandler(func(*nats.Conn) { b.end() }),
		nats.ErrorHandler(b.asyncError),
	}
	if inside, ok := cfg.InProcess.(Insider); ok && cfg.User == "" && cfg.Token == "" {
		cfg.Token = inside.Insider()
	}
	if cfg.User != "" {
		o = append(o, nats.UserInfo(cfg.User, cfg.Password))
	}
	if cfg.Token != "" {
		o = append(o, nats.Token(cfg.Token))
	}
	if cfg.CredentialsFile != "" {
		o = append(o, nats.UserCredentials(cfg.CredentialsFile))
	}
	if cfg.TLS != nil {
		o = append(o, nats.Secure(cfg.TLS))
	}
	if cfg.Way != nil {
		b.wires.way = cfg.Way
		return append(o, nats.TokenHandler(b.wires.token), nats.IgnoreDiscoveredServers())
	}
	if cfg.InProcess != nil {
		b.wires.inside = cfg.InProcess
		o = append(o, nats.InProcessServer(&b.wires))
	}
	return o
}

// soonBack is how many quick reconnects there are: for half a second, in which a stopped leader is replaced, and the
// bus of the next one opens.
const soonBack = 10

// reconnectDelay is short at first, since a server that restarts is soon back, and never the same for two. It stays
// well below the few seconds that a standby takes to notice that its leader is gone: until then no leader answers.
func reconnectDelay(attempts int) time.Duration {
	d := min(50*time.Millisecond<<min(max(0, attempts-soonBack), 4), 500*time.Millisecond)
	return d/2 + mathrand.N(d)
}

// Close ends the connection. What waits on it returns bus.ErrClosed; handlers see their context end.
func (b *Bus) Close() error {
	b.end()
	b.episodes.Reset()
	b.link.fall(ended{bus.ErrClosed})
	b.nc.Close()
	return nil
}

// Limit returns the most bytes a push, or the answer to a call, may have. The server decides; most servers have 1 MiB.
func (b *Bus) Limit() int {
	most := int(b.nc.MaxPayload())
	if most <= 0 {
		most = 1 << 20 // no server yet: what most of them have
	}
	return most - headroom
}

// RequestLimit returns the most bytes a request, or the answer to a push, may have.
func (b *Bus) RequestLimit() int { return min(b.Limit(), bus.MaxRequest) }

// outbound returns the most bytes of what this end sends unasked, or as an answer: callers send to the connection of a
// node, which is that of all other callers, too.
func (b *Bus) outbound() int {
	if b.as.Role == bus.Node {
		return b.Limit()
	}
	return b.RequestLimit()
}

// Malformed returns how many malformed messages were dropped.
func (b *Bus) Malformed() uint64 { return b.malformed.Load() }

// senseless counts and logs a malformed message.
func (b *Bus) senseless(subject string, err error) {
	b.malformed.Add(1)
	b.episodes.Failed(slog.LevelWarn, "", "malformed message dropped", "subject", subject, "err", err)
}

// check returns why nothing can be done now: closed, or ctx has ended.
func (b *Bus) check(ctx context.Context) error {
	if b.life.Err() != nil {
		return bus.ErrClosed
	}
	return ctx.Err()
}

// may refuses what belongs to another tenant. A server's permissions do so, too; this is for servers without.
func (b *Bus) may(t jobs.Tenant, what string) error {
	if b.as.Role == bus.Node || b.as.Tenant == t {
		return nil
	}
	return kernel.Refuse(jobs.Forbidden, "%s of tenant %q may not %s tenant %q", b.as.Actor(), b.as.Tenant, what, t)
}

// leads refuses all but nodes.
func (b *Bus) leads(what string) error {
	if b.as.Role == bus.Node {
		return nil
	}
	return kernel.Refuse(jobs.Forbidden, "%s may not %s: nodes may", b.as.Actor(), what)
}

// errNoConnection means that nothing was sent.
var errNoConnection = fmt.Errorf("no connection to NATS: %w", bus.ErrNoReceiver)

// reason returns why an exchange failed, as an error of package bus.
func (b *Bus) reason(ctx context.Context, err error) error {
	var e ended
	switch {
	case b.life.Err() != nil, errors.Is(err, nats.ErrConnectionClosed):
		return bus.ErrClosed
	case errors.As(context.Cause(ctx), &e):
		return e.error
	case ctx.Err() != nil:
		return fmt.Errorf("no answer: %w", ctx.Err())
	case errors.Is(err, nats.ErrNoResponders):
		return bus.ErrNoReceiver
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionReconnecting):
		return errNoConnection
	}
	return err
}
