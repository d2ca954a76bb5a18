// Package controlplane decides when jobs run. One of its processes leads: it turns due times into runs, starts them on
// workers, keeps their leases, and sweeps up what got lost. All its decisions are commands that the store checks again,
// so a second leader, or one that was frozen for long, can do no harm.
//
// It is not promised to programs outside this module.
//
// Where to start: [New] and lead.go, which lists the leader's duties; then one duty per file. announce.go takes in what
// commits changed, start.go starts what is ready, push.go sends it. Package assign chooses the workers.
package controlplane

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/run"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/controlplane/assign"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/pool"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Config configures a control plane. Zero fields have the defaults named there.
type Config struct {
	Node    string         // this process's name; default "node"
	Address string         // where its pages are, for the pages of other nodes; default: unknown
	Route   string         // where other nodes reach the bus server in this process, if there is one
	Version string         // of the program, for the same; default: unknown
	NATS    func() string  // the state of this process's end of the bus, as text, for the same
	Store   metastore.Full // required
	Bus     bus.Bus        // required
	Elector Elector        // default Always
	// Clock decides what is due. It should be the one that stamps the store's commits; default: one of its own.
	Clock  *metastore.Clock
	Logs   metastore.Logs // where log lines of runs go; default: nowhere
	Logger *slog.Logger   // default: nowhere

	// Serve is started with the leader's store when this process begins to lead a term, and its context ends with the
	// leadership: busstore.Serve, bound to a bus (bus.InTerm). It returns once it serves.
	Serve func(ctx context.Context, term uint64, store metastore.Store) error
	// Kept limits a worker to its own app, as in busstore.Config. Default: all of its tenant.
	Kept bool
	// Membership has this process fire a share of the jobs, whether it leads or not, together with the others that
	// have the same rows and the same Membership. nil: the leader fires all.
	Membership metastore.Membership
	// Leader applies the fires of a member at the leader, whichever process that is. Default: Store.
	Leader metastore.Applier
	// Retain is called regularly to purge finished runs, as their jobs define; nil: nothing is purged.
	Retain metastore.Retainer
	// RetainBytes is how much finished runs and log lines may take on disk: beyond, the oldest are purged. Default 8 GiB; below 0:
	// unlimited.
	RetainBytes int64
	// KeepCounts is how long counts of days, missed due times and what is left of deleted jobs are kept. Default and
	// minimum: kernel.KeepHistory.
	KeepCounts time.Duration
	// Copy means that the rows are a copy of this process's own, which it prunes whether it leads or not.
	Copy bool

	// Alarm sends a message to a target, once (alarms.Sender). Default: none is sent.
	Alarm func(context.Context, alarms.Target, alarms.Message) alarms.Answer
	// Heartbeat requests a URL elsewhere, every minute while this process leads and can commit. Default: none is requested.
	Heartbeat func(context.Context) error
	// AuditSinks receive each audit while this process leads.
	AuditSinks []AuditSink
	// Page is the address of the pages, for links in messages; "" = they have none.
	Page string

	Lease          time.Duration // how long an attempt is a worker's without a heartbeat; default 15 s
	HeartbeatEvery time.Duration // how often workers heartbeat; default 3 s
	Sweep          time.Duration // how often it is looked for what got lost; default 2 s
	// Watch is how often a process checks itself: its clock, its duties, whether it can be reached. It sends other nodes a
	// heartbeat three times as rarely. Default 1 s.
	Watch time.Duration
}

func (c Config) withDefaults() Config {
	if c.Node == "" {
		c.Node = "node"
	}
	if c.RetainBytes == 0 {
		c.RetainBytes = 8 << 30
	}
	c.KeepCounts = max(c.KeepCounts, kernel.KeepHistory)
	if c.Elector == nil {
		c.Elector = Always{Store: c.Store}
	}
	if c.Clock == nil {
		c.Clock = new(metastore.Clock)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.Lease, 15 * time.Second}, {&c.HeartbeatEvery, 3 * time.Second}, {&c.Sweep, 2 * time.Second}, {&c.Watch, time.Second}} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	return c
}

// ControlPlane is one process of the control plane.
type ControlPlane struct {
	cfg        Config
	log        *slog.Logger
	episodes   *episode.Log
	store      announced
	catalog    catalog
	board      board
	feed       feed
	pulse      pulse
	refusals   refusals
	nodes      nodes
	share      standing
	travel     travel
	messages   messages
	pushes     atomic.Pointer[pool.Pool[delivery]]
	clock      offClock
	terms      termHistory
	heartbeats atomic.Uint64
	purged     chan struct{} // finished runs were purged on request
	dissolving chan struct{} // a tenant is to be deleted
	ruled      chan struct{} // a target of alarms was set

	purging struct {
		mu sync.Mutex
		Purging
	}
	wake    chan struct{} // a run may need to be released earlier than release.go thinks
	ready   readiness
	missing missing
	swept   assign.App // where the next sweep begins; zero = at the first app
	duties  duties
	gaveUp  time.Time // when this node last gave up the lead because a duty failed

	refreshed uint64                 // change number up to which definitions follow the defaults,
	defaults  map[jobs.Tenant]uint64 // and the revisions of those
}

// New makes a control plane.
func New(c Config) (*ControlPlane, error) {
	if c.Store == nil || c.Bus == nil {
		return nil, kernel.Invalid("a control plane needs a store and a bus")
	}
	c = c.withDefaults()
	cp := &ControlPlane{cfg: c, log: c.Logger, episodes: episode.New(c.Logger), wake: make(chan struct{}, 1), purged: make(chan struct{}, 1), dissolving: make(chan struct{}, 1), ruled: make(chan struct{}, 1)}
	cp.store = announced{Full: c.Store, cp: cp}
	if cp.cfg.Leader == nil {
		cp.cfg.Leader = cp.store
	}
	cp.catalog.now = c.Clock.Now
	cp.catalog.init()
	cp.board.init(c.Lease)
	cp.feed.init()
	cp.pulse.totals.init()
	cp.nodes.init()
	return cp, nil
}

// Store returns the store of this control plane, announced: what is written through it is started and signalled.
func (cp *ControlPlane) Store() metastore.Store { return cp.store }

// Run works until ctx ends, or until a failure that a new start may mend; ErrTwin needs another name.
func (cp *ControlPlane) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // or the subscriptions would continue
	defer cp.episodes.Reset()
	pushes := pool.New(cp.push)
	cp.pushes.Store(pushes)
	defer pushes.Dismiss()
	if err := cp.meet(ctx); err != nil {
		return err
	}
	if err := cp.listen(ctx); err != nil {
		return err
	}
	var g run.Group
	add(&g, ctx, func(ctx context.Context) error { return cp.cfg.Elector.Lead(ctx, cp.lead) })
	add(&g, ctx, cp.publishChanges)
	add(&g, ctx, cp.present)
	add(&g, ctx, cp.watchClocks)
	add(&g, ctx, cp.retain)
	if cp.cfg.Membership != nil {
		add(&g, ctx, cp.fireShare)
	}
	return g.Run()
}

// add adds a duty to a group: it is interrupted by its context.
func add(g *run.Group, ctx context.Context, duty func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	g.Add(func() error { return duty(ctx) }, func(error) { cancel() })
}

// listen follows the other nodes: changed definitions, changes where another node leads, and log lines.
func (cp *ControlPlane) listen(ctx context.Context) error {
	err := cp.cfg.Bus.Listen(ctx, "*", bus.TopicChanged, "", func(s bus.Signal) {
		if s.From.Role != bus.Node {
			return // only the leader commits, and a flood of these would be a flood of reads
		}
		if c, err := bus.Decode[bus.Changes](s.Data); err == nil {
			cp.catalog.mark(s.Tenant, c.Keys...)
		}
	})
	if err != nil {
		return err
	}
	err = cp.cfg.Bus.Listen(ctx, "*", bus.TopicLive, "", func(s bus.Signal) {
		if s.From.Role != bus.Node || s.From.Name == cp.cfg.Node {
			return // its own changes are known
		}
		if c, err := bus.Decode[bus.Changes](s.Data); err == nil {
			cp.feed.merge(s.Tenant, c)
		}
	})
	if err != nil || cp.cfg.Logs == nil {
		return err
	}
	return cp.cfg.Bus.Listen(ctx, "*", bus.TopicLog, "", func(s bus.Signal) {
		if s.From.Role != bus.Worker {
			return
		}
		lines, err := metastore.DecodeLogLines(s.Data)
		if err == nil {
			for i := range lines {
				lines[i].Tenant = s.From.Tenant // always the sender's tenant
			}
			err = cp.cfg.Logs.Append(ctx, cp.theirs(ctx, s.From, lines))
		}
		if err != nil {
			cp.episodes.Failed(slog.LevelWarn, s.From.Name, "log lines were dropped", "worker", s.From.Name, "err", err)
		}
	})
}

// envelope signs the leader's own commands.
func (cp *ControlPlane) envelope(tenant jobs.Tenant, k kernel.Command) kernel.Envelope {
	return kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: tenant, Actor: "leader:" + cp.cfg.Node, Command: k}
}

// poke wakes a loop that waits on ch.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
