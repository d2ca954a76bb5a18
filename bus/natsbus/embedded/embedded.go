// Package embedded is a NATS server in this process, set up as the bus wants it: `carillon dev`, small clusters and
// tests need nothing beside. It alone links the server.
//
//	s, err := embedded.Start(embedded.Config{Port: 4222})
//	b, err := natsbus.Connect(ctx, "", natsbus.Config{As: node, InProcess: s})
//
// What its streams hold is in memory: a server that stops has forgotten all offers, and they are made again.
package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/carillon-scheduler/carillon/bus/natsbus"
)

// MaxPayload is the most bytes of a message, if the Config does not say otherwise.
const MaxPayload = 8 << 20

const (
	// memory is the most that all streams may take. Two terms' streams exist side by side for a moment.
	memory = 256 << 20
	disk   = 1 << 30
	// startTime is how long a server may take to start.
	startTime = 10 * time.Second
)

// Config says what the server is like. Its zero value is a server on a free port of this machine, open to all on it.
type Config struct {
	Name string // how it is called in logs. Default: carillon

	Host       string // where it listens. Default: 127.0.0.1
	Port       int    // default: a free one
	DontListen bool   // be reachable in this process only

	// Users are who may connect, and what they may do there. Default: everybody, everything.
	Users []natsbus.Grant

	Dir        string // where JetStream keeps what little it has to. Default: a temporary one
	MaxPayload int    // most bytes of a message. Default: MaxPayload

	// Logger hears what the server says. Default: nobody does.
	Logger *slog.Logger
}

// Server is a running server.
type Server struct {
	nats *server.Server
	temp string // to be removed
}

// Start starts a server. It returns when clients can connect.
func Start(cfg Config) (*Server, error) {
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	s := &Server{}
	if options.StoreDir == "" {
		if s.temp, err = os.MkdirTemp("", "carillon-nats-"); err != nil {
			return nil, fmt.Errorf("start the NATS server: %w", err)
		}
		options.StoreDir = s.temp
	}
	log := &lines{to: cfg.Logger}
	if s.nats, err = server.NewServer(options); err != nil {
		return nil, errors.Join(fmt.Errorf("start the NATS server: %w", err), s.clean())
	}
	s.nats.SetLoggerV2(log, false, false, false)
	s.nats.Start()
	if err := s.ready(log); err != nil {
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
		return nil, errors.Join(fmt.Errorf("start the NATS server: %w", err), s.clean())
	}
	return s, nil
}

// ready returns when clients can connect, or with what the server gave up for: it says that in its log only.
func (s *Server) ready(log *lines) error {
	for deadline := time.Now().Add(startTime); time.Now().Before(deadline); {
		if s.nats.ReadyForConnections(50 * time.Millisecond) {
			if !s.nats.JetStreamEnabled() {
				break
			}
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
		ServerName:             cmp.Or(cfg.Name, "carillon"),
		Host:                   cmp.Or(cfg.Host, "127.0.0.1"),
		Port:                   cmp.Or(cfg.Port, server.RANDOM_PORT),
		DontListen:             cfg.DontListen,
		MaxPayload:             int32(cmp.Or(cfg.MaxPayload, MaxPayload)),
		JetStream:              true,
		JetStreamMaxMemory:     memory,
		JetStreamMaxStore:      disk,
		StoreDir:               cfg.Dir,
		NoSigs:                 true, // signals are for the program, not for a server in it
		NoLog:                  cfg.Logger == nil,
		DisableJetStreamBanner: true,
	}
	for _, g := range cfg.Users {
		if err := g.Check(); err != nil {
			return nil, err
		}
		can := g.Permission()
		o.Users = append(o.Users, &server.User{
			Username: g.User,
			Password: g.Password,
			Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: can.Publish.Allow, Deny: can.Publish.Deny},
				Subscribe: &server.SubjectPermission{Allow: can.Subscribe.Allow, Deny: can.Subscribe.Deny},
			},
		})
	}
	return o, nil
}

// URL is where to connect to, or "" if the server does not listen.
func (s *Server) URL() string {
	addr, ok := s.nats.Addr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	return "nats://" + net.JoinHostPort(addr.IP.String(), strconv.Itoa(addr.Port))
}

// Port is the port the server listens at, or 0.
func (s *Server) Port() int {
	addr, ok := s.nats.Addr().(*net.TCPAddr)
	if !ok {
		return 0
	}
	return addr.Port
}

// InProcessConn is a connection without a network: natsbus.Config.InProcess uses it. With a wrong password it takes
// ten seconds to fail, since both ends of a pipe then write and neither reads.
func (s *Server) InProcessConn() (net.Conn, error) { return s.nats.InProcessConn() }

// Stop stops the server. It returns when nothing of it runs any more. A second Stop does nothing.
func (s *Server) Stop() error {
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
	return s.clean()
}

func (s *Server) clean() error {
	if s.temp == "" {
		return nil
	}
	return os.RemoveAll(s.temp)
}
