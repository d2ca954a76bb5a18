package carillon

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// Worker is a worker that has its own connection to the bus.
type Worker struct {
	*worker.Worker
	bus bus.Bus
}

// NewWorker connects to a bus and makes a worker there. The url is nats://host:4222, or tls:// for a secured
// connection; with user and password before an @ if the server asks for them, and with commas between several
// servers. It is an error if none of them answers now; a connection that is lost later is taken up again, for as
// long as it takes.
//
// What an address cannot say (certificates, credential files, another store) is said by making the parts oneself:
// natsbus.Connect, busstore.New, worker.New.
func NewWorker(url string, cfg worker.Config, js ...jobs.Job) (*Worker, error) {
	as, err := cfg.Principal()
	if err != nil {
		return nil, fmt.Errorf("carillon: %w", err)
	}
	b, err := connect(url, as, cfg.Logger)
	if err != nil {
		return nil, err
	}
	w, err := worker.New(cfg, busstore.New(b, as), b, js...)
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

// Dial connects to a bus and makes a client there, for the default tenant. The url is as for NewWorker. On a server
// with users, the client's name is the url's user; without, it is "client".
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
	if err := jobs.CheckName("client name", as.Name); err != nil {
		return nil, fmt.Errorf("carillon: %w", err)
	}
	b, err := connect(url, as, nil)
	if err != nil {
		return nil, err
	}
	return &Client{Client: client.New(busstore.New(b, as), b, cfg), bus: b}, nil
}

// Close ends what waits, and the connection.
func (c *Client) Close() error {
	_ = c.Client.Close()
	return c.bus.Close()
}

// connect opens the bus behind a URL.
func connect(address string, as bus.Principal, log *slog.Logger) (bus.Bus, error) {
	for one := range strings.SplitSeq(address, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		switch {
		case err != nil:
			return nil, fmt.Errorf("carillon: %w", withoutURL(err))
		case u.Scheme != "nats" && u.Scheme != "tls":
			return nil, jobs.Invalid("carillon: the address %.60q is not one of a bus: it begins with nats:// or tls://", u.Redacted())
		case u.Host == "":
			return nil, jobs.Invalid("carillon: the address %.60q names no host", u.Redacted())
		}
	}
	b, err := natsbus.Connect(context.Background(), address, natsbus.Config{As: as, Logger: log})
	if err != nil {
		return nil, fmt.Errorf("carillon: %w", err)
	}
	return b, nil
}

// userOf is the user in an address, or "client".
func userOf(address string) string {
	first, _, _ := strings.Cut(address, ",")
	if u, err := url.Parse(first); err == nil && u.User.Username() != "" {
		return u.User.Username()
	}
	return "client"
}

// withoutURL takes the address out of an error about it: there may be a password in it.
func withoutURL(err error) error {
	if bad, ok := err.(*url.Error); ok {
		return fmt.Errorf("the address is not a URL: %w", bad.Err)
	}
	return err
}
