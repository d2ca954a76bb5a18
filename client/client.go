// Package client enqueues runs from any program, waits for them and cancels them.
//
//	var ChargeJob = jobs.Trigger[ChargeArgs]("billing.charge")
//	receipt, err := ChargeJob.Enqueue(ctx, c, ChargeArgs{Customer: "c7"})
//	run, err := c.Wait(ctx, receipt.ID) // a *jobs.RunError if it did not succeed
//
// carillon.Dial connects a [Client] to a server, and [From] returns the one of a handler's worker. A Client is a
// [jobs.Caller].
//
// Sharp edges: an acknowledged run is durable. A request whose error is jobs.Unknown may have been stored; send it
// again under the same ID within a minute. All requests of a bulk are checked before the first is sent, but a bulk is
// not one transaction: see [BulkError].
package client

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Config configures a client. The zero value works.
type Config struct {
	Tenant jobs.Tenant  // default jobs.DefaultTenant
	Actor  string       // recorded in runs and the audit; default "client:client"
	Closed func() error // called at the end of Close
}

// Client enqueues runs, cancels them and waits for them. Its methods may be called concurrently.
type Client struct {
	store   metastore.Store
	signals bus.Signals
	config  Config
	waiting waiting
	schemas schemas
}

var _ jobs.Caller = (*Client)(nil)

// New makes a client on a store. Without signals (nil), Wait polls. Packages metastore and bus are not promised:
// programs call carillon.Dial or Scheduler.Client.
func New(store metastore.Store, signals bus.Signals, cfg Config) *Client {
	if cfg.Tenant == "" {
		cfg.Tenant = jobs.DefaultTenant
	}
	if cfg.Actor == "" {
		cfg.Actor = bus.Principal{Role: bus.Client, Name: "client"}.Actor()
	}
	c := &Client{store: store, signals: signals, config: cfg}
	c.waiting.runs = map[jobs.ID][]chan bool{}
	return c
}

// Get returns a run as it is now. The error is jobs.NotFound if there is no such run.
func (c *Client) Get(ctx context.Context, id jobs.ID) (jobs.Run, error) {
	if err := c.ready(id); err != nil {
		return jobs.Run{}, err
	}
	run, err := c.store.Run(ctx, c.config.Tenant, id)
	if err != nil {
		return jobs.Run{}, err
	}
	return run.View(), nil
}

// Cancel cancels a run. If a worker has the run, the handler's context ends, and its result is discarded. Cancelling a
// cancelled run is no error; for a run in another final state, the error is jobs.Conflict.
func (c *Client) Cancel(ctx context.Context, id jobs.ID, reason string) error {
	if err := c.ready(id); err != nil {
		return err
	}
	e := c.envelope(kernel.Cancel{ID: id})
	e.Reason = reason
	r := c.send(ctx, []kernel.Envelope{e})[0]
	if r.Err != nil {
		return fmt.Errorf("cancel %s: %w", id, r.Err)
	}
	return nil
}

// Close ends waiting calls. A client of carillon.Dial closes its connection, too.
func (c *Client) Close() error {
	c.waiting.close()
	if c.config.Closed != nil {
		return c.config.Closed()
	}
	return nil
}

// ready returns an error if c has no store or the ID is empty.
func (c *Client) ready(id jobs.ID) error {
	switch {
	case c.store == nil:
		return jobs.ErrNotRunning
	case id.IsZero():
		return kernel.Invalid("the ID of the run is empty: pass the ID of a receipt, or one of jobs.ParseID")
	}
	return nil
}

func (c *Client) envelope(k kernel.Command) kernel.Envelope {
	return kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: c.config.Tenant, Actor: c.config.Actor, Command: k}
}
