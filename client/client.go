// Package client enqueues runs from any program, waits for them and cancels them.
//
//	var ChargeJob = jobs.Trigger[ChargeArgs]("billing.charge")
//	receipt, err := ChargeJob.Enqueue(ctx, c, ChargeArgs{Customer: "c7"})
//	run, err := c.Wait(ctx, receipt.ID) // a *jobs.RunError if it did not succeed
//
// carillon.Dial connects a [Client] to a server, and [From] returns the one of a handler's worker. A Client is a
// [jobs.Caller].
//
// Sharp edges: an acknowledged run is durable. A request whose error is jobs.Unknown may have been stored; send it again
// under the same ID within a minute. A bulk is checked whole before its first request is sent, but it is not one
// transaction: see [BulkError].
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

// Config says for whom a client speaks. The zero value works.
type Config struct {
	Tenant jobs.Tenant // default jobs.DefaultTenant
	Actor  string      // who asks, as runs remember it; default "client:client"
}

// Client enqueues, cancels and waits. All methods may be called at the same time.
type Client struct {
	store   metastore.Store
	signals bus.Signals
	config  Config
	waiting waiting
}

var _ jobs.Caller = (*Client)(nil)

// New makes a client. Without signals (nil), Wait only looks now and then.
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
	run, err := c.store.Run(ctx, c.config.Tenant, id)
	if err != nil {
		return jobs.Run{}, err
	}
	return run.View(), nil
}

// Cancel stops a run. One that no worker has is over at once; of one that runs, the context is cancelled, and what
// it still does counts for nothing. A run that was cancelled before is no error; one that ended otherwise is refused
// as jobs.Conflict.
func (c *Client) Cancel(ctx context.Context, id jobs.ID, reason string) error {
	e := c.envelope(kernel.Cancel{ID: id})
	e.Reason = reason
	r := c.send(ctx, []kernel.Envelope{e})[0]
	if r.Err != nil {
		return fmt.Errorf("cancel %s: %w", id, r.Err)
	}
	return nil
}

// Close ends what waits. The store and the bus are not closed: whoever opened them does that.
func (c *Client) Close() error {
	c.waiting.close()
	return nil
}

func (c *Client) envelope(k kernel.Command) kernel.Envelope {
	return kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: c.config.Tenant, Actor: c.config.Actor, Command: k}
}
