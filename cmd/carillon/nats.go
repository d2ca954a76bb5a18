package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The bus: the built-in NATS server, or an external one.

// nats connects to the external NATS server, or starts one here. where is its address for others. connect is nil for
// processes that share a database and no NATS server.
func (p *process) nats() (connect func(context.Context, bus.Principal) (bus.Bus, error), stop func() error, where string, err error) {
	conf := natsbus.Config{Logger: p.log}
	stop, where = func() error { return nil }, withoutUsers(p.cfg.URL)
	if p.cfg.URL == "" {
		server, err := p.startNATS()
		if err != nil {
			return nil, nil, "", err
		}
		p.server = server
		conf.InProcess, stop, where = server, server.Stop, p.where(server)
		if p.cfg.mayStandBy() {
			return nil, stop, where, nil // processes find each other by the database
		}
	} else if err := p.cfg.Login.into(&conf); err != nil {
		return nil, nil, "", err
	}
	connect = func(ctx context.Context, as bus.Principal) (bus.Bus, error) {
		mine := conf
		mine.As = as
		b, err := natsbus.Connect(ctx, p.cfg.URL, mine)
		if err != nil && p.cfg.URL != "" {
			return nil, outside(where, err)
		}
		return b, err
	}
	return connect, stop, where, nil
}

func (p *process) startNATS() (*embedded.Server, error) {
	secure, err := serverTLS(p.cfg.NATSTLS)
	if err != nil {
		return nil, err
	}
	// A listener finds a port that is free; the server then opens it itself.
	free, err := p.listen(p.cfg.NATS, "--nats-addr")
	if err != nil {
		return nil, err
	}
	addr := free.Addr().(*net.TCPAddr)
	if err := free.Close(); err != nil {
		return nil, err
	}
	p.natsAddr = addr.String()
	others, err := p.servers()
	if err != nil {
		return nil, err
	}
	cfg := embedded.Config{Name: p.cfg.Node, Host: addr.IP.String(), Port: addr.Port, Logger: p.log, TLS: secure, Cluster: others, Shut: p.cfg.mayStandBy()}
	if p.cfg.authenticates() {
		cfg.Admit, cfg.Peers, cfg.Denied = p.admit, p.admitPeer, p.denied
	}
	return embedded.Start(cfg)
}

// where returns the address of the built-in NATS server for users.
func (p *process) where(server *embedded.Server) string {
	if !p.cfg.mayStandBy() {
		return server.URL()
	}
	scheme := "nats://"
	if p.cfg.NATSTLS.Cert != "" {
		scheme = "tls://"
	}
	return scheme + p.natsAddr
}

// into reads the files of a login into a connection's settings.
func (l natsLogin) into(conf *natsbus.Config) (err error) {
	if l.User != "" {
		conf.User = l.User
		if conf.Password, err = secretIn(l.PasswordFile); err != nil {
			return err
		}
	}
	if l.TokenFile != "" {
		if conf.Token, err = secretIn(l.TokenFile); err != nil {
			return err
		}
	}
	if l.CredsFile != "" {
		if err := private(l.CredsFile); err != nil {
			return err
		}
		conf.CredentialsFile = l.CredsFile
	}
	if l.CA != "" {
		conf.TLS, err = authorities(l.CA)
	}
	return err
}

// outside explains an error of the connection to an external NATS server.
func outside(where string, err error) error {
	if errors.Is(err, jobs.Forbidden) {
		return fmt.Errorf("NATS server %s: %w; see nats.user, nats.token-file and nats.creds-file", where, err)
	}
	return kernel.Refuse(jobs.Unavailable, "NATS server %s cannot be reached: %v", where, err)
}

// probe refuses an external NATS server beyond loopback that needs no authentication: any client could act as a node.
// It does not check the permissions of users there; `carillon nats-config` prints what they should be.
func (p *process) probe(ctx context.Context) error {
	if p.cfg.URL == "" || p.cfg.Auth == "off" {
		return nil
	}
	var away error
	asked := 0
	for one := range strings.SplitSeq(p.cfg.URL, ",") {
		if u, err := url.Parse(one); err != nil || isLoopback(u.Hostname()) && p.cfg.Auth != "on" {
			continue
		}
		asked++
		switch err := p.connectAnonymously(ctx, withoutUsers(one)); {
		case err == nil:
			return usage("NATS server %s is reachable from other machines without authentication: give it users (see carillon nats-config), "+
				"and set nats.user and nats.password-file", withoutUsers(one))
		case !errors.Is(err, jobs.Forbidden):
			away = errors.Join(away, outside(withoutUsers(one), err))
			asked-- // one of several may be down
		}
	}
	if asked == 0 {
		return away
	}
	return nil
}

// connectAnonymously tries to connect without credentials.
func (p *process) connectAnonymously(ctx context.Context, where string) error {
	conf := natsbus.Config{As: bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: p.cfg.Node}}
	if p.cfg.Login.CA != "" {
		var err error
		if conf.TLS, err = authorities(p.cfg.Login.CA); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	b, err := natsbus.Connect(ctx, where, conf)
	if err != nil {
		return err
	}
	return b.Close()
}
