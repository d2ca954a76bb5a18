// Package ops holds what people and programs can do with a scheduler: one function per verb.
//
// The API, the pages, the client and the command line all call these, so that a verb means the same everywhere. A
// function here looks before it acts: it reads what it needs, says in a sentence what is wrong, and only then
// sends commands to the store, which decides.
//
// Where to start: [New], then the file of the verb: jobs.go (list, read), edit.go (edit, pause, resume),
// trigger.go (one run, many, again), runs.go (list, read, cancel, log), settings.go (debug modes),
// overview.go. What only a running control plane knows comes through [Live].
//
// Sharp edges: rows inside the answers are shared with the store and must not be changed. Who asks is never
// guessed: it comes in from the edge as a [Who].
package ops

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/carillon-scheduler/carillon/internal/argschema"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Config is what the verbs stand on.
type Config struct {
	// Store takes the commands. Beside a control plane it is the announced one, so that workers hear at once.
	Store metastore.Store
	// Logs is where the lines of runs are read; nil means that there are none.
	Logs metastore.Logs
	// Live knows what is not in the store; nil means that nothing is known.
	Live Live
	// Pull is where workers come that ask for work over HTTP; nil means that none may.
	Pull Pull
	// Cluster is what this process does with others; nil means that it is alone.
	Cluster Cluster
	// Backup writes all that the store holds; nil means that it cannot be had.
	Backup func(ctx context.Context, to io.Writer) error
	// Cleaning is what is known of clearing runs away; nil means that nothing is.
	Cleaning func() Cleaning
	// CheckHTTP reads what an HTTP job of an app is to do, and answers with the place of what is wrong (such as request[1].url, "" =
	// all of it) and why; nil means that it is not looked at before it runs.
	CheckHTTP func(app string, http []byte) (place string, err error)
	// Now is the clock, for what is ahead and behind on a page; nil means time.Now.
	Now func() time.Time
	// ForecastWork is how long a call may work on a forecast, or wait for one; default 2 s.
	ForecastWork time.Duration
}

// Ops are the verbs. Any number of goroutines may share it.
type Ops struct {
	dues         dues
	closed       closed
	store        metastore.Store
	logs         metastore.Logs
	live         Live
	pull         Pull
	cluster      Cluster
	backup       func(context.Context, io.Writer) error
	cleaning     func() Cleaning
	args         argschema.Cache
	http         func(string, []byte) (string, error)
	seen         lately[[]Attention]
	ahead        forecasts
	forecastWork time.Duration
	now          func() time.Time
}

// New makes the verbs of a store.
func New(c Config) *Ops {
	o := &Ops{store: c.Store, logs: c.Logs, live: c.Live, pull: c.Pull, cluster: c.Cluster, backup: c.Backup, cleaning: c.Cleaning, http: c.CheckHTTP, now: c.Now}
	if o.forecastWork = c.ForecastWork; o.forecastWork <= 0 {
		o.forecastWork = forecastWork
	}
	if o.live == nil {
		o.live = nobody{}
	}
	if o.pull == nil {
		o.pull = noPull{}
	}
	if o.now == nil {
		o.now = time.Now
	}
	return o
}

// Who asks, for which tenant, and why. The edge fills it from what it knows of the caller.
type Who struct {
	Tenant jobs.Tenant // "" = the default tenant
	Actor  string      // such as "person:ann"
	Reason string      // in the asker's words; kept with the change
	Role   Role        // what the asker may do: judged where requests come in, by the rule of each route
	Worker bool        // it holds a worker's token: it may work, and nothing else
	App    string      // of a worker: the only worker group that it may serve; "" = any
}

func (w Who) tenant() jobs.Tenant {
	if w.Tenant == "" {
		return jobs.DefaultTenant
	}
	return w.Tenant
}

// onBehalf is who does what follows from a change of many runs. The record of changes has a line about the change, and
// needs none for each run.
func (w Who) onBehalf(of string) Who {
	w.Actor = of + " by " + w.Actor
	return w
}

// Now is the time by which the verbs judge what is ahead.
func (o *Ops) Now() time.Time { return kernel.Instant(o.now()) }

// Live is what only the running parts know.
func (o *Ops) Live() Live { return o.live }

// Ready says, in words for anybody, why nothing can be done here yet, or nil.
func (o *Ops) Ready(ctx context.Context) error {
	if _, err := o.store.Global(ctx, jobs.DefaultTenant); err != nil {
		return kernel.Refuse(jobs.Unavailable, "the store does not answer")
	}
	if !o.live.Leader().Known() {
		return kernel.Refuse(jobs.Unavailable, "no node leads yet")
	}
	return nil
}

// envelope puts a command into the words of who asks.
func (o *Ops) envelope(who Who, c kernel.Command) kernel.Envelope {
	return kernel.Envelope{ID: jobs.NewID(o.now()), Tenant: who.tenant(), Actor: who.Actor, Reason: who.Reason, Command: c}
}

// after is what an error means that came behind a commit: that something cannot be read does not say that nothing was
// done.
func after(err error) error {
	if jobs.CodeOf(err) == jobs.Unavailable {
		return kernel.Refuse(jobs.Unknown, "it was done, as far as it got; what it came to is not known: %v", err)
	}
	return err
}

// apply sends one command.
func (o *Ops) apply(ctx context.Context, who Who, c kernel.Command) (kernel.Effect, error) {
	results := o.store.Apply(ctx, []kernel.Envelope{o.envelope(who, c)})
	if len(results) != 1 {
		return kernel.Effect{}, fmt.Errorf("%s: %d answers to one command", c.Verb(), len(results))
	}
	return results[0].Effect, results[0].Err
}
