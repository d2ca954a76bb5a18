// Package ops holds what people and programs can do with a scheduler: one function per verb.
//
// The API, the pages, the client and the command line all call these, so that a verb means the same everywhere. A
// function here looks before it acts: it reads what it needs, says in a sentence what is wrong, and only then
// sends commands to the store, which decides.
//
// Where to start: [New], then the file of the verb: jobs.go (list, read), edit.go (edit, pause, resume),
// trigger.go (one run, many, again), instances.go (list, read, cancel, log), settings.go (debug modes),
// overview.go. What only a running control plane knows comes through [Live].
//
// Sharp edges: rows inside the answers are shared with the store and must not be changed. Who asks is never
// guessed: it comes in from the edge as a [Who].
package ops

import (
	"context"
	"fmt"
	"time"

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
	// Now is the clock, for what is ahead and behind on a page; nil means time.Now.
	Now func() time.Time
}

// Ops are the verbs. Any number of goroutines may share it.
type Ops struct {
	store metastore.Store
	logs  metastore.Logs
	live  Live
	now   func() time.Time
}

// New makes the verbs of a store.
func New(c Config) *Ops {
	o := &Ops{store: c.Store, logs: c.Logs, live: c.Live, now: c.Now}
	if o.live == nil {
		o.live = nobody{}
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
}

func (w Who) tenant() jobs.Tenant {
	if w.Tenant == "" {
		return jobs.DefaultTenant
	}
	return w.Tenant
}

// Now is the time by which the verbs judge what is ahead.
func (o *Ops) Now() time.Time { return jobs.Instant(o.now()) }

// Live is what only the running parts know.
func (o *Ops) Live() Live { return o.live }

// Ready says, in words for anybody, why nothing can be done here yet, or nil.
func (o *Ops) Ready(ctx context.Context) error {
	if _, err := o.store.Global(ctx, jobs.DefaultTenant); err != nil {
		return jobs.Refuse(jobs.Unavailable, "the store does not answer")
	}
	if !o.live.Leader().Known() {
		return jobs.Refuse(jobs.Unavailable, "no node leads yet")
	}
	return nil
}

// envelope puts a command into the words of who asks.
func (o *Ops) envelope(who Who, c jobs.Command) jobs.Envelope {
	return jobs.Envelope{ID: jobs.NewID(o.now()), Tenant: who.tenant(), Actor: who.Actor, Reason: who.Reason, Command: c}
}

// apply sends one command.
func (o *Ops) apply(ctx context.Context, who Who, c jobs.Command) (jobs.Effect, error) {
	results := o.store.Apply(ctx, []jobs.Envelope{o.envelope(who, c)})
	if len(results) != 1 {
		return jobs.Effect{}, fmt.Errorf("%s: %d answers to one command", c.Verb(), len(results))
	}
	return results[0].Effect, results[0].Err
}
