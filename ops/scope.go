package ops

import (
	"context"
	"errors"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// An operator or a client may be limited to some jobs. Its commands pass here: Ops reads a store, and only gate writes to one, so
// that no function can send a command past the scope of its caller.

// gate sends commands to a store.
type gate struct{ store metastore.Store }

// commit applies commands of a caller. Those outside its scope are refused, and not sent; the others are.
func (g gate) commit(ctx context.Context, who Who, batch []kernel.Envelope) []metastore.Result {
	if who.Scope == nil && who.Role != ClientRole {
		return g.store.Apply(ctx, batch)
	}
	results := make([]metastore.Result, len(batch))
	var sent []kernel.Envelope
	var places []int
	for i, e := range batch {
		if results[i].Err = g.permits(ctx, who, e); results[i].Err == nil {
			sent, places = append(sent, e), append(places, i)
		}
	}
	if len(sent) == 0 {
		return results
	}
	for n, r := range g.store.Apply(ctx, sent) {
		results[places[n]] = r
	}
	return results
}

// permits returns why a client, or a caller with a scope, may not send a command, or nil. A command that is not named
// here is about more than one job.
func (g gate) permits(ctx context.Context, who Who, e kernel.Envelope) error {
	if err := who.sends(e.Command); err != nil {
		return err
	}
	switch k := e.Command.(type) {
	case kernel.SignIn, kernel.Touch, kernel.SignOut, kernel.LedgerKey: // its own session, and what it may read
		return nil
	case kernel.Create:
		if err := g.permitsBatch(ctx, who, e.Tenant, k.Batch); err != nil {
			return err
		}
		return g.permitsJob(ctx, who, e.Tenant, k.Key)
	case kernel.Pause:
		return g.permitsJob(ctx, who, e.Tenant, k.Key)
	case kernel.Resume:
		return g.permitsJob(ctx, who, e.Tenant, k.Key)
	case kernel.Backfill:
		return g.permitsJob(ctx, who, e.Tenant, k.Key)
	case kernel.CheckIn:
		return g.permitsJob(ctx, who, e.Tenant, k.Key)
	case kernel.OpenBatch:
		return g.permitsJob(ctx, who, e.Tenant, k.Then)
	case kernel.CloseBatch:
		return g.permitsBatch(ctx, who, e.Tenant, k.ID)
	case kernel.EndAlarm:
		if k.Job == "" {
			return who.unlimited()
		}
		return g.permitsOf(ctx, who, e.Tenant, k.Job, k.App)
	case kernel.Cancel:
		return g.permitsRun(ctx, who, e.Tenant, k.ID)
	case kernel.Release:
		return g.permitsRun(ctx, who, e.Tenant, k.ID)
	}
	return who.unlimited()
}

// permitsBatch returns why a caller may not act on a batch: a run that is added holds up its end.
func (g gate) permitsBatch(ctx context.Context, who Who, t jobs.Tenant, id jobs.ID) error {
	if id.IsZero() {
		return nil
	}
	b, err := batchOf(ctx, g.store, t, id)
	if err != nil {
		return err
	}
	return g.permitsJob(ctx, who, t, b.Then)
}

func (g gate) permitsJob(ctx context.Context, who Who, t jobs.Tenant, key jobs.Key) error {
	if who.Scope == nil {
		return nil
	}
	d, err := g.store.Definition(ctx, t, key)
	switch {
	case errors.Is(err, jobs.NotFound):
		return nil // the store refuses it
	case err != nil:
		return err
	}
	return who.permits(d)
}

func (g gate) permitsRun(ctx context.Context, who Who, t jobs.Tenant, id jobs.ID) error {
	if who.Scope == nil {
		return nil
	}
	run, err := g.store.Run(ctx, t, id)
	if err != nil {
		return err
	}
	return g.permitsOf(ctx, who, t, run.Key, run.App)
}

// permitsOf is permitsJob for what may outlast its job: of a deleted one, the tags are not known any more.
func (g gate) permitsOf(ctx context.Context, who Who, t jobs.Tenant, key jobs.Key, app string) error {
	d, err := g.store.Definition(ctx, t, key)
	if errors.Is(err, jobs.NotFound) {
		d, err = &kernel.Definition{Key: key, App: app}, nil
	}
	if err != nil {
		return err
	}
	return who.permits(d)
}

// May reports whether the caller's scope has a job.
func (w Who) May(d *kernel.Definition) bool {
	return w.Scope == nil || w.Scope.Has(d.Key, d.App, d.Policy.Tags)
}

func (w Who) permits(d *kernel.Definition) error {
	switch {
	case w.May(d):
		return nil
	case w.Role == ClientRole:
		return kernel.Refuse(jobs.Forbidden, "job %s is not in your scope (%s)", d.Key, w.Scope)
	}
	return kernel.Refuse(jobs.Forbidden, "job %s is not in your scope (%s): you may read it, but not act on it", d.Key, w.Scope)
}

var errStartsOnly = kernel.Refuse(jobs.Forbidden, "the role client may only start runs")

// sends refuses a client all commands but those that start a run as programs do.
func (w Who) sends(c kernel.Command) error {
	if k, starts := c.(kernel.Create); w.Role == ClientRole && (!starts || k.Origin != kernel.FromAPI) {
		return errStartsOnly
	}
	return nil
}

// unlimited refuses what is about more than one job.
func (w Who) unlimited() error {
	switch {
	case w.Role == ClientRole:
		return errStartsOnly
	case w.Scope == nil:
		return nil
	}
	return kernel.Refuse(jobs.Forbidden, "this acts on more than the jobs in your scope (%s)", w.Scope)
}

// scoped returns a scope for a Who; nil: all jobs.
func scoped(s kernel.Scope) *kernel.Scope {
	if s.All() {
		return nil
	}
	return &s
}

// Allowed returns which jobs the caller's scope has; nil if it has none or is all jobs.
func (o *Ops) Allowed(ctx context.Context, who Who, keys []jobs.Key) (map[jobs.Key]bool, error) {
	if who.Scope == nil || !who.Role.Covers(Operator) || len(keys) == 0 {
		return nil, nil
	}
	list, err := o.store.Definitions(ctx, metastore.DefinitionQuery{Tenant: who.tenant(), Keys: keys})
	if err != nil {
		return nil, err
	}
	may := map[jobs.Key]bool{}
	for _, d := range list {
		may[d.Key] = who.May(d)
	}
	return may, nil
}
