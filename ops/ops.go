// Package ops implements what users and programs can do with a scheduler: one function per verb.
//
// It is not promised to programs outside this module.
//
// Where to start: [New], then the file of the verb: jobs.go (list, read), edit.go (edit, pause, resume), trigger.go
// (one run, many, again), runs.go (list, read, cancel, log), settings.go (debug modes), overview.go. What only a
// running control plane knows comes through [Live].
//
// The API, the pages, the client and the command line all call these functions, so that a verb means the same
// everywhere. A function reads what it needs, refuses what is wrong with a sentence, and then sends commands to the
// store, which decides.
//
// Sharp edges: rows inside results are shared with the store and must not be changed. The caller's identity is never
// guessed: the edge passes a [Who].
package ops

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/alarms"
	"github.com/carillon-scheduler/carillon/internal/argschema"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Config configures the verbs.
type Config struct {
	// Store applies the commands. Beside a control plane it is the announcing one, so that workers are notified at
	// once.
	Store metastore.Store
	// Logs is where the lines of runs are read; nil means that there are none.
	Logs metastore.Logs
	// Live is the state that is not in the store; nil means that none is known.
	Live Live
	// HTTPWorkers serves workers that poll over HTTP; nil refuses them.
	HTTPWorkers HTTPWorkers
	// Cluster is the cluster of this node; nil means that there is none.
	Cluster Cluster
	// Node is the name of this process, in the audit of what it refuses.
	Node string
	// Outbox has the requests from programs' transactions; nil means that the store takes none.
	Outbox metastore.Outbox
	// Authenticates is whether callers are authenticated. Without, there are no tenants but the default one.
	Authenticates bool
	// Backup writes all that the store holds; nil refuses backups.
	Backup func(ctx context.Context, to io.Writer) error
	// Purging returns the state of retention; nil means that it is not known.
	Cleaning func() Purging
	// CheckArgs compiles a JSON Schema into a check of arguments, which returns the place of an error ("" = all of it)
	// and the error; nil means that arguments are not checked.
	CheckArgs func(schema []byte) (check func(args []byte) (place string, err error))
	// CheckHTTP validates the HTTP requests of a job. It returns the place of an error (such as request[1].url, "" =
	// all of it) and the error; nil means that they are not checked before they run.
	CheckHTTP func(app string, http []byte) (place string, err error)
	// SendAlarm sends a message of an alarm, once; nil means that this process sends none.
	SendAlarm func(context.Context, alarms.Target, alarms.Message) alarms.Answer
	// Sessions are when sessions of browsers end.
	Sessions SessionLimits
	// Logger gets the changes that the audit does not have; nil means discard.
	Logger *slog.Logger
	// Now is the clock for due times on pages; nil means time.Now.
	Now func() time.Time
	// ForecastWork is how long a call may work on a forecast, or wait for one; default 2 s.
	ForecastWork time.Duration
}

// Ops are the verbs. It is safe for concurrent use.
type Ops struct {
	dues        dues
	denials     denials
	node        string
	closed      closed
	store       metastore.Reader
	gate        gate
	logs        metastore.Logs
	live        Live
	httpWorkers HTTPWorkers
	cluster     Cluster
	outbox      metastore.Outbox
	log         *slog.Logger
	backup      func(context.Context, io.Writer) error
	cleaning    func() Purging
	args        argschema.Cache
	// authenticates: see Config
	authenticates bool
	http          func(string, []byte) (string, error)
	seen          lately[[]Attention]
	ailing        lately[ailing]
	ahead         forecasts
	exporting     sync.Mutex // held while a ledger is exported
	forecastWork  time.Duration
	sessions      SessionLimits
	sendAlarm     func(context.Context, alarms.Target, alarms.Message) alarms.Answer
	now           func() time.Time
}

// New returns the verbs of a store.
func New(c Config) *Ops {
	o := &Ops{store: c.Store, gate: gate{c.Store}, logs: c.Logs, live: c.Live, httpWorkers: c.HTTPWorkers, cluster: c.Cluster, outbox: c.Outbox, log: c.Logger, backup: c.Backup, cleaning: c.Cleaning, http: c.CheckHTTP, sessions: c.Sessions.orDefault(), sendAlarm: c.SendAlarm, now: c.Now, authenticates: c.Authenticates, node: c.Node}
	if o.forecastWork = c.ForecastWork; o.forecastWork <= 0 {
		o.forecastWork = forecastWork
	}
	if o.live == nil {
		o.live = noLive{}
	}
	if o.httpWorkers == nil {
		o.httpWorkers = noHTTPWorkers{}
	}
	if o.log == nil {
		o.log = slog.New(slog.DiscardHandler)
	}
	if o.now == nil {
		o.now = time.Now
	}
	return o
}

// Who is the caller: its tenant, actor and role. The edge fills it after authentication.
type Who struct {
	Tenant jobs.Tenant   // "" = the default tenant
	Actor  string        // such as "person:ann"
	Reason string        // the caller's text; recorded with the change
	Role   Role          // the caller's role: checked where requests arrive, by the rule of each route
	Scope  *kernel.Scope // the jobs that it may act on; nil = all
	Choice bool          // a session that may be switched to other tenants
	App    string        // of a worker: the only worker group that it may serve; "" = any
	Home   jobs.Tenant   // the tenant of its rights, if it acts in another one; "" = Tenant

	system   bool // this process itself
	callback bool // the service of an HTTP job, which signs its report
}

func (w Who) tenant() jobs.Tenant {
	if w.Tenant == "" {
		return jobs.DefaultTenant
	}
	return w.Tenant
}

// onBehalf is the actor of the consequences of a change to many runs. The audit has an entry for the change, and none
// for each run.
func (w Who) onBehalf(of string) Who {
	w.Actor = of + " by " + w.Actor
	return w
}

// Now returns the time that separates past from future due times.
func (o *Ops) Now() time.Time { return kernel.Instant(o.now()) }

// Live returns the state that only the running parts know.
func (o *Ops) Live() Live { return o.live }

// Ready returns why the node is not ready, for users, or nil.
func (o *Ops) Ready(ctx context.Context) error {
	if _, err := o.store.Global(ctx, jobs.DefaultTenant); err != nil {
		return kernel.Refuse(jobs.Unavailable, "the store does not answer")
	}
	if !o.live.Leader().Known() {
		return kernel.Refuse(jobs.Unavailable, "there is no leader yet")
	}
	return nil
}

// envelope wraps a command with the caller's identity.
func (o *Ops) envelope(who Who, c kernel.Command) kernel.Envelope {
	return kernel.Envelope{ID: jobs.NewID(o.now()), Tenant: who.tenant(), Actor: who.Actor, Reason: who.Reason, Command: c}
}

// after converts an error after a commit: a failed read does not mean that nothing was done.
func after(err error) error {
	if jobs.CodeOf(err) == jobs.Unavailable {
		return kernel.Refuse(jobs.Unknown, "unknown outcome: the change was committed, but its result cannot be read: %v", err)
	}
	return err
}

// apply sends one command.
func (o *Ops) apply(ctx context.Context, who Who, c kernel.Command) (kernel.Effect, error) {
	results := o.gate.commit(ctx, who, []kernel.Envelope{o.envelope(who, c)})
	if len(results) != 1 {
		return kernel.Effect{}, fmt.Errorf("%s: %d answers to one command", c.Verb(), len(results))
	}
	return results[0].Effect, results[0].Err
}
