package embed

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// led is the store for the pages, the API and the clients of a process that may not lead. Commands go to the leader,
// which dispatches their runs: to this process's control plane while it leads, and over the bus otherwise. The bus
// retries them for 30 s, longer than an election.
type led struct {
	metastore.Reader
	plane  *controlplane.ControlPlane
	here   metastore.Store
	there  metastore.Store // over the bus
	copies copies          // nil = there is no copy of the rows here
	road   *road           // nil = the bus is not found through a database
}

// copies is a store of which every process has all rows, which may be a moment old.
type copies interface {
	// Linearizable returns when reads here include all that any process acknowledged before the call. A store may
	// refuse that to processes that do not lead: jobs.Unavailable.
	Linearizable(ctx context.Context) error
	Age() time.Duration // how old the rows here may be
	Whole() bool        // they have been complete since this process began
	HasLeader() bool    // this process knows of a leader
	Alone() bool        // no other process can have acknowledged anything
}

// newLed makes the store of a process.
func newLed(plane *controlplane.ControlPlane, quota *metastore.Quota, there metastore.Store, copies copies, way *road) *led {
	l := &led{plane: plane, here: quota.Bound(plane.Store()), there: there, copies: copies, road: way}
	l.Reader = elsewhere{l}
	return l
}

func (l *led) leads() bool {
	term, _ := l.plane.Leading()
	return term > 0
}

// Apply sends the batch to the leader. If this node stops leading meanwhile, commands without a result are sent again,
// unchanged, to the new leader: commands are idempotent.
func (l *led) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
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
			continue // the first attempt may have been applied
		}
		results[i] = r
	}
	return results
}

// leaders refuses commands while this process does not lead, because the leader gets the same commands from the
// database.
type leaders struct{ *led }

func (l leaders) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	if !l.leads() {
		return metastore.Refused(batch, kernel.Refuse(jobs.Unavailable, "this node does not lead"))
	}
	return l.led.Apply(ctx, batch)
}

// atLeader applies commands at the leader, once the scheduler is open.
type atLeader struct{ *Scheduler }

func (a atLeader) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	return a.store.Apply(ctx, batch)
}

// again reports whether another node may have a result.
func again(err error) bool {
	if err == nil {
		return false
	}
	code := jobs.CodeOf(err)
	return code == jobs.Unavailable || code == jobs.Unknown
}

// leader returns the name and the term of the leader, as far as this process knows; term 0 = there is none.
func (l *led) leader() (name string, term uint64) {
	if n := l.plane.Leader(); n.Term > 0 || l.road == nil {
		return n.Name, n.Term
	}
	r := l.road.leader() // this process may not be connected
	return r.Node, r.Term
}

// soon is the timeout of short requests to the leader.
const soon = 2 * time.Second

// ready returns nil if the leader answers, so that workers can be served here, and otherwise why it cannot be reached.
func (l *led) ready(ctx context.Context) error {
	if l.leads() {
		return nil
	}
	name, term := l.leader()
	switch {
	case term == 0 && l.copies != nil && l.copies.HasLeader():
		return kernel.Refuse(jobs.Unavailable, "a node leads, but the bus does not carry its messages: check the connections between the NATS servers of the nodes")
	case term == 0:
		return kernel.Refuse(jobs.Unavailable, "no node leads yet")
	}
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	if _, err := l.there.Global(ctx, jobs.DefaultTenant); err != nil {
		return kernel.Refuse(jobs.Unavailable, "the leader, node %s, does not answer", name)
	}
	return nil
}

// elsewhere reads this node's copy if that is known to be current, and else at the leader, which verifies that it still
// leads. While there is no leader, or it does not answer, elsewhere reads the copy for callers that look at its age
// (metastore.WithAge): stale pages are better than none. A copy cannot know what does not exist, and nothing is decided
// by it.
type elsewhere struct{ *led }

// readPatience is the timeout of a read at the leader, after which the copy is read.
const readPatience = soon

// copyPatience is the timeout of a read of the copy. Its rows are in memory, its finished runs perhaps in a database that
// is silent, too.
const copyPatience = time.Second

// current returns an error if this node's rows may be stale: another node may have been elected without its knowledge.
func (l *led) current(ctx context.Context) error {
	if l.copies == nil || l.copies.Alone() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	return l.copies.Linearizable(ctx)
}

// read reads at the leader, or this node's copy.
func read[A any](ctx context.Context, e elsewhere, ask func(context.Context, metastore.Reader) (A, error)) (answer A, err error) {
	_, term := e.leader()
	switch here := e.leads(); {
	case metastore.AgeOf(ctx) > 0 && e.copies != nil: // a read of this request has waited for the leader already
	case metastore.CopyWillDo(ctx) && e.copies != nil && e.copies.Whole():
		return ask(ctx, e.here)
	case e.copies != nil && e.current(ctx) == nil, e.copies == nil && (here || term == 0):
		return ask(ctx, e.here)
	case term > 0 && !here && (e.copies == nil || e.copies.HasLeader()):
		asking, cancel := context.WithTimeout(ctx, readPatience)
		answer, err = ask(asking, e.there)
		cancel()
		if err == nil || e.copies == nil || !again(err) && !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return answer, err
		}
	}
	if !e.copies.Whole() { // it may be empty
		return answer, kernel.Refuse(jobs.Unavailable, "the leader does not answer, and this node's copy is incomplete since its start")
	}
	age := max(e.copies.Age(), time.Millisecond)
	if !metastore.NoteAge(ctx, age) {
		return answer, kernel.Refuse(jobs.Unavailable, "the leader does not answer")
	}
	reading, cancel := context.WithTimeout(ctx, copyPatience)
	defer cancel()
	switch answer, err = ask(reading, e.here); {
	case err != nil && reading.Err() != nil && ctx.Err() == nil:
		err = kernel.Refuse(jobs.Unavailable, "neither the leader nor the database answers")
	case jobs.CodeOf(err) == jobs.NotFound:
		err = kernel.Refuse(jobs.Unavailable, "the leader does not answer, and this node's copy, which may be %v old, does not have it: %v",
			age.Round(time.Millisecond), err)
	}
	return answer, err
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

func (e elsewhere) Sessions(ctx context.Context, tenant jobs.Tenant) ([]*kernel.Session, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) ([]*kernel.Session, error) {
		return r.Sessions(ctx, tenant)
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

func (e elsewhere) Batches(ctx context.Context, q metastore.BatchQuery) ([]*kernel.Batch, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) ([]*kernel.Batch, error) {
		return r.Batches(ctx, q)
	})
}

func (e elsewhere) Occasions(ctx context.Context, tenant jobs.Tenant, job jobs.ID, limit int) ([]*kernel.Occasion, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) ([]*kernel.Occasion, error) {
		return r.Occasions(ctx, tenant, job, limit)
	})
}

func (e elsewhere) Tenants(ctx context.Context) ([]*kernel.Global, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) ([]*kernel.Global, error) { return r.Tenants(ctx) })
}

func (e elsewhere) Audits(ctx context.Context, q metastore.AuditQuery) ([]*kernel.Audit, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) ([]*kernel.Audit, error) { return r.Audits(ctx, q) })
}

func (e elsewhere) AlarmSettings(ctx context.Context, tenant jobs.Tenant) ([]*kernel.AlarmSettings, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) ([]*kernel.AlarmSettings, error) {
		return r.AlarmSettings(ctx, tenant)
	})
}

func (e elsewhere) Alarms(ctx context.Context, q metastore.AlarmQuery) ([]*kernel.Alarm, error) {
	return read(ctx, e, func(ctx context.Context, r metastore.Reader) ([]*kernel.Alarm, error) { return r.Alarms(ctx, q) })
}
