package kernel

// Budget is a quantity that one caller could use up for others. Each has owners, with a share each.
type Budget struct {
	Name   string
	Most   int    // of all owners together, where code reads it from here
	Named  string // the constants (ui.maxStreams), settings (limits.waiting-runs) and Bounds (followers) that limit it
	Owner  string // whose share it is: the larger owner first
	Share  string // how large
	Beyond string // what happens to owners at their share
	Seen   string // where who sees it
	Test   string // plays a greedy owner beside a modest one
	Lacks  string // why there is no share, or no test, and what a user sees meanwhile; "" = there are
}

// Room reports whether an owner that has own of the used places may have another one: no owner has more than are left.
// So one owner alone gets half, two greedy ones get a third each, and another one still finds a place.
func (b *Budget) Room(own, used int) bool { return Room(own, used, b.Most) }

// Room is Budget.Room of a budget whose size is configured.
func Room(own, used, most int) bool { return own < most-used }

// Refused requests are counted by bound and tenant, and shown so.
const seenAsRefused = "sender; log, metric, overview"

// Budgets of which code reads how large they are.
var (
	// OpenAlarms are the alarms of one rule that are open.
	OpenAlarms = Budget{Name: "open alarms of a rule", Most: 200, Owner: "tenant, app", Share: "what is left of 200",
		Beyond: "nothing new is raised", Seen: "page Alarms", Test: "controlplane.TestAlarmsAreBounded"}
	// AlarmMessages are the messages of alarms that are under way.
	AlarmMessages = Budget{Name: "alarm messages under way", Most: 32, Owner: "tenant, target",
		Share: "what is left of 32; one", Beyond: "sent later", Seen: "page Alarms",
		Test: "controlplane.TestSlowTargetsDelayNoOtherTenant"}
	// OpenBatches are the batches of a tenant, those that have ended included.
	OpenBatches = Budget{Name: "batches", Most: 20_000, Named: "batches", Owner: "tenant", Share: "20,000",
		Beyond: "refused", Seen: seenAsRefused,
		Lacks: "one token can use them up for the others of its tenant, for a week"}
	// FollowersOfJob are the jobs that follow one job.
	FollowersOfJob = Budget{Name: "followers of a job", Most: 100, Named: "followers", Owner: "none",
		Beyond: "refused", Seen: seenAsRefused,
		Lacks: "jobs of one app can be all 100 followers of another app's job"}
)

// Budgets are all of them: docs/shares.md is made of this table, and a test finds limits that it does not name.
var Budgets = []*Budget{
	{Name: "waiting runs",
		Named: "waiting-runs waiting-runs-per-token tenant-waiting-runs " +
			"limits.waiting-runs limits.waiting-runs-per-token kernel.MaxBeforeFollowers",
		Owner: "tenant, token or app", Share: "2,000,000; 1,500,000", Beyond: "refused; followers are Skipped",
		Seen: seenAsRefused, Test: "embed.TestJobsAndWaitingRunsAreBounded"},
	{Name: "bytes of unfinished runs", Named: "tenant-bytes", Owner: "tenant", Share: "its limit", Beyond: "refused",
		Seen: seenAsRefused, Test: "metastore.TestQuotasOfATenant"},
	{Name: "memory of the leader", Named: "memory", Owner: "none", Beyond: "runs and jobs of all are refused",
		Seen:  seenAsRefused,
		Lacks: "limits of waiting runs and bytes bound who fills it; at the limit, all are refused until runs have ended"},
	{Name: "jobs", Named: "jobs jobs-per-app limits.jobs-per-app", Owner: "tenant, app", Share: "maxJobs; 10,000",
		Beyond: "new ones are refused", Seen: seenAsRefused, Test: "embed.TestJobsAndWaitingRunsAreBounded"},
	{Name: "commands that wait for a commit", Named: "commit-queue metastore.maxQueued", Owner: "tenant",
		Share: "what is left of 32 full commits", Beyond: "refused", Seen: seenAsRefused,
		Test: "metastore.TestAFullQueueHasRoomForOthers"},
	{Name: "places in a commit", Owner: "tenant", Share: "32 before it is another's turn",
		Beyond: "wait for the next commit", Seen: "sender, as time", Test: "metastore.TestGroupTakesTurns"},
	{Name: "starts on workers", Named: "controlplane.startMost assign.commitsAtOnce", Owner: "tenant, app",
		Share: "32 starts before it is another's turn", Beyond: "runs wait", Seen: "explain",
		Test: "controlplane/assign.TestTurns"},
	{Name: "due times in a commit", Owner: "tenant, app", Share: "one of 1,000 before it is another's turn",
		Beyond: "decided in a later commit", Seen: "metric of the delay", Test: "controlplane.TestDueTimesHaveTurns"},
	{Name: "history bytes", Named: "retention.bytes", Owner: "tenant, app",
		Share: "equal; what one does not use, others share", Beyond: "their oldest runs are purged",
		Seen: "log, page of the server", Test: "metastore/raftstore/archive.TestHistoryIsPurgedByShares"},
	{Name: "log lines", Named: "metastore.MaxLog", Owner: "attempt", Share: "1 MiB",
		Beyond: "lines of the attempt are dropped; beyond half of retention.bytes, the oldest of all are purged",
		Seen:   "page of the run", Lacks: "lines of one app can push out the lines of others before keepFor"},
	{Name: "audit entries", Named: "kernel.MaxAudits kernel.MaxAuditsWaiting", Owner: "tenant", Share: "10,000",
		Beyond: "the oldest are purged", Seen: "page Audit",
		Lacks: "registrations of one app can push out other entries of its tenant; an audit export keeps all"},
	{Name: "audit entries of refused requests", Named: "kernel.MaxDenials ops.deniedMost",
		Owner: "tenant", Share: "20 kinds, one more each 10 minutes", Beyond: "counted together", Seen: "page Audit",
		Test: "ops.TestDeniedRequestsAreLimited"},
	&OpenAlarms, &AlarmMessages,
	{Name: "ended alarms", Named: "kernel.MaxAlarms", Owner: "tenant", Share: "10,000",
		Beyond: "the oldest are deleted", Seen: "page Alarms",
		Lacks: "one app's alarms can push out ended ones of others of its tenant before 30 days"},
	{Name: "targets and rules of alarms, calendars, defaults of apps",
		Named: "alarm-targets alarm-rules calendars app-defaults " +
			"kernel.MaxAlarmTargets kernel.MaxAlarmRules kernel.MaxCalendarsOfTenant kernel.MaxAppDefaults",
		Owner: "tenant", Share: "50, 200, 1,000, 200", Beyond: "refused", Seen: seenAsRefused,
		Lacks: "only administrators of the tenant make them"},
	{Name: "tenants", Named: "tenants kernel.MaxTenants", Owner: "server", Beyond: "refused", Seen: seenAsRefused,
		Lacks: "only administrators of the server make them"},
	&OpenBatches, &FollowersOfJob,
	{Name: "open occasions", Named: "kernel.MaxAfter", Owner: "job", Share: "those of runs of the last 31 days",
		Beyond: "nothing: they are rows", Seen: "memory",
		Lacks: "bounded by the runs that open them, and by the memory of the leader"},
	{Name: "unique and idempotency keys", Owner: "job", Beyond: "nothing: they are rows", Seen: "memory",
		Lacks: "a key is kept with its run, which is in the limits of waiting runs and history; time-bound ones expire"},
	{Name: "streams of pages", Named: "ui.maxStreams ui.maxOwn ui.maxTenant", Owner: "tenant, person",
		Share: "half of 512; 64", Beyond: "the page polls", Seen: "page", Test: "ui.TestStreamsOfOne"},
	{Name: "streams of the API", Named: "api.maxStreams", Owner: "token", Share: "20", Beyond: "refused with 429",
		Seen: "sender", Test: "api.TestStreamsOfOnePrincipal"},
	{Name: "requests a second", Named: "api.maxRates api.manyVerdicts", Owner: "token; address without one",
		Share: "2,000", Beyond: "refused with 429", Seen: "sender", Test: "api.TestTooOften"},
	{Name: "memory of requests",
		Named: "request-memory request-memory-per-token " +
			"limits.request-memory limits.request-memory-per-token api.maxBulkBody",
		Owner: "token", Share: "half of 1 GiB", Beyond: "refused", Seen: seenAsRefused,
		Test: "api.TestRequestsInProcessAreBounded"},
	{Name: "connections of HTTP", Named: "limits.connections limits.connections-loopback", Owner: "address",
		Share: "500", Beyond: "closed", Seen: "log", Test: "cmd/carillon.TestOneAddressCannotFillTheServer"},
	{Name: "connections between nodes", Named: "link.mostOpen link.mostUnproven link.mostFromOne", Owner: "address",
		Share:  "64 before they prove who they are",
		Beyond: "closed", Seen: "log", Test: "metastore/raftstore/link.TestCrowd"},
	{Name: "HTTP workers of a node",
		Named: "http-workers http-workers-per-tenant http-workers-per-token " +
			"limits.http-workers limits.http-workers-per-tenant limits.http-workers-per-token",
		Owner: "tenant, token", Share: "half of 2,000; 500", Beyond: "refused", Seen: seenAsRefused,
		Test: "embed.TestHTTPWorkersAreBounded"},
	{Name: "HTTP jobs at once", Named: "embed.httpSlots embed.httpTenantSlots", Owner: "tenant", Share: "50",
		Beyond: "runs wait", Seen: "explain", Lacks: "no test plays it"},
	{Name: "workers", Named: "tenant-workers workers-per-name controlplane.mostStarts", Owner: "tenant, name",
		Share: "its limit; 256", Beyond: "more get no runs", Seen: seenAsRefused,
		Test: "controlplane.TestWorkersOfTenants"},
	{Name: "places of a service of the bus", Named: "natsbus.inFlight", Owner: "none", Beyond: "calls wait, in order",
		Seen:  "sender, as time",
		Lacks: "256 slow calls of one caller delay the calls of others; its bytes have a share"},
	{Name: "bytes of calls over the bus",
		Named: "natsbus.largeAtOnce embedded.maxPending embedded.maxSubs embedded.maxMachines", Owner: "token",
		Share: "32 of 128 MiB", Beyond: "refused, or its connection closed", Seen: "sender",
		Test: "bus/natsbus.TestTooManyLargeRequests"},
	{Name: "ledger exports of a node", Named: "ledger-exports", Owner: "none", Beyond: "refused", Seen: seenAsRefused,
		Lacks: "one at a time, for all callers; another node takes another one"},
	{Name: "compiled schemas", Named: "argschema.maxSchemas", Owner: "schema", Share: "2,000 parts",
		Beyond: "its arguments are not checked", Seen: "sender, as time",
		Test: "internal/argschema.TestCompilingHoldsUpNoOtherSchema"},
	{Name: "turns of the outbox", Named: "sqlstore.outboxMost sqlstore.passMost", Owner: "tenant",
		Share: "all that its limits accept", Beyond: "its requests stay in the table", Seen: "page Outbox, metric",
		Test: "metastore/sqlstore.TestATenantOverItsLimitsHoldsUpNoOther"},
	{Name: "requests for runs of jobs in the archive",
		Named: "archive.mostRows archive.mostTime memstore.mostRows " +
			"memstore.mostTime sqlstore.mostRows sqlstore.mostTime",
		Owner: "request", Share: "20,000 rows, 100 ms", Beyond: "the page ends, with a cursor", Seen: "sender",
		Lacks: "many at once share the processors; requests a second have a share"},
	{Name: "retries", Owner: "tenant, job", Share: "its budget", Beyond: "delayed",
		Seen: "explain", Lacks: "no test plays it"},
	{Name: "labels of metrics",
		Named: "metrics.maxApps metrics.maxJobs " +
			"controlplane.MaxTenants controlplane.pulseTenants episode.most", Owner: "none",
		Beyond: "counted as others", Seen: "metrics",
		Lacks: "the first ones have a label of their own; totals are complete"},
	{Name: "rendered parts of pages",
		Named: "ui.maxFragments ui.maxSparks embed.mostSights ops.maxDues loglines.mostYoung " +
			"metastore.manyPurses controlplane.mostKnown", Owner: "none",
		Beyond: "rendered again", Seen: "person, as time", Lacks: "a cache: what it lacks is computed again"},
	{Name: "circuits and plans of HTTP jobs", Named: "httpjob.maxTargets httpjob.maxPlans execjob.maxKnown",
		Owner: "none", Beyond: "made again", Seen: "log",
		Lacks: "a cache for each worker: what it lacks is computed again"},
	{Name: "runs that a duty releases at once", Named: "controlplane.releaseMost controlplane.dissolveMost " +
		"controlplane.mostTrims", Owner: "none", Beyond: "released in the next pass, at once", Seen: "metric of the delay",
		Lacks: "delayed runs go by their due time: 100,000 of one app that are due together go before later ones"},
	{Name: "notices of changes", Named: "controlplane.feedMost natsbus.backlog membus.backlog", Owner: "listener",
		Share: "256 names; 8,192 notices", Beyond: "one notice says that many changed", Seen: "page, which reads again",
		Lacks: "a listener hears of its tenant only; with many changes it reads its page again, once a second"},
	{Name: "checks of tokens on the bus", Named: "embedded.looksAtOnce", Owner: "none", Beyond: "wait, in order",
		Seen: "sender, as time", Lacks: "16 at once, each a read in memory; while the store is away, all wait alike"},
}
