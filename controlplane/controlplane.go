// Package controlplane decides when. One of its processes leads: it turns due times into runs, offers runs to
// workers, keeps their leases, and sweeps up what got lost. Everything it decides becomes a command that the store
// checks again, so a second leader, or one that wakes from a long sleep, can do no harm.
//
// Where to start: [New] and lead.go, which lists the leader's duties; then one duty per file. announce.go is the
// way from a commit to the workers, route.go chooses which of them.
package controlplane

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/oklog/run"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Config is what a control plane needs. Zero fields have the defaults named at them.
type Config struct {
	Node    string         // this process's name; default "node"
	Store   metastore.Full // required
	Bus     bus.Bus        // required
	Elector Elector        // default Always
	Logs    metastore.Logs // where log lines of runs go; default: nowhere
	Logger  *slog.Logger   // default: nowhere

	// Serve is started with the leader's store when this process begins to lead, and its context ends with the
	// leadership: busstore.Serve, bound to a bus. It returns once it serves.
	Serve func(ctx context.Context, store metastore.Store) error
	// Prune drops archived runs by age and size, now and then; default: nothing is dropped.
	Prune func(now time.Time) error

	Lease     time.Duration // how long an attempt is a worker's without a beat; default 15 s
	BeatEvery time.Duration // how often workers beat; default 3 s
	Sweep     time.Duration // how often lost hints are looked for; default 2 s
	Patience  time.Duration // how long an offer may go unclaimed before it is looked at again; default 10 s
}

func (c Config) withDefaults() Config {
	if c.Node == "" {
		c.Node = "node"
	}
	if c.Elector == nil {
		c.Elector = Always{Store: c.Store}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.Lease, 15 * time.Second}, {&c.BeatEvery, 3 * time.Second}, {&c.Sweep, 2 * time.Second}, {&c.Patience, 10 * time.Second}} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	return c
}

// ControlPlane is one process of the control plane.
type ControlPlane struct {
	cfg     Config
	log     *slog.Logger
	store   announced
	catalog catalog
	router  router
	leases  leases
	feed    feed
	wake    chan struct{} // a run may need to be released earlier than release.go thinks
	reopen  chan struct{} // the shared queue was lost
	ready   readiness

	refreshed uint64 // change number up to which definitions follow the defaults
}

// New makes a control plane.
func New(c Config) (*ControlPlane, error) {
	if c.Store == nil || c.Bus == nil {
		return nil, jobs.Invalid("a control plane needs a store and a bus")
	}
	c = c.withDefaults()
	cp := &ControlPlane{cfg: c, log: c.Logger, wake: make(chan struct{}, 1), reopen: make(chan struct{}, 1)}
	cp.store = announced{Full: c.Store, cp: cp}
	cp.catalog.init()
	cp.router.init(c.Patience, c.Lease)
	cp.leases.init(c.Lease)
	cp.feed.init()
	return cp, nil
}

// Store is the store of this control plane, announced: what is written through it is offered and signalled.
func (cp *ControlPlane) Store() metastore.Store { return cp.store }

// Run works until ctx ends, or until something is broken that a new start may mend.
func (cp *ControlPlane) Run(ctx context.Context) error {
	if err := cp.listen(ctx); err != nil {
		return err
	}
	var g run.Group
	add(&g, ctx, func(ctx context.Context) error { return cp.cfg.Elector.Lead(ctx, cp.lead) })
	add(&g, ctx, cp.publish)
	add(&g, ctx, cp.tell)
	return g.Run()
}

// add adds a duty to a group: it is interrupted by its context.
func add(g *run.Group, ctx context.Context, duty func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	g.Add(func() error { return duty(ctx) }, func(error) { cancel() })
}

// listen hears what others say: definitions they changed, and log lines.
func (cp *ControlPlane) listen(ctx context.Context) error {
	err := cp.cfg.Bus.Listen(ctx, "*", bus.TopicChanged, "", func(s bus.Signal) {
		if c, err := bus.Decode[bus.Changes](s.Data); err == nil {
			cp.catalog.mark(s.Tenant, c.Keys...)
		}
	})
	if err != nil || cp.cfg.Logs == nil {
		return err
	}
	return cp.cfg.Bus.Listen(ctx, "*", bus.TopicLog, "", func(s bus.Signal) {
		lines, err := metastore.DecodeLogLines(s.Data)
		if err == nil {
			for i := range lines {
				lines[i].Tenant = s.From.Tenant // whoever sends it, its own tenant's
			}
			err = cp.cfg.Logs.Append(ctx, lines)
		}
		if err != nil {
			cp.log.Warn("log lines were dropped", "worker", s.From.Name, "err", err)
		}
	})
}

// leader is how the leader's own commands are signed.
func (cp *ControlPlane) envelope(tenant jobs.Tenant, k jobs.Command) jobs.Envelope {
	return jobs.Envelope{ID: jobs.NewID(time.Now()), Tenant: tenant, Actor: "leader:" + cp.cfg.Node, Command: k}
}

// poke lets a loop that waits on ch look again.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
