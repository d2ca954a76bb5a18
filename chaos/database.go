//go:build linux

package main

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/carillon-scheduler/carillon/chaos/judge"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// database is a database server of ours.
type database struct {
	*sqltest.Server
	url string
}

// raiseSQL starts a database, a NATS server and two control planes, which come to both over wires.
func (s *system) raiseSQL(ctx context.Context) error {
	kind := sqltest.Postgres
	if s.store == mariadb {
		kind = sqltest.MariaDB
	}
	port, err := s.ports.block(1)
	if err != nil {
		return err
	}
	server, err := kind.Serve(at(direct, port))
	if err != nil {
		return err
	}
	s.database = &database{Server: server}
	if s.database.url, err = server.Database("chaos"); err != nil {
		return err
	}
	bus, err := s.ports.block(1)
	if err != nil {
		return err
	}
	s.busURL = "nats://" + at(direct, bus)
	s.bus = &member{kind: judge.Bus, data: filepath.Join(s.dir, "nats")}
	s.bus.process = newProcess(s.dir, "nats", s.programs.nats, nil, "-a", direct, "-p", fmt.Sprint(bus), "-js", "-sd", s.bus.data)
	if err := s.bus.start(); err != nil {
		return err
	}
	go s.supervise(s.bus)
	for i := range 2 {
		n, err := s.newNode(i)
		if err != nil {
			return err
		}
		n.process = &process{name: fmt.Sprintf("n%d", i+1)} // for the names of its wires
		nats, err := s.busFor(n.member, 1, i)
		if err != nil {
			return err
		}
		wire, err := newProxy(n.name+">rows", at(outward(i), port), at(direct, port), nil)
		if err != nil {
			return err
		}
		n.wires = append(n.wires, &end{proxy: wire, rows: true})
		u, err := url.Parse(s.database.url)
		if err != nil {
			return err
		}
		u.Host = at(outward(i), port)
		if err := s.be(ctx, n, "--store", u.String(), "--nats", nats); err != nil {
			return err
		}
	}
	return s.whole(ctx)
}
