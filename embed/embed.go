// Package embed runs a whole scheduler inside a program: control plane, worker, store, bus and pages in one process.
//
//	err := embed.Run(ctx, embed.Config{Dir: "./data"}, jobs.NewRecurring(...), jobs.NewTriggered(...))
//
// Where to start: [Run], or [Start] for a [Scheduler] with a client and the pages. [Open] is for programs that need the
// Scheduler before it runs: call Open, then [Scheduler.Run], then [Scheduler.Close]. Handlers get their client from
// carillon.ClientFrom(ctx).
//
// Sharp edges: without Config.Dir or Config.Database nothing survives the process. A directory belongs to one process
// at a time. Start runs waiting jobs before it returns, so set up what handlers need first. Without Config.Who or
// Config.Tokens requests are not authenticated: mount [Scheduler.Handler] behind your own access control. nats-server,
// which embed links, registers /debug/pprof/ and /debug/vars at http.DefaultServeMux: serve a mux of your own.
package embed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/oidc"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/raftlog"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore"
	"github.com/carillon-scheduler/carillon/metrics"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/trace"
	"github.com/carillon-scheduler/carillon/ui"
	"github.com/carillon-scheduler/carillon/worker"
	"github.com/carillon-scheduler/carillon/worker/httpjob"
)

// Config configures an embedded scheduler. The zero value works: rows in memory, a bus inside the process.
type Config struct {
	// Dir is the data directory, as of "carillon server --data": it stores the rows in the folder rows; "" = memory,
	// until the process ends.
	Dir string
	// Database stores the rows instead of Dir: postgres://user:password@host/database, or mariadb://....
	Database string
	// LiveTable keeps unfinished runs that are older than 5 seconds in the table carillon_live of the Database, for your
	// own queries.
	LiveTable bool
	// Triggering selects the nodes that fire due times: ByLeader (default), or Distributed, which needs a Database.
	Triggering Triggering
	// Node is this process's name. Default: "node"; with a Database, in which each process needs another, the machine's
	// name and the number of the process.
	Node string
	// Worker configures the worker that runs the given jobs. Its Logger defaults to the one below.
	Worker worker.Config
	// HTTPJobs runs HTTP jobs in this process and limits what they may do; nil = other processes run them.
	HTTPJobs *httpjob.Config
	// TenantHTTPJobs runs the HTTP jobs of other tenants than Worker's, if HTTPJobs is set and callers are authenticated:
	// by the same code, but with these limits and secrets. nil = these tenants run workers of their own.
	TenantHTTPJobs *httpjob.Config
	// Bus connects a principal to a bus that other processes share: workers and clients reach the store over it.
	// Default: with a Database, processes find each other there, and connect to the one that leads; otherwise a bus
	// inside the process.
	Bus func(ctx context.Context, as bus.Principal) (bus.Bus, error)
	// Kept restricts workers on that bus to their own app: for a bus that authenticates them. Default: a worker may act
	// for all apps.
	Kept bool

	// Who authenticates a request to Handler, for programs that know their users: it returns the tenant, name
	// ("person:ann") and role. An error with code jobs.Forbidden refuses the request. Requests that wait or stream are
	// checked again twice a second. Default: no authentication, and every request is allowed.
	Who func(*http.Request) (ops.Who, error)
	// Tokens requires a token of Ops().Grant, or a session that began with one. Not with Who.
	Tokens bool
	// SignIn lets people also sign in at an OpenID Connect provider. It needs Tokens, and Address: the provider sends
	// browsers back there, to Base + "/login/callback", and after signing out to Base + "/login".
	SignIn *SignIn
	// SessionIdle is how long a browser's session lasts without a request, at least a minute; default 1 h.
	SessionIdle time.Duration
	// SessionLongest is how long a browser's session lasts at most, up to 30 days; default 12 h.
	SessionLongest time.Duration
	// Secure marks cookies as https-only although this process serves http, because a proxy in front terminates TLS.
	Secure bool

	// Cluster makes this process one of several nodes with a Bus in common, each with a copy of the rows in Dir.
	// Default: a single node. Processes that share a Database need no Cluster.
	Cluster *Cluster

	// Advertise is the host name or IP address by which other processes with the same Database reach this one. Default:
	// the address by which this process reaches the Database. Not with Bus.
	Advertise string
	// Server is this process's NATS server, started shut; it listens while this process leads. One that authenticates
	// needs Peers that call Scheduler.AdmitPeer. Default: one is made, for the processes with the same Database only, at
	// a free port. Not with Bus.
	Server *embedded.Server

	// AuditSinks receive each line of the audit while this process leads, at least once and in order. All processes should
	// have the same.
	AuditSinks []AuditSink
	// Alarms is how messages of alarms are sent. Default of Allow and TenantsAllow: to public
	// addresses only, at ports 80 and 443. Default of Shows: the same.
	Alarms alarms.Config
	// Page is the URL of the pages as users know it: for links in these messages, and because browsers name it as the
	// origin of forms. "" = no links.
	Page string

	// RaftLogs are the kinds of Raft log that a Dir may have; a new one gets the first. Default: boltdb alone. With
	// hashicorp.Kinds() of metastore/raftstore/raftlog/hashicorp, the first is wal, whose commits take half the time; it
	// links github.com/coreos/etcd and github.com/boltdb/bolt.
	RaftLogs []raftlog.Kind
	// RaftLog names the kind for a new Dir, if it is not the first. A Dir with a log of another kind is refused.
	RaftLog string
	// RetainBytes limits the disk space of finished runs and log lines: beyond it, the oldest are purged. Default 8 GiB; below 0:
	// unlimited. A job's own retention is in its settings.
	RetainBytes int64
	// KeepCounts is the retention of counts of runs, missed due times and deleted jobs. Default and minimum: 35 days.
	KeepCounts time.Duration

	// Limits limits the resources of requests.
	Limits Limits

	// Address is the URL of this process's pages, for links from the pages of other nodes; default: no link.
	Address string
	// BusAddress is the address of the bus in the code examples on the pages; default: the default port.
	BusAddress string
	// NATS describes this process's connection to the bus, for the cluster page; default: no description.
	NATS func() string
	// Base is the path under which Handler is mounted, such as "/jobs"; default: the root.
	Base string
	// Notice is a sentence at the top of every page, or "".
	Notice string
	// Version is the program's version, for metrics; default "unknown".
	Version string
	// MetricsJobs names jobs with metrics of their own, at most 200: keys, or patterns such as billing.*; default: none.
	MetricsJobs []string
	// Logger receives log lines for operators; default: they are discarded.
	Logger *slog.Logger
}

// Triggering selects the nodes that fire due times.
type Triggering string

// Which nodes fire due times: the leader, or each node its share of the jobs.
const (
	ByLeader    Triggering = "leader"
	Distributed Triggering = "distributed"
)

// check returns an error if the configuration does not allow this triggering.
func (by Triggering) check(cfg Config) error {
	switch {
	case by == "", by == ByLeader, by == Distributed && cfg.Database != "":
		return nil
	case by == Distributed:
		return kernel.Invalid("embed: triggering distributed needs Database: without one, the leader fires all jobs")
	}
	return kernel.Invalid("embed: invalid triggering %.40q: want %s or %s", string(by), ByLeader, Distributed)
}

// Scheduler is a scheduler inside a program: call Run once and then Close, or Stop if Start made it.
type Scheduler struct {
	log         *slog.Logger
	episodes    *episode.Log
	live        *live
	cluster     *cluster // nil = a single node
	store       *led
	database    *sqlstore.Store // nil = rows are in another store
	plane       *controlplane.ControlPlane
	ops         *ops.Ops
	client      *client.Client
	worker      *worker.Worker  // nil = no jobs
	httpWorkers *httpWorkers    // serves HTTP workers
	httpWorker  *worker.Worker  // of HTTP jobs; nil = other processes run them
	httpTenants *httpTenants    // of HTTP jobs of other tenants; nil = other processes run them
	runner      *httpjob.Runner // of httpWorker
	messages    *alarms.Sender
	provider    *oidc.Provider // nil = no identity provider
	grace       time.Duration  // of the workers
	tenant      jobs.Tenant
	keys        []jobs.Key
	handler     func() http.Handler  // made when it is first asked for: most replicas serve no requests
	close       []func() error       // in the order of opening
	elector     controlplane.Elector // nil = it always leads
	failed      <-chan error         // of the store, which is then unusable
	deliver     func(context.Context, func() bool, metastore.Applier) error

	stopping atomic.Bool
	cancel   context.CancelFunc // set by Start
	done     chan struct{}
	err      error
}

// Open makes a scheduler; Run starts it. Open comes before Run: an open Scheduler has a Client, Ops and a Handler, but
// runs nothing yet. Call Close in any case.
func Open(ctx context.Context, cfg Config, js ...jobs.Job) (_ *Scheduler, err error) {
	if cfg.Node == "" {
		cfg.Node = nodeName(cfg)
	}
	if cfg.Version == "" {
		cfg.Version = "unknown"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Worker.Logger == nil {
		cfg.Worker.Logger = cfg.Logger
	}
	s := &Scheduler{log: cfg.Logger, episodes: episode.New(cfg.Logger), grace: cmp.Or(cfg.Worker.Grace, worker.DefaultGrace)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if cfg.Tokens && cfg.Who != nil {
		return nil, kernel.Invalid("embed: both Who and Tokens are given: set one of them")
	}
	sessions := ops.SessionLimits{Idle: cfg.SessionIdle, Longest: cfg.SessionLongest}
	if err := sessions.Check(); err != nil {
		return nil, err
	}
	if s.provider, err = cfg.provider(); err != nil {
		return nil, err
	}
	if err := cfg.Triggering.check(cfg); err != nil {
		return nil, err
	}
	shared := cfg.Bus != nil
	if cfg.Cluster != nil && (cfg.Dir == "" || cfg.Database != "" || !shared) {
		return nil, kernel.Invalid("embed: a Cluster needs Dir and Bus, and no Database")
	}
	if cfg.LiveTable && cfg.Database == "" {
		return nil, kernel.Invalid("embed: LiveTable needs Database")
	}
	if (cfg.Server != nil || cfg.Advertise != "") && (cfg.Database == "" || shared) {
		return nil, kernel.Invalid("embed: Server and Advertise are for processes that share a Database and no Bus")
	}
	rows, err := s.openRows(ctx, cfg)
	if err != nil {
		return nil, err
	}
	var way *road
	switch {
	case shared:
	case cfg.Database != "":
		if way, err = openRoad(ctx, cfg, s.database, s.AdmitPeer); err != nil {
			return nil, err
		}
		s.close = append(s.close, func() error { way.stop(); return nil })
		cfg.Bus, shared, rows.elector = way.connect, true, opening{rows.elector, way}
	default:
		hub := membus.New()
		cfg.Bus = func(_ context.Context, as bus.Principal) (bus.Bus, error) { return hub.As(as), nil }
	}
	s.failed, s.deliver, s.elector = rows.failed, rows.deliver, rows.elector
	as := bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: cfg.Node}
	node, err := s.openBus(ctx, cfg, as)
	if err != nil {
		return nil, err
	}
	plane := controlplane.Config{Node: cfg.Node, Address: cfg.Address, Version: cfg.Version, NATS: cfg.NATS, Kept: cfg.Kept, Store: rows.store, Clock: rows.clock, Bus: node, Elector: rows.elector, Logs: rows.logs, Logger: cfg.Logger, Retain: rows.retain, RetainBytes: cfg.RetainBytes, KeepCounts: cfg.KeepCounts, Copy: rows.cluster != nil, Membership: rows.members, Leader: atLeader{s}}
	if cfg.Cluster != nil {
		plane.Route = cfg.Cluster.Route
	}
	heeding := busstore.Heed(node, as)
	quota := metastore.NewQuota(cfg.Limits.quotas(), func(tenant jobs.Tenant, err error) { s.plane.RefusedCommand(tenant, err) })
	plane.Serve = func(ctx context.Context, term uint64, store metastore.Store) error {
		calls := bus.InTerm(node, term)
		return errors.Join(busstore.Serve(ctx, calls, quota.Bound(store), busstore.Config{Kept: cfg.Kept, Current: s.store.current, Logger: cfg.Logger}), s.live.serve(ctx, calls), s.serveCluster(ctx, calls))
	}
	public := new(httpjob.Guard).Check
	if cfg.Alarms.Allow == nil {
		cfg.Alarms.Allow = public
	}
	if cfg.Alarms.TenantsAllow == nil {
		cfg.Alarms.TenantsAllow = public
	}
	if cfg.Alarms.Shows == nil {
		cfg.Alarms.Shows = func(from netip.AddrPort) bool { return public(from) == nil }
	}
	if s.messages, err = alarms.NewSender(cfg.Alarms); err != nil {
		return nil, err
	}
	s.close = append(s.close, func() error { s.messages.Close(); return nil })
	for _, sink := range cfg.AuditSinks {
		plane.AuditSinks = append(plane.AuditSinks, sink)
	}
	if plane.Alarm, plane.Page = s.messages.Send, cfg.Page; cfg.Alarms.Heartbeat != "" {
		plane.Heartbeat = s.messages.Heartbeat
	}
	if s.plane, err = controlplane.New(plane); err != nil {
		return nil, err
	}
	s.live = &live{plane: s.plane, calls: heeding, road: way}
	s.store = newLed(s.plane, quota, busstore.New(heeding, as), rows.copies, way)
	s.client = client.New(s.store, node, client.Config{})
	s.close = append(s.close, s.client.Close)
	s.httpWorkers = newHTTPWorkers(cfg, s.plane.Refused, func(context.Context) error {
		if way == nil {
			return nil // the bus reaches every leader
		}
		return way.reaches()
	})
	s.close = append(s.close, func() error { s.httpWorkers.close(); return nil })
	conf := ops.Config{Backup: rows.backup, Cleaning: func() ops.Purging { return ops.Purging(s.plane.Purging()) }, Store: s.store, Logs: rows.logs, Live: s.live, HTTPWorkers: s.httpWorkers, CheckHTTP: cfg.HTTPJobs.Check, Sessions: sessions, SendAlarm: s.messages.Send, Logger: cfg.Logger,
		Authenticates: cfg.Tokens || cfg.Who != nil, Node: cfg.Node}
	if s.database != nil {
		conf.Outbox = s.database
	}
	if shared && (cfg.Database != "" || cfg.Cluster != nil) {
		s.cluster = &cluster{store: rows.cluster, live: s.live, calls: heeding}
		if cfg.Cluster != nil {
			s.cluster.invite = cfg.Cluster.Invite
		}
		conf.Cluster = s.cluster
	}
	s.ops = ops.New(conf)
	s.handler = sync.OnceValue(func() http.Handler { return s.pages(cfg, rows) })
	if err := s.openWorker(ctx, cfg, js); err != nil {
		return s, err
	}
	return s, s.openHTTPWorker(ctx, cfg)
}

// serveCluster answers the cluster requests of other nodes while this one leads.
func (s *Scheduler) serveCluster(ctx context.Context, calls bus.Calls) error {
	if s.cluster == nil {
		return nil
	}
	return s.cluster.serve(ctx, calls)
}

// nodeName is the default name of a process.
func nodeName(cfg Config) string {
	host, err := os.Hostname()
	name := fmt.Sprintf("%s-%d", host, os.Getpid())
	if cfg.Database == "" || err != nil || kernel.CheckName("node", name) != nil {
		return "node"
	}
	return name
}

func (s *Scheduler) openBus(ctx context.Context, cfg Config, as bus.Principal) (bus.Bus, error) {
	b, err := cfg.Bus(ctx, as)
	if err != nil {
		return nil, fmt.Errorf("open the bus as %s: %w", as.Actor(), err)
	}
	s.close = append(s.close, b.Close)
	return b, nil
}

func (s *Scheduler) openWorker(ctx context.Context, cfg Config, js []jobs.Job) error {
	if len(js) == 0 {
		return nil
	}
	as, err := cfg.Worker.Principal()
	if err != nil {
		return err
	}
	s.tenant = as.Tenant
	b, err := s.openBus(ctx, cfg, as)
	if err != nil {
		return err
	}
	cfg.Worker.Middleware = append([]func(worker.Handler) worker.Handler{client.Wrap[worker.Handler](client.New(s.store, b, client.Config{Tenant: as.Tenant, Actor: as.Actor()}))}, cfg.Worker.Middleware...)
	if s.worker, err = worker.New(cfg.Worker, s.store, busstore.Heed(b, as), js...); err != nil {
		return err
	}
	for _, j := range js {
		s.keys = append(s.keys, j.Key())
	}
	return nil
}

// pages makes one handler of the API, the pages and the metrics.
func (s *Scheduler) pages(cfg Config, rows rows) http.Handler {
	var signIn ui.Access // nil = no sign-in
	var denied func(*http.Request, ops.Who, string, string)
	var signInAt ui.SignIn // nil = no identity provider
	if cfg.Tokens {
		access := api.NewAccess(s.ops, cfg.Secure)
		cfg.Who, signIn, denied = access.Who, access, access.Denied
		if s.provider != nil {
			signInAt = access.SignInAt(s.provider)
		}
	}
	door := api.New(api.Config{Ops: s.ops, Who: cfg.Who, Base: cfg.Base, Ready: s.Ready, Leads: s.Leads, Denied: denied, Logger: cfg.Logger,
		Memory: cfg.Limits.RequestMemory, MemoryPerToken: cfg.Limits.RequestMemoryPerToken, Refused: s.plane.Refused})
	about := ui.About{Node: cfg.Node, Store: rows.where, Version: cmp.Or(cfg.Version, worker.LibraryVersion())}
	page := ui.New(ui.Config{Ops: s.ops, Who: cfg.Who, Admit: door.Admit, Access: signIn, SignIn: signInAt, Base: cfg.Base, Notice: cfg.Notice, Bus: cfg.BusAddress, About: about, Logger: cfg.Logger})
	mux := http.NewServeMux()
	meter := s.metrics(cfg, rows, func(r *http.Request) string {
		switch _, pattern := mux.Handler(r); pattern {
		case "/":
			return page.Route(r)
		case "GET /metrics":
			return pattern
		}
		return door.Route(r)
	})
	for _, path := range api.Paths() {
		mux.Handle(path, door)
	}
	mux.Handle("GET /metrics", door.Guarded(ops.Viewer, meter.Handler()))
	mux.Handle("/", door.Counted(page))
	return api.Guard(cfg.Logger, cfg.Page, http.StripPrefix(cfg.Base, meter.Requests(aged(traced(mux)))))
}

// alarmed adds the metrics of alarms.
func (s *Scheduler) alarmed(add func(metrics.Value)) {
	sent, failed, open := s.plane.Messages()
	add(metrics.Value{Name: "alarm_messages_sent_total", Help: "Messages of alarms that a target took, from this process.", Value: float64(sent)})
	add(metrics.Value{Name: "alarm_messages_failed_total", Help: "Attempts to send a message of an alarm that failed, from this process.", Value: float64(failed)})
	add(metrics.Value{Name: "alarms_open", Help: "Alarms that have not ended, of all tenants; 0 if this process does not lead.", Value: float64(open)})
}

// traced adds runs that a request starts to the trace in its traceparent header.
func traced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if parent := r.Header.Get("Traceparent"); parent != "" {
			r = r.WithContext(trace.Extract(r.Context(), parent))
		}
		next.ServeHTTP(w, r)
	})
}

// metrics makes the Prometheus metrics of this process.
func (s *Scheduler) metrics(cfg Config, rows rows, route func(*http.Request) string) *metrics.Metrics {
	measured, _ := rows.store.(metastore.Measured)
	return metrics.New(metrics.Config{Version: cfg.Version, Plane: s.plane, Rows: rows.store, Jobs: cfg.MetricsJobs, Store: measured, Ready: s.Ready, Route: route, Logger: cfg.Logger,
		Extra: s.extra})
}

// Client returns a client of the default tenant, which enqueues runs, waits for them and cancels them. Its requests
// need Run. A handler uses carillon.ClientFrom(ctx) instead, whose runs are children of the handler's run.
func (s *Scheduler) Client() *client.Client { return s.client }

// Ops returns the operations of people: edit, pause, trigger and so on. Package ops is not promised.
func (s *Scheduler) Ops() *ops.Ops { return s.ops }

// Handler serves the pages, the API and the metrics. Config.Who or Config.Tokens authenticates its requests.
func (s *Scheduler) Handler() http.Handler { return s.handler() }

// Ready returns nil if the store answers and a node leads, and otherwise the reason why this process cannot serve
// requests.
func (s *Scheduler) Ready(ctx context.Context) error {
	if s.stopping.Load() {
		return kernel.Refuse(jobs.Unavailable, "stopping")
	}
	if err := s.store.ready(ctx); err != nil {
		return err
	}
	return s.ops.Ready(ctx)
}

// Leads returns nil if this process leads, and otherwise the reason why it does not.
func (s *Scheduler) Leads(ctx context.Context) error {
	switch leader := s.plane.Leader(); {
	case s.stopping.Load():
		return kernel.Refuse(jobs.Unavailable, "stopping")
	case s.store.leads():
		return nil
	case leader.Term > 0:
		return kernel.Refuse(jobs.Unavailable, "node %s leads", leader.Name)
	}
	return kernel.Refuse(jobs.Unavailable, "this node does not lead")
}

// Close closes what Open opened, last first. Run must have returned.
func (s *Scheduler) Close() error {
	var errs []error
	for _, end := range slices.Backward(s.close) {
		errs = append(errs, end())
	}
	s.close = nil
	return errors.Join(errs...)
}
