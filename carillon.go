package carillon

import (
	"context"
	"fmt"
	"strings"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// Worker is a worker that has its own connection to the bus.
type Worker struct {
	*worker.Worker
	bus bus.Bus
}

// NewWorker connects to a bus and makes a worker there. The url says where, by which token, and whom to trust:
//
//	nats://127.0.0.1:4222                               one that asks nobody
//	tls://carillon_default_..._...@bus.example:4222     a token before the @
//	tls://bus.example:4222?token-file=/run/token        a token in a file, which only its owner may read
//	tls://bus.example:4222?ca=/etc/carillon/ca.pem      certificates that the system does not know
//
// User and password before the @ are for NATS servers with users of their own. Several servers are named with commas
// between them; what is asked for behind the ? of one holds for all. It is an error if none of them answers now; a
// connection that is lost later is taken up again, for as long as it takes. A token goes over nats:// in the clear if
// the server does not insist on TLS; tls:// insists on it.
//
// What an address cannot say (credential files, client certificates, another store) is said by making the parts
// oneself: natsbus.Connect, busstore.New, worker.New.
func NewWorker(url string, cfg worker.Config, js ...jobs.Job) (*Worker, error) {
	as, err := cfg.Principal()
	if err != nil {
		return nil, fmt.Errorf("carillon: %w", err)
	}
	b, err := connect(url, natsbus.Config{As: as, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	heeding := busstore.Heed(b, as)
	w, err := worker.New(cfg, busstore.New(heeding, as), heeding, js...)
	if err != nil {
		_ = b.Close()
		return nil, err
	}
	return &Worker{Worker: w, bus: b}, nil
}

// Run works until ctx ends, drains, and closes the connection. See worker.Worker.Run.
func (w *Worker) Run(ctx context.Context) error {
	defer w.bus.Close()
	return w.Worker.Run(ctx)
}

// Close closes the connection of a worker that is not run.
func (w *Worker) Close() error { return w.bus.Close() }

// Client is a client that has its own connection to the bus.
type Client struct {
	*client.Client
	bus bus.Bus
}

// Dial connects to a bus and makes a client there, for the default tenant. The url is as for NewWorker. The client's
// name is the url's user, if there is one that has a password; otherwise it is "client".
func Dial(url string) (*Client, error) { return DialAs(url, client.Config{}) }

// DialAs is Dial for another tenant or under another name: an Actor "client:shop" is the client "shop" to the
// server.
func DialAs(url string, cfg client.Config) (*Client, error) {
	as := bus.Principal{Tenant: cfg.Tenant, Role: bus.Client, Name: userOf(url)}
	if as.Tenant == "" {
		as.Tenant = jobs.DefaultTenant
	}
	if cfg.Actor != "" {
		as.Name = strings.TrimPrefix(cfg.Actor, string(bus.Client)+":")
	}
	cfg.Actor = as.Actor()
	if err := kernel.CheckName("client name", as.Name); err != nil {
		return nil, fmt.Errorf("carillon: %w", err)
	}
	b, err := connect(url, natsbus.Config{As: as})
	if err != nil {
		return nil, err
	}
	return &Client{Client: client.New(busstore.New(busstore.Heed(b, as), as), b, cfg), bus: b}, nil
}

// Close ends what waits, and the connection.
func (c *Client) Close() error {
	_ = c.Client.Close()
	return c.bus.Close()
}
