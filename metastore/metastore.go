// Package metastore defines what a store does: commands in, effects out.
//
// It is not promised to programs outside this module.
//
// A store applies commands. [Apply] is the only code that knows the rules; engines store rows, couriers carry
// commands, and neither decides anything. Implementations are in the folders below: memstore, raftstore and sqlstore
// store rows, busstore carries commands over a bus. storetest tests all of them.
//
// Where to start: [Store], then apply.go. To write another store, docs/add-a-store.md.
package metastore

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Store is the only durable part. All methods may be called at the same time.
type Store interface {
	Applier
	Reader
}

// Applier changes what the store holds.
type Applier interface {
	// Apply applies a batch of commands, in order, in one commit, and answers each with its own effect or its own
	// refusal; a refused command changes nothing and does not affect others. When it returns, what succeeded is as
	// durable as the store promises. It stamps Envelope.At itself. jobs.Unknown means that the command may or may not
	// have been done: send it again, the same command gets the same answer. jobs.Unavailable means that it was not
	// done. Concurrent callers share commits.
	Apply(ctx context.Context, batch []kernel.Envelope) []Result
}

// Result is the outcome of one command: an effect, or the error that refused it (see jobs.Code).
type Result struct {
	kernel.Effect
	Err error
}

// Reader reads for people and programs. The rows that it returns are shared: do not change them.
type Reader interface {
	// Definition is one job. Refused as jobs.NotFound if there is none.
	Definition(ctx context.Context, tenant jobs.Tenant, key jobs.Key) (*kernel.Definition, error)
	// Definitions lists jobs by key, or what changed since a change number: then with deleted ones (Definition.Gone),
	// as long as their rows are kept.
	Definitions(ctx context.Context, q DefinitionQuery) ([]*kernel.Definition, error)
	// Run is one run, live or archived. Refused as jobs.NotFound if there is none.
	Run(ctx context.Context, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error)
	// Runs lists runs: live ones, newest first, then those that ended, last ended first.
	Runs(ctx context.Context, q RunQuery) (Page, error)
	// Ledger lists the missed ranges of a job, newest first.
	Ledger(ctx context.Context, tenant jobs.Tenant, job jobs.ID, limit int) ([]*kernel.Missed, error)
	// History is a job's former policies; empty if it was never changed.
	History(ctx context.Context, tenant jobs.Tenant, job jobs.ID) (*kernel.History, error)
	// Counts returns how many runs are in each state now (live states), and how many entered each state by hour and day.
	Counts(ctx context.Context, q CountQuery) (Counts, error)
	// Global is the tenant's settings and counters; never nil without an error.
	Global(ctx context.Context, tenant jobs.Tenant) (*kernel.Global, error)
	// Tenants lists the settings of the tenants that were created, by name: not of the default one.
	Tenants(ctx context.Context) ([]*kernel.Global, error)
	// Token is one token, expired or not. Refused as jobs.NotFound if there is none.
	Token(ctx context.Context, tenant jobs.Tenant, id string) (*kernel.Token, error)
	// Tokens lists the tokens of a tenant by name; of tenant "*", those of all tenants.
	Tokens(ctx context.Context, tenant jobs.Tenant) ([]*kernel.Token, error)
	// Session is one session, expired or not. Refused as jobs.NotFound if there is none.
	Session(ctx context.Context, tenant jobs.Tenant, id string) (*kernel.Session, error)
	// Sessions lists the sessions that may act in a tenant: its own, and those of people who are in another tenant and
	// have rights in this one. Ended ones too until they are purged; the newest first.
	Sessions(ctx context.Context, tenant jobs.Tenant) ([]*kernel.Session, error)
	// Calendars lists the calendars of a tenant by name.
	Calendars(ctx context.Context, tenant jobs.Tenant) ([]*kernel.Calendar, error)
	// Occasions lists open occasions of a job that follows others, the latest first.
	Occasions(ctx context.Context, tenant jobs.Tenant, job jobs.ID, limit int) ([]*kernel.Occasion, error)
	// Batches lists batches, the latest first.
	Batches(ctx context.Context, q BatchQuery) ([]*kernel.Batch, error)
	// Audits lists audits, newest first, or oldest first with AuditQuery.Since.
	Audits(ctx context.Context, q AuditQuery) ([]*kernel.Audit, error)
	// AlarmSettings is the targets, with their secrets, and rules of a tenant, or, of tenant "*", of all that have any;
	// none if it has none.
	AlarmSettings(ctx context.Context, tenant jobs.Tenant) ([]*kernel.AlarmSettings, error)
	// Alarms lists alarms, newest first; not those that are pending.
	Alarms(ctx context.Context, q AlarmQuery) ([]*kernel.Alarm, error)
}

// BatchQuery selects batches of a tenant.
type BatchQuery struct {
	Tenant jobs.Tenant
	ID     jobs.ID // only this one; zero = all
	Limit  int     // 1 to MaxPage
}

// AlarmQuery selects alarms of a tenant; of tenant "*", of all.
type AlarmQuery struct {
	Tenant jobs.Tenant
	Which  AlarmState
	Before uint64 // page: those with a number below this
	Limit  int    // 0 = all
}

// AlarmState selects alarms by how far they are.
type AlarmState string

// The states of alarms.
const (
	AnyAlarm       AlarmState = ""
	OpenAlarm      AlarmState = "open"
	UnsettledAlarm AlarmState = "unsettled" // open, or a target has not been notified of the end
)

// AuditQuery selects audits of a tenant. Empty fields do not filter.
type AuditQuery struct {
	Tenant jobs.Tenant
	Target string // exactly this one
	Actor  string
	Before uint64 // page: those with a number below this
	Since  uint64 // those with this number or above, oldest first; 0 = all, newest first
	Limit  int    // 1 to MaxPage; 0 = 50
}

// Matches reports whether an audit of the query's tenant passes its filters.
func (q *AuditQuery) Matches(a *kernel.Audit) bool {
	return (q.Target == "" || a.Target == q.Target) && (q.Actor == "" || a.Actor == q.Actor) && (q.Before == 0 || a.N < q.Before) && a.N >= q.Since
}

// Size is how many audits the query's page has at most.
func (q *AuditQuery) Size() int {
	if q.Limit <= 0 {
		return 50
	}
	return min(q.Limit, MaxPage)
}

// DefinitionQuery selects jobs of a tenant; all fields are optional. Tenant "*" means all tenants (for the control
// plane).
type DefinitionQuery struct {
	Tenant jobs.Tenant
	Keys   []jobs.Key // only these (those that exist)
	App    string     // only of this worker group
	Since  uint64     // only those with a change number above this; ordered by it
	After  jobs.Key   // page: keys after this one; ordered by key
	Limit  int        // 0 = all
	// Changes orders by the change number, with what remains of deleted jobs, even if Since is 0.
	Changes bool
}

// RunQuery selects runs of a tenant. Empty fields do not filter.
type RunQuery struct {
	Tenant jobs.Tenant
	Job    jobs.Key
	State  jobs.State
	Worker string
	Parent jobs.ID
	Batch  jobs.ID // that they are in
	Origin kernel.Origin
	Cause  kernel.Cause
	Code   string     // of the last attempt's failure
	App    string     // of the job when the run was created
	Match  string     // a pattern of job keys (see CheckMatch)
	Jobs   []jobs.Key // of one of these jobs, sorted; nil = of all
	Args   []Arg      // with all of these arguments
	From   time.Time  // created at or after
	To     time.Time  // created before
	Ended  bool       // only those that ended
	Cursor string     // Page.Next of the page before
	Limit  int        // 1 to MaxPage; 0 = 50
}

// MaxPage is the most rows in a page.
const MaxPage = 200

// Page is a part of a list.
type Page struct {
	Runs     []*kernel.Run
	Next     string    // the cursor of what follows; "" at the end
	Searched time.Time // set if the walk was cut short: all runs back to here were searched; continue with Next
}

// CountQuery selects runs to count.
type CountQuery struct {
	Tenant   jobs.Tenant
	Job      jobs.Key  // "" = all jobs
	App      string    // without Job: only of this app's jobs, deleted ones included; "" = of all apps
	Payer    string    // whose runs Waiting counts (see kernel.Payer)
	From, To time.Time // of the tallies; zero = none are wanted
	Jobs     bool      // only how many jobs App has: Counts.Jobs
}

// Counts answers a CountQuery.
type Counts struct {
	Live map[jobs.State]int // unsettled runs, by state
	// Tallies are of hours and of days, oldest first, a day before its hours. Without CountQuery.Job, each is the sum of
	// several jobs, and its Job is zero. An hour that ended more than kernel.KeepHours ago becomes part of its day.
	Tallies []kernel.Tally

	Waiting int // waiting runs of CountQuery.Payer; 0 without one
	Jobs    int // jobs of CountQuery.App; only with CountQuery.Jobs
	// Bytes is the arguments, results and checkpoints of all unsettled runs of the tenant.
	Bytes int64
}

// Agenda is what the leader's duties read. It is cheap: nothing here walks the whole store.
type Agenda interface {
	// Waking lists runs whose wake time is at or before until, earliest first, and the next wake time after those
	// (zero if there is none). Then come runs that a pause or a debug mode held which a change has ended: those of one
	// job by their age.
	Waking(ctx context.Context, until time.Time, limit int) (due []Named, next time.Time, err error)
	// Ready lists the first ready runs of an app, in the order in which they should start: priority, then Run.Turn. It
	// costs one step for each queue of the app and each row, however many runs are in queues that are left out.
	Ready(ctx context.Context, q ReadyQuery) ([]*kernel.Run, error)
	// ReadyApps lists the apps that have ready runs.
	ReadyApps(ctx context.Context) ([]ReadyApp, error)
	// Backlog lists the same apps, each with the time since which its oldest run is ready: one lookup for each
	// priority in use, however many runs wait.
	Backlog(ctx context.Context) ([]Backlog, error)
	// Leased lists the attempts that are under way: Processing, or ended but with a handler that has not returned.
	Leased(ctx context.Context) ([]*kernel.Run, error)
	// Unserved lists gates with both a free slot and a waiting run, by the current limit: a gate of an argument may
	// not have been used since that was changed. It leaves out those that only their rate keeps shut: there, the
	// first waiting run wakes when they open.
	Unserved(ctx context.Context, limit int) ([]kernel.Ref, error)
	// Expired lists unique keys that expired at or before until.
	Expired(ctx context.Context, until time.Time, limit int) ([]kernel.Ref, error)
	// Aged lists rows that became history before a time (see DoneAt), the oldest first: what PurgeAudit is for.
	Aged(ctx context.Context, before time.Time, limit int) ([]kernel.Ref, error)
	// Hourly lists tallies of hours that ended at or before a time, in any order: PurgeAudit adds them to their days.
	Hourly(ctx context.Context, until time.Time, limit int) ([]kernel.Ref, error)
	// TenantRows lists rows of a tenant, in any order; all but its Global: DropTenant deletes them.
	TenantRows(ctx context.Context, tenant jobs.Tenant, limit int) ([]kernel.Ref, error)
	// State is the row the store keeps about itself.
	State(ctx context.Context) (kernel.StoreRow, error)
}

// ReadyQuery selects ready runs.
type ReadyQuery struct {
	Tenant jobs.Tenant
	App    string
	Limit  int
	Has    func(kernel.Queue) bool // of these queues; nil = of all
}

// Named is a run by its name alone.
type Named struct {
	Tenant jobs.Tenant
	ID     jobs.ID
}

// ReadyApp is an app with ready runs.
type ReadyApp struct {
	Tenant jobs.Tenant
	App    string
	Ready  int
}

// Backlog is the runs of an app that wait for a worker's slot and for nothing else.
type Backlog struct {
	ReadyApp
	Since time.Time // Run.Queued of the oldest
}
