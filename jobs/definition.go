package jobs

// Overlap says what becomes of a run that finds no free slot.
type Overlap string

// The answers to a full slot.
const (
	OverlapSkip     Overlap = "skip"      // it becomes Skipped
	OverlapQueue    Overlap = "queue"     // it waits for its turn
	OverlapQueueOne Overlap = "queue_one" // it waits if no other run of its job waits there; else it becomes Skipped
	OverlapReplace  Overlap = "replace"   // the oldest run of its job is stopped, and it starts when that one has ended
)

// Misfire says what becomes of due times that were missed by more than the misfire threshold.
type Misfire string

// The answers to missed due times.
const (
	MisfireOnce Misfire = "fire_once" // the newest missed one fires, the rest become one Missed record
	MisfireAll  Misfire = "fire_all"  // all of them fire
	MisfireSkip Misfire = "skip"      // none of them fires
)

// Gap says when a job is due whose time of day clocks skip, where its schedule names hour and minute as numbers.
type Gap string

// The answers to a missing time of day.
const (
	GapAfter  Gap = "after"  // once, right after the gap
	GapBefore Gap = "before" // once, in the last second before it
	GapSkip   Gap = "skip"   // not that day
)

// Twice says when a job is due whose time of day comes twice because clocks go back, where its schedule names hour and
// minute as numbers.
type Twice string

// The answers to a time of day that comes twice.
const (
	TwiceFirst  Twice = "first"
	TwiceSecond Twice = "second"
	TwiceBoth   Twice = "both"
)

// OnLost says what becomes of a run whose worker died.
type OnLost string

// The answers to a lost worker.
const (
	LostRetry OnLost = "retry" // another worker takes it up, three times at most
	LostFail  OnLost = "fail"  // it is Terminated: started at most once
)

// LeaseLost says what a worker does with a run while no control plane answers it.
type LeaseLost string

// The answers to a lost lease.
const (
	LeaseContinue LeaseLost = "continue" // the run goes on
	LeaseCancel   LeaseLost = "cancel"   // its context is cancelled when the lease lapses
)

// Limit is a named number of slots that several jobs may share, or how often runs may start, or both.
type Limit struct {
	Name string `json:"name"`
	Max  int    `json:"max"`           // 0 = as many as Rate lets
	By   string `json:"by,omitempty"`  // such as args.customer_id: each value of this argument has a limit of its own
	Rate Rate   `json:"rate,omitzero"` // how often runs may start
}
