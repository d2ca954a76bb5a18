package ops

import (
	"context"
	"errors"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Ops reads a store, and only gate writes to one: no function can send a command without saying for whom. What that
// caller may do is decided with the command (kernel.Sender). What is here is about reads and about what is no command,
// and refuses a bulk as a whole.

// gate sends commands to a store.
type gate struct{ store metastore.Store }

// commit applies commands of a caller.
func (g gate) commit(ctx context.Context, who Who, batch []kernel.Envelope) []metastore.Result {
	as := who.sender()
	for i := range batch {
		batch[i].Sender = as
	}
	return g.store.Apply(ctx, batch)
}

// sender is the caller as the rules know it.
func (w Who) sender() *kernel.Sender {
	if w.system {
		return nil
	}
	s := &kernel.Sender{As: sentAs[w.Role], Home: w.Home}
	if w.callback {
		s.As = kernel.AsCallback
	}
	if w.Scope != nil {
		s.Scope = *w.Scope
	}
	return s
}

// sentAs are the kinds of senders by role. A worker sends its commands as such, over a bus.
var sentAs = [...]kernel.SentAs{ClientRole: kernel.AsClient, Viewer: kernel.AsViewer, Operator: kernel.AsOperator, Admin: kernel.AsAdmin}

// permitsRun returns why a caller may not see or act on a run, or nil. Of a deleted job, the tags are not known any more.
func (o *Ops) permitsRun(ctx context.Context, who Who, run *kernel.Run) error {
	d, err := o.store.Definition(ctx, run.Tenant, run.Key)
	if errors.Is(err, jobs.NotFound) {
		d, err = &kernel.Definition{Key: run.Key, App: run.App}, nil
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
	return w.sender().Permits(w.Actor, d.Key, d.App, d.Policy.Tags)
}

// unlimited refuses what is about more than one job.
func (w Who) unlimited() error {
	if w.Role == ClientRole {
		return kernel.ErrStartsOnly
	}
	return w.sender().PermitsAll()
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
