package carillon

import (
	"cmp"
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

// Worker is a worker with its own connection.
type Worker struct {
	*worker.Worker
	client *client.Client
}

// NewWorker connects to a server and makes a worker. The URL has the address, the token and the certificates to trust:
//
//	nats://127.0.0.1:4222                               without authentication
//	tls://carillon_default_..._...@bus.example:4222     a token before the @
//	tls://bus.example:4222?token-file=/run/token        a token in a file that only its owner can read
//	tls://bus.example:4222?ca=/etc/carillon/ca.pem      certificates that the system does not trust
//
// For a NATS server with its own users, put user and password before the @. Commas separate the URLs of several
// servers; a parameter of one applies to all. NewWorker returns an error if no server answers now; a connection that is
// lost later is restored without a time limit. Over nats://, a token is sent in plain text unless the server requires
// TLS; tls:// always uses TLS.
//
// The tenant is that of the token, unless cfg names one; without a token, the default one.
//
// For credential files and client certificates, make the parts yourself: natsbus.Connect, busstore.New, worker.New.
func NewWorker(url string, cfg worker.Config, js ...jobs.Job) (*Worker, error) {
	cfg.Tenant = cmp.Or(cfg.Tenant, tenantOf(url))
	as, err := cfg.Principal()
	if err != nil {
		return nil, fmt.Errorf("carillon: %w", err)
	}
	b, err := connect(url, natsbus.Config{As: as, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	heeding := busstore.Heed(b, as)
	store := busstore.New(heeding, as)
	c := client.New(store, b, client.Config{Tenant: as.Tenant, Actor: as.Actor(), Closed: b.Close})
	cfg.Middleware = append([]func(worker.Handler) worker.Handler{client.Wrap[worker.Handler](c)}, cfg.Middleware...)
	w, err := worker.New(cfg, store, heeding, js...)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return &Worker{Worker: w, client: c}, nil
}

// Run runs jobs until ctx ends, drains, and closes the connection. See worker.Worker.Run.
func (w *Worker) Run(ctx context.Context) error {
	defer w.client.Close()
	return w.Worker.Run(ctx)
}

// Close closes the connection of a worker that does not run.
func (w *Worker) Close() error { return w.client.Close() }

// Dial connects to a server and makes a client for the tenant of the token, or else for the default one. The URL is that of NewWorker. The client's name
// is the URL's user, if it has a password; otherwise it is "client".
func Dial(url string) (*client.Client, error) { return DialAs(url, client.Config{}) }

// DialAs is Dial for another tenant or under another name: the Actor "client:shop" is the client "shop".
func DialAs(url string, cfg client.Config) (*client.Client, error) {
	cfg.Tenant = cmp.Or(cfg.Tenant, tenantOf(url), jobs.DefaultTenant)
	as := bus.Principal{Tenant: cfg.Tenant, Role: bus.Client, Name: userOf(url)}
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
	cfg.Closed = b.Close
	return client.New(busstore.New(busstore.Heed(b, as), as), b, cfg), nil
}

// ClientFrom returns the client of the worker that runs the handler of ctx. Runs that it enqueues are children of the
// handler's run. Outside a worker it returns a client that refuses every call with jobs.ErrNotRunning.
func ClientFrom(ctx context.Context) *client.Client { return client.From(ctx) }
