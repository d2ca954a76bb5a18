package jobs

import "time"

// Overlap is what becomes of a run that finds no free slot.
type Overlap string

// What becomes of a run without a free slot.
const (
	OverlapSkip     Overlap = "skip"      // it is Skipped
	OverlapQueue    Overlap = "queue"     // it waits for a slot
	OverlapQueueOne Overlap = "queue_one" // it waits, unless another run of its job waits already: then it is Skipped
	OverlapReplace  Overlap = "replace"   // the oldest run of its job is cancelled, and it starts when that one has ended
)

// Misfire is what becomes of due times that were missed by more than the misfire threshold.
type Misfire string

// What becomes of missed due times.
const (
	MisfireOnce Misfire = "fire_once" // the newest fires; the ledger records the others as missed
	MisfireAll  Misfire = "fire_all"  // all of them fire
	MisfireSkip Misfire = "skip"      // none of them fires; the ledger records them as missed
)

// Gap is when a job fires whose time of day does not exist because clocks go forward. It matters to schedules that name
// hour and minute as numbers.
type Gap string

// When a job fires whose time of day is skipped.
const (
	GapAfter  Gap = "after"  // once, right after the gap
	GapBefore Gap = "before" // once, in the last second before the gap
	GapSkip   Gap = "skip"   // not that day
)

// Twice is when a job fires whose time of day comes twice because clocks go back. It matters to schedules that name
// hour and minute as numbers.
type Twice string

// When a job fires whose time of day comes twice.
const (
	TwiceFirst  Twice = "first"
	TwiceSecond Twice = "second"
	TwiceBoth   Twice = "both"
)

// OnLost is what becomes of a run whose lease expired because its worker crashed or lost its connection.
type OnLost string

// What becomes of a lost run.
const (
	LostRetry OnLost = "retry" // another worker starts it again, three times at most; such a retry is not counted in Retries
	LostFail  OnLost = "fail"  // it is Terminated, so that it starts at most once
)

// LeaseLost is what a worker does with a run while no control plane answers it.
type LeaseLost string

// What a worker does when a lease expires.
const (
	LeaseContinue LeaseLost = "continue" // the handler goes on; another worker may start the run, too
	LeaseCancel   LeaseLost = "cancel"   // the handler's context ends with ErrLeaseLost when the lease expires
)

// Limit is a named number of slots that several jobs may share, or how often runs may start, or both.
type Limit struct {
	Name string `json:"name"`
	Max  int    `json:"max"`           // slots; 0 = no limit but Rate
	By   string `json:"by,omitempty"`  // such as args.customer_id: a limit for each value of this argument
	Rate Rate   `json:"rate,omitzero"` // how often runs may start
}

// Route is how a worker is selected for a run, among those that serve its job.
type Route string

// The routes. "Free" is a worker with a free slot; the order is that of the workers' names.
const (
	RouteAny           Route = "any"             // the first that has a free slot
	RouteFirst         Route = "first"           // the first in order that is free
	RouteLast          Route = "last"            // the last in order that is free
	RouteRoundRobin    Route = "round_robin"     // those that are free, in turn
	RouteRandom        Route = "random"          // one of those that are free, at random
	RouteHash          Route = "consistent_hash" // the same one for the same key; the run waits for it
	RouteLeastRecent   Route = "least_recent"    // the free one whose last run of the job is the longest ago
	RouteLeastFrequent Route = "least_frequent"  // the free one that got the fewest runs of the job in the last day
	RouteFailover      Route = "failover"        // the first in order that is alive; the run waits for it
	RouteIdle          Route = "idle"            // one that runs nothing
	RouteBroadcast     Route = "broadcast"       // all of them: the run is expanded into one for each, see Part
)

// PinAway is what becomes of a run whose pinned worker is not connected.
type PinAway string

// What becomes of a run without its pinned worker.
const (
	PinWait PinAway = "wait" // it waits until the worker is back
	PinAny  PinAway = "any"  // it goes to another worker, selected by the job's route
)

// CodeVersion is which versions of a job's code may run it, while a new version is rolled out.
type CodeVersion string

// Which versions of the code may run a job.
const (
	CodeAny     CodeVersion = "any"     // any version that a worker has
	CodeCurrent CodeVersion = "current" // the one that was current when the run was created, or a later one
)

// Jitter is how much of a retry's delay is taken off at random.
type Jitter string

// How much is taken off.
const (
	JitterHalf Jitter = "half" // up to half of it
	JitterFull Jitter = "full" // up to all of it
	JitterNone Jitter = "none" // nothing: runs that failed together are retried together
)

// RetryRule is how runs are retried whose error has one of Codes.
type RetryRule struct {
	Codes    []string      `json:"codes"`              // as Fail sets them, or "timeout", "panic", "error" (without a code); "*" = any
	Attempts int           `json:"attempts"`           // retries by this rule; 0 = none: such an error is final
	Delay    time.Duration `json:"delay,omitempty"`    // before the first of them; 0 = none
	Factor   float64       `json:"factor,omitempty"`   // by which the delay grows; 0 = the job's RetryFactor
	MaxDelay time.Duration `json:"maxDelay,omitempty"` // 0 = the job's RetryDelayMax
}
