package embed

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore"
)

// led is a store for what asks a process that may not lead: its pages, its API, the programs in it. Commands go to
// whoever leads, since the leader offers what comes of them: to this process's own control plane while that is it, and
// through the courier otherwise. The courier asks for half a minute, which a change of leaders does not take.
type led struct {
	metastore.Reader
	plane  *controlplane.ControlPlane
	here   metastore.Store
	there  metastore.Store  // through the bus, wherever the leader is
	copies *raftstore.Store // nil = there is no copy of the rows here
	apart  bool             // there is no bus to the leader, which finds in the database what is written here
}

// newLed makes the store of a process whose rows are here. Rows in a database are everybody's, and are read there;
// copies are read at the leader, because here they may be a moment old.
func newLed(plane *controlplane.ControlPlane, quota *metastore.Quota, there metastore.Store, copies *raftstore.Store, everybodys, apart bool) *led {
	l := &led{plane: plane, here: quota.Bound(plane.Store()), there: there, copies: copies, apart: apart}
	if l.Reader = (elsewhere{l}); everybodys {
		l.Reader = l.here
	}
	return l
}

func (l *led) leads() bool {
	term, _ := l.plane.Leading()
	return term > 0
}

// Apply has the leader apply the batch. What this node was leading too briefly for is asked for again elsewhere, in
// the same words, so that it is done once.
func (l *led) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	if l.apart {
		return l.here.Apply(ctx, batch)
	}
	if !l.leads() {
		return l.there.Apply(ctx, batch)
	}
	results := l.here.Apply(ctx, batch)
	var open []int
	for i := range results {
		if again(results[i].Err) {
			open = append(open, i)
		}
	}
	if len(open) == 0 || l.leads() || ctx.Err() != nil {
		return results
	}
	rest := make([]kernel.Envelope, len(open))
	for k, i := range open {
		rest[k] = batch[i]
	}
	for k, r := range l.there.Apply(ctx, rest) {
		i := open[k]
		if jobs.CodeOf(results[i].Err) == jobs.Unknown && jobs.CodeOf(r.Err) == jobs.Unavailable {
			continue // the first time it may have been done
		}
		results[i] = r
	}
	return results
}

// wishes is where wishes in the database are brought to.
func (l *led) wishes() metastore.Applier {
	if l.apart {
		return leaders{l}
	}
	return l
}

// leaders refuses what comes while this process does not lead, because the one that does is brought the same.
type leaders struct{ *led }

func (l leaders) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	if !l.leads() {
		return metastore.Refused(batch, kernel.Refuse(jobs.Unavailable, "this node does not lead"))
	}
	return l.led.Apply(ctx, batch)
}

// again says that somebody else may know better.
func again(err error) bool {
	if err == nil {
		return false
	}
	code := jobs.CodeOf(err)
	return code == jobs.Unavailable || code == jobs.Unknown
}

// soon is how long the leader may take to answer one who asks whether it does.
const soon = 2 * time.Second

// ready says why nothing can be done through this store, or nil: the leader answers.
func (l *led) ready(ctx context.Context) error {
	if l.leads() {
		return nil
	}
	if l.apart {
		return kernel.Refuse(jobs.Unavailable, "this node stands by: another one leads, or will in a moment this one")
	}
	leader := l.plane.Leader()
	if leader.Term == 0 {
		return kernel.Refuse(jobs.Unavailable, "no node leads yet")
	}
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	if _, err := l.there.Global(ctx, jobs.DefaultTenant); err != nil {
		return kernel.Refuse(jobs.Unavailable, "node %s leads and does not answer", leader.Name)
	}
	return nil
}

// elsewhere reads where the newest rows are: at the leader, which makes sure that it still is one. While nobody leads, or
// the leader does not answer, it reads the copy that is here and says how old that may be (metastore.AgeOf): pages that
// tell what held a moment ago are better than none.
type elsewhere struct{ *led }

// readPatience is how long the leader may take to answer before the copy is read. That it died is known sooner.
const readPatience = soon

// current says why what is read here may not be what holds, while this node leads: it may not know yet that it does not.
func (l *led) current(ctx context.Context) error {
	if l.copies == nil || l.copies.Alone() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	return l.copies.Linearizable(ctx)
}

// read reads at the leader, or the copy that is here.
func read[A any](ctx context.Context, e elsewhere, ask func(context.Context, metastore.Reader) (A, error)) (answer A, err error) {
	leader := e.plane.Leader()
	switch {
	case metastore.CopyWillDo(ctx) && e.copies != nil && e.copies.Whole():
		return ask(ctx, e.here)
	case leader.Here && e.current(ctx) == nil, e.copies == nil && (leader.Here || leader.Term == 0):
		return ask(ctx, e.here)
	case leader.Term > 0 && !leader.Here && (e.copies == nil || e.copies.Heard()):
		asking, cancel := context.WithTimeout(ctx, readPatience)
		answer, err = ask(asking, e.there)
		cancel()
		if err == nil || e.copies == nil || !again(err) && !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return answer, err
		}
	}
	if !e.copies.Whole() { // it may lack everything
		return answer, kernel.Refuse(jobs.Unavailable, "the leader does not answer, and the copy of this node is not whole since it was started")
	}
	metastore.NoteAge(ctx, max(e.copies.Age(), time.Millisecond))
	return ask(ctx, e.here)
}

func (e elsewhere) Definition(ctx context.Context, tenant jobs.Tenant, key jobs.Key) (*kernel.Definition, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) (*kernel.Definition, error) {
		return r.Definition(ctx, tenant, key)
	})
}

func (e elsewhere) Definitions(ctx context.Context, q metastore.DefinitionQuery) ([]*kernel.Definition, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) ([]*kernel.Definition, error) {
		return r.Definitions(ctx, q)
	})
}

func (e elsewhere) Run(ctx context.Context, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) (*kernel.Run, error) {
		return r.Run(ctx, tenant, id)
	})
}

func (e elsewhere) Runs(ctx context.Context, q metastore.RunQuery) (metastore.Page, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) (metastore.Page, error) { return r.Runs(ctx, q) })
}

func (e elsewhere) Ledger(ctx context.Context, tenant jobs.Tenant, job jobs.ID, limit int) ([]*kernel.Missed, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) ([]*kernel.Missed, error) {
		return r.Ledger(ctx, tenant, job, limit)
	})
}

func (e elsewhere) Counts(ctx context.Context, q metastore.CountQuery) (metastore.Counts, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) (metastore.Counts, error) { return r.Counts(ctx, q) })
}

func (e elsewhere) Global(ctx context.Context, tenant jobs.Tenant) (*kernel.Global, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) (*kernel.Global, error) { return r.Global(ctx, tenant) })
}

func (e elsewhere) Token(ctx context.Context, tenant jobs.Tenant, id string) (*kernel.Token, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) (*kernel.Token, error) { return r.Token(ctx, tenant, id) })
}

func (e elsewhere) Tokens(ctx context.Context, tenant jobs.Tenant) ([]*kernel.Token, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) ([]*kernel.Token, error) { return r.Tokens(ctx, tenant) })
}

func (e elsewhere) Session(ctx context.Context, tenant jobs.Tenant, id string) (*kernel.Session, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) (*kernel.Session, error) {
		return r.Session(ctx, tenant, id)
	})
}

func (e elsewhere) History(ctx context.Context, tenant jobs.Tenant, job jobs.ID) (*kernel.History, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) (*kernel.History, error) {
		return r.History(ctx, tenant, job)
	})
}

func (e elsewhere) Calendars(ctx context.Context, tenant jobs.Tenant) ([]*kernel.Calendar, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) ([]*kernel.Calendar, error) {
		return r.Calendars(ctx, tenant)
	})
}

func (e elsewhere) Audits(ctx context.Context, q metastore.AuditQuery) ([]*kernel.Audit, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) ([]*kernel.Audit, error) { return r.Audits(ctx, q) })
}

// doorkeeper opens the bus of a process to others for as long as it leads.
type doorkeeper struct {
	controlplane.Elector
	open func() (shut func(), err error)
}

func (d doorkeeper) Lead(ctx context.Context, lead func(context.Context, uint64) error) error {
	return d.Elector.Lead(ctx, func(ctx context.Context, term uint64) error {
		shut, err := d.open()
		if err != nil {
			return err
		}
		defer shut()
		return lead(ctx, term)
	})
}
