// Package embedded is a NATS server in this process, set up for the bus: `carillon dev`, small clusters and tests need
// nothing else. Only this package links the server.
//
// It is not promised to programs outside this module.
//
//	s, err := embedded.Start(embedded.Config{Port: 4222})
//	b, err := natsbus.Connect(ctx, "", natsbus.Config{As: node, InProcess: s})
//
// It stores nothing and runs no JetStream.
package embedded

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// MaxPayload is the default for the most bytes of a message.
const MaxPayload = 8 << 20

const (
	// maxPending is how many bytes the server stores for a connection that reads more slowly than others send to it;
	// beyond, it closes it. It fits the large requests that 128 connections may have under way (natsbus/load.go).
	maxPending = 512 << 20
	// maxSubs is how many subscriptions a connection may have. Ours have some tens; each costs a kilobyte.
	maxSubs = 4096
	// firstWord is how long a server with TLS that is one of several waits for a client to begin it, before it greets.
	firstWord = 50 * time.Millisecond
	// startTime is how long a server may take to start.
	startTime = 10 * time.Second
)

// Config configures the server. Its zero value is a server on a free port of this machine, open to all on it.
type Config struct {
	Name string // in logs. Default: carillon

	Host       string // where it listens. Default: 127.0.0.1
	Port       int    // default: a free one
	DontListen bool   // be reachable in this process only
	// Shut makes the server listen only between Unlock and Lock: for one of several servers of which one is open at a
	// time. Before, it can be reached in this process.
	Shut bool

	// Users are who may connect, and what they may do there. Default: no authentication, all permissions.
	Users []natsbus.Grant
	// Admit authenticates by tokens instead, beside the connections of this process. A connection gets its principal's
	// permissions, and is closed within a second when its token is revoked or expires. Not together with Users.
	Admit Admit
	// Peers authenticates the tokens of other processes that are nodes as this one is (natsbus.Place.Token), with errors
	// as of Admit. Such a connection may do all, and is closed as others are. Only with Admit. Default: there are none.
	Peers func(ctx context.Context, token string) error
	// Denied is called when a token is refused that a connection from an address gave. Default: it is only logged.
	Denied func(from string, err error)
	// TLS secures the connections over the network, and is then required. Default: no TLS. A client may begin it at
	// once, before the server says a word.
	TLS *tls.Config

	// Cluster joins the server with those of other nodes. Default: it is alone.
	Cluster Cluster

	MaxPayload int // most bytes of a message. Default: MaxPayload

	// Logger gets the server's log. Default: none.
	Logger *slog.Logger
}

// Server is a running server.
type Server struct {
	options *server.Options
	cluster Cluster
	log     *lines
	tls     *tls.Config // nil = none

	verifier verifier // of other servers; unused without TLS between them

	authenticator *authenticator // nil = none
	entered       atomic.Int64   // when InProcessConn was called last; Unix nanoseconds
	stop          func()         // ends the checks of tokens
	idle          sync.WaitGroup

	turn sync.Mutex // of Lock, Unlock and Stop
	nats atomic.Pointer[server.Server]
}

// Start starts a server. It returns when clients can connect.
func Start(cfg Config) (*Server, error) {
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	s := &Server{}
	if cfg.Admit != nil {
		s.authenticator = newAuthenticator(cfg.Admit, cfg.Logger, &s.nats)
		s.authenticator.peers, s.authenticator.denied = cfg.Peers, cfg.Denied
		options.CustomClientAuthentication = s.authenticator
		options.AuthTimeout = authTimeout.Seconds()
	}
	if options.Cluster.TLSConfig != nil {
		options.Cluster.TLSConfig = s.verifier.remembering(options.Cluster.TLSConfig)
	}
	s.tls = cfg.TLS
	s.options, s.cluster, s.log = options, cfg.Cluster, newLines(cfg.Logger, cfg.Admit != nil)
	if err := s.run(); err != nil {
		return nil, err
	}
	s.guard()
	return s, nil
}

// run runs a server with these options.
func (s *Server) run() error {
	n, err := server.NewServer(s.options.Clone())
	if err != nil {
		return fmt.Errorf("start the NATS server: %w", err)
	}
	s.nats.Store(n)
	n.SetLoggerV2(s.log, false, false, false)
	n.Start()
	if err := s.ready(); err != nil {
		n.Shutdown()
		n.WaitForShutdown()
		return fmt.Errorf("start the NATS server: %w", err)
	}
	return nil
}

// Unlock makes a server listen that was started shut.
func (s *Server) Unlock() error {
	s.turn.Lock()
	defer s.turn.Unlock()
	n := s.nats.Load()
	if n.Addr() != nil {
		return nil
	}
	n.AcceptLoop(make(chan struct{}))
	if n.Addr() == nil {
		return fmt.Errorf("open the NATS server: %w", cmp.Or(s.log.worst(), errors.New("it does not listen")))
	}
	return nil
}

// Lock ends all connections and stops listening. Those of this process find the server again at once.
func (s *Server) Lock() error {
	s.turn.Lock()
	defer s.turn.Unlock()
	n := s.nats.Load()
	if n.Addr() == nil {
		return nil
	}
	n.Shutdown()
	n.WaitForShutdown()
	if s.authenticator != nil {
		s.authenticator.clear()
	}
	return s.run()
}

// guard watches the sessions, the routes and the senders for as long as the server runs.
func (s *Server) guard() {
	end := make(chan struct{})
	s.stop = sync.OnceFunc(func() { close(end) })
	if s.authenticator != nil {
		s.idle.Go(func() { s.authenticator.watch(end) })
	}
	s.idle.Go(func() { s.watchFloods(end) })
	if s.cluster.TLS != nil {
		s.idle.Go(func() { s.verifyRoutes(end) })
	}
}

// Insider returns the token of our own process: natsbus.Insider.
func (s *Server) Insider() (token string) {
	if s.authenticator == nil {
		return ""
	}
	return s.authenticator.secret
}

// ready returns when clients can connect, or with the reason why the server gave up, which is only in its log.
func (s *Server) ready() error {
	n, log := s.nats.Load(), s.log
	for deadline := time.Now().Add(startTime); time.Now().Before(deadline); {
		if n.ReadyForConnections(50 * time.Millisecond) {
			return nil
		}
		if err := log.worst(); err != nil {
			return err
		}
	}
	return cmp.Or(log.worst(), errors.New("it is not ready in time"))
}

func (cfg Config) options() (*server.Options, error) {
	o := &server.Options{
		ServerName: cmp.Or(cfg.Name, "carillon"),
		Host:       cmp.Or(cfg.Host, "127.0.0.1"),
		Port:       cmp.Or(cfg.Port, server.RANDOM_PORT),
		DontListen: cfg.DontListen || cfg.Shut,
		MaxPayload: int32(cmp.Or(cfg.MaxPayload, MaxPayload)),
		MaxPending: maxPending,
		MaxSubs:    maxSubs,
		NoSigs:     true, // signals are for the program, not for a server in it
		NoLog:      cfg.Logger == nil,
	}
	if cfg.Admit != nil && len(cfg.Users) > 0 {
		return nil, kernel.Invalid("both users and tokens are configured: a server authenticates by one of them")
	}
	if cfg.TLS != nil {
		o.TLSConfig, o.TLS, o.TLSTimeout = cfg.TLS, true, 5
		o.TLSHandshakeFirst, o.TLSHandshakeFirstFallback = cfg.Shut, firstWord
	}
	if !cfg.Cluster.alone() {
		if err := cfg.Cluster.into(o); err != nil {
			return nil, err
		}
	}
	for _, g := range cfg.Users {
		if err := g.Check(); err != nil {
			return nil, err
		}
		o.Users = append(o.Users, &server.User{Username: g.User, Password: g.Password, Permissions: permissions(g.Permission())})
	}
	return o, nil
}

// URL returns where to connect to, or "" if the server does not listen.
func (s *Server) URL() string {
	addr, ok := s.nats.Load().Addr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	scheme := "nats://"
	if s.tls != nil {
		scheme = "tls://"
	}
	return scheme + net.JoinHostPort(addr.IP.String(), strconv.Itoa(addr.Port))
}

// Port returns the port the server listens at, or 0.
func (s *Server) Port() int {
	addr, ok := s.nats.Load().Addr().(*net.TCPAddr)
	if !ok {
		return 0
	}
	return addr.Port
}

// InProcessConn returns a connection without a network: natsbus.Config.InProcess uses it. With a wrong password it
// takes ten seconds to fail, since both ends of a pipe then write and neither reads.
func (s *Server) InProcessConn() (net.Conn, error) {
	s.entered.Store(time.Now().UnixNano())
	return s.nats.Load().InProcessConn()
}

// Stop stops the server. It returns when nothing of it runs any more. A second Stop does nothing.
func (s *Server) Stop() error {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.stop()
	s.idle.Wait()
	n := s.nats.Load()
	n.Shutdown()
	n.WaitForShutdown()
	return nil
}
