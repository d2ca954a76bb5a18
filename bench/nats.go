package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
)

// natsEnv holds the address of a process that is a NATS server.
const natsEnv = "CARILLON_BENCH_NATS"

// beNATS is that process.
func beNATS(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	s, err := natsserver.NewServer(&natsserver.Options{Host: host, Port: n, MaxPayload: 8 << 20})
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return nil
}

// count counts pushes, as a listener to all workers' subjects sees them.
func (h *fixture) count() error {
	nc, err := nats.Connect("nats://" + h.nats)
	if err != nil {
		return err
	}
	if _, err := nc.Subscribe("to.>", func(*nats.Msg) { h.pushes.Add(1) }); err != nil {
		return err
	}
	return nc.Flush()
}

// daily are all days.
const daily = "* * *"

// define registers many recurring jobs that are due at all times of the given days, like cron.
func (h *fixture) define(ctx context.Context, n int, days string) error {
	p := bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "bench"}
	b, err := natsbus.Connect(ctx, "nats://"+h.nats, natsbus.Config{As: p})
	if err != nil {
		return err
	}
	defer b.Close()
	store := busstore.New(b, p)
	batch := make([]kernel.Envelope, 0, 1000)
	for i := range n {
		cron := fmt.Sprintf("%d %d %d %s", i%60, i/60%60, i%24, days)
		batch = append(batch, kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: p.Tenant, Actor: p.Actor(), Command: kernel.Register{App: "bench", Worker: "bench",
			Start: true, Job: kernel.Declaration{Key: jobs.Key(fmt.Sprintf("bench.daily-%d", i)), Kind: kernel.Recurring, Code: kernel.Settings{Schedule: &cron}}}})
		if len(batch) == cap(batch) || i == n-1 {
			for _, r := range store.Apply(ctx, batch) {
				if r.Err != nil {
					return r.Err
				}
			}
			batch = batch[:0]
		}
	}
	return nil
}
