package jobs

import "time"

// Overlap is what happens to a run that finds no free slot.
type Overlap string

// What happens to a run without a free slot.
const (
	OverlapSkip     Overlap = "skip"      // the run is Skipped
	OverlapQueue    Overlap = "queue"     // the run waits for a slot
	OverlapQueueOne Overlap = "queue_one" // the run waits, or is Skipped if another run of its job waits already
	OverlapReplace  Overlap = "replace"   // the oldest run of the job is cancelled; the new run starts on its slot
)

// Misfire is what happens to due times that are late by more than the misfire threshold.
type Misfire string

// What happens to missed due times.
const (
	MisfireOnce Misfire = "fire_once" // the newest fires, unless one on time comes with it; the ledger records the others as missed
	MisfireAll  Misfire = "fire_all"  // all of them fire
	MisfireSkip Misfire = "skip"      // none of them fires; the ledger records them as missed
)

// Gap is when a job fires whose time of day does not exist because clocks go forward. It applies to schedules that give
// hour and minute as numbers.
type Gap string

// When a job fires whose time of day is skipped.
const (
	GapAfter  Gap = "after"  // once, right after the gap
	GapBefore Gap = "before" // once, in the last second before the gap
	GapSkip   Gap = "skip"   // not that day
)

// Twice is when a job fires whose time of day occurs twice because clocks go back. It applies to schedules that give
// hour and minute as numbers.
type Twice string

// When a job fires whose time of day occurs twice.
const (
	TwiceFirst  Twice = "first"
	TwiceSecond Twice = "second"
	TwiceBoth   Twice = "both"
)

// OnLost is what happens to a run whose lease expired because its worker crashed or lost its connection.
type OnLost string

// What happens to a lost run.
const (
	LostRetry OnLost = "retry" // another worker restarts it, at most three times; Retries does not count these
	LostFail  OnLost = "fail"  // it is Terminated: no second attempt follows a lost one
)

// LeaseLost is what a worker does with a run when its lease expires because no node answers the worker.
type LeaseLost string

// What a worker does when a lease expires.
const (
	LeaseContinue LeaseLost = "continue" // the handler continues; another worker may start the run as well
	LeaseCancel   LeaseLost = "cancel"   // the handler's context ends with ErrLeaseLost when the lease expires
)

// Limit is a named concurrency limit, rate limit or both, which several jobs may share.
type Limit struct {
	Name string `json:"name"`
	Max  int    `json:"max"`           // slots; 0 = no concurrency limit
	By   string `json:"by,omitempty"`  // an argument, such as args.customer_id: each of its values has its own limit
	Rate Rate   `json:"rate,omitzero"` // how often runs may start
}

// Route is how a worker is selected for a run, among the workers that serve its job.
type Route string

// The routes. A free worker has a free slot; workers are ordered by name.
const (
	RouteAny           Route = "any"             // the free worker that asks first
	RouteFirst         Route = "first"           // the first free worker
	RouteLast          Route = "last"            // the last free worker
	RouteRoundRobin    Route = "round_robin"     // the free workers in turn
	RouteRandom        Route = "random"          // a random free worker
	RouteHash          Route = "consistent_hash" // the same worker for the same value of RouteBy; the run waits for it
	RouteLeastRecent   Route = "least_recent"    // the free worker whose last run of the job is the longest ago
	RouteLeastFrequent Route = "least_frequent"  // the free worker with the fewest runs of the job in the last day
	RouteFailover      Route = "failover"        // the first online worker; the run waits for it
	RouteIdle          Route = "idle"            // a worker that does not run the job
	RouteBroadcast     Route = "broadcast"       // all workers: one run for each, see Part
)

// PinAway is what happens to a run whose pinned worker is offline.
type PinAway string

// What happens to a run without its pinned worker.
const (
	PinWait PinAway = "wait" // the run waits until the worker is online
	PinAny  PinAway = "any"  // another worker, selected by the job's route, runs it
)

// CodeVersion is which versions of a job's code may run it during a rollout.
type CodeVersion string

// Which versions of the code may run a job.
const (
	CodeAny     CodeVersion = "any"     // any version that a worker has
	CodeCurrent CodeVersion = "current" // the one that was current when the run was created, or a later one
)

// Jitter is how much of a retry's delay is random.
type Jitter string

// The largest random reduction of a delay.
const (
	JitterHalf Jitter = "half" // up to half of it
	JitterFull Jitter = "full" // up to all of it
	JitterNone Jitter = "none" // nothing: runs that failed together are retried together
)

// RetryRule sets the retries of attempts whose error has one of Codes.
type RetryRule struct {
	Codes    []string      `json:"codes"`              // codes of Fail, or "timeout", "panic", "error" (without a code); "*" = any
	Attempts int           `json:"attempts"`           // retries by this rule; 0 = none: such an error is final
	Delay    time.Duration `json:"delay,omitempty"`    // before the first of these retries; 0 = none
	Factor   float64       `json:"factor,omitempty"`   // growth of the delay; 0 = the job's RetryFactor
	MaxDelay time.Duration `json:"maxDelay,omitempty"` // 0 = the job's RetryDelayMax
}
