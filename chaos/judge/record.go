package judge

import (
	"encoding/json"
	"time"
)

// Moment is a point in time as a witness saw it.
type Moment struct {
	Wall int64 `json:"wall"` // Unix nanoseconds
	Mono int64 `json:"mono"` // CLOCK_MONOTONIC in nanoseconds: the same for all processes of a machine,not settable
}

// Kinds of journal lines.
const (
	Start = "start" // a handler has begun
	End   = "end"   // it is about to return
)

// Line is what a handler writes down, outside of the system, in one write to a file opened with O_APPEND: one file
// for each worker process, named by [JournalFile].
type Line struct {
	What    string `json:"what"` // Start or End
	Key     string `json:"job"`
	Run     string `json:"run"`
	Due     int64  `json:"due"`     // Unix nanoseconds, as the handler saw it
	Attempt uint32 `json:"attempt"` // the fencing token
	Worker  string `json:"worker"`
	PID     int    `json:"pid"`
	At      Moment `json:"at"`
	Outcome string `json:"outcome,omitempty"` // of an End: "ok", or the error that the handler returns
	Cause   string `json:"cause,omitempty"`   // why its context had ended by then; "" if it had not
}

// What a client may do.
const (
	Define = "define" // a job becomes known: Invoked when its first worker was started, Returned when the API showed it
	Create = "create" // a run is asked for
	Cancel = "cancel" // of a run
	Edit   = "edit"   // of a job: Spec is what it is afterwards, whole
	Pause  = "pause"
	Resume = "resume"
	Delete = "delete" // of a job
	Look   = "look"   // a read of a run: State and Attempt are from the response
)

// How an operation ended.
const (
	OK      = "ok"
	Refused = "refused" // it was answered, and left no trace
	Unknown = "unknown" // no response, or one with this outcome: it may have happened, may happen yet, or never will
)

// Op is one operation of a client. A repeated request is another Op with the same Idempotency or RequestID.
type Op struct {
	What     string `json:"what"`
	Client   string `json:"client,omitempty"`
	Invoked  Moment `json:"invoked"`
	Returned Moment `json:"returned"` // for Unknown: when the client gave up
	Outcome  string `json:"outcome"`
	Text     string `json:"text,omitempty"` // of the refusal or of the error

	Key         string `json:"job,omitempty"`
	Run         string `json:"run,omitempty"`         // answered; for Cancel and Look: asked for
	RequestID   string `json:"requestId,omitempty"`   // Create: the ID that the client itself gave the run, or ""
	Idempotency string `json:"idempotency,omitempty"` // Create: the same one means the same run
	Unique      string `json:"unique,omitempty"`      // Create: at most one run of the job that is not final holds it
	Due         int64  `json:"due,omitempty"`         // Create: not before; Unix nanoseconds, 0 = at once
	Duplicate   bool   `json:"duplicate,omitempty"`   // Create: the response has an earlier run
	State       string `json:"state,omitempty"`       // Look
	Attempt     uint32 `json:"attempt,omitempty"`     // Look
	Until       int64  `json:"until,omitempty"`       // Pause: when it ends by itself; Unix nanoseconds, 0 = when resumed
	Spec        *Spec  `json:"spec,omitempty"`        // Define and Edit
}

// Limit is a number of slots that several jobs may share.
type Limit struct {
	Name string `json:"name"`
	Max  int    `json:"max"`
}

// Spec is what a job is meant to be. Durations are nanoseconds.
type Spec struct {
	Key string `json:"key"`
	// Schedule is a cron expression of five or six fields, of numbers, *, commas, ranges and steps, or "@every" and a
	// duration, which needs a Start; "" = runs are asked for.
	Schedule       string        `json:"schedule,omitempty"`
	Zone           string        `json:"zone,omitempty"` // IANA; "" = UTC. Its clocks must not be set while the judge looks
	Start          time.Time     `json:"start,omitzero"`
	End            time.Time     `json:"end,omitzero"`
	Misfire        string        `json:"misfire,omitempty"`        // fire_all, fire_once, skip
	Overlap        string        `json:"overlap,omitempty"`        // skip, queue
	MaxConcurrency int           `json:"maxConcurrency,omitempty"` // 0 = none
	Limits         []Limit       `json:"limits,omitempty"`
	Retries        int           `json:"retries,omitempty"`
	Timeout        time.Duration `json:"timeout,omitempty"` // 0 = none
	OnLost         string        `json:"onLost,omitempty"`  // retry, fail
	Disabled       bool          `json:"disabled,omitempty"`
	Typical        time.Duration `json:"typical,omitempty"` // how long a handler takes
}

// Kinds of faults that the judge knows the meaning of; there may be others.
const (
	Kill   = "kill"   // a process ends at once, at Begin. End is when it was started again, or as Begin
	Freeze = "freeze" // a process stands still from Begin to End
	Cut    = "cut"    // some or all of its messages are lost from Begin to End
	Clock  = "clock"  // its wall clock is wrong by Step from Begin to End
	Term   = "term"   // it gets a signal to stop, and transfers leadership
	Full   = "full"   // its disk takes nothing more
)

// Who a fault strikes.
const (
	Control = "control" // a control plane
	Worker  = "worker"
	Bus     = "bus"
	Rows    = "rows" // a database
)

// Fault is one thing that was done to the system.
type Fault struct {
	Kind   string        `json:"kind"`
	Role   string        `json:"role"`           // Control, Worker, Bus, Rows
	Target string        `json:"target"`         // its name
	PID    int           `json:"pid,omitempty"`  // of the process that it struck, if it was one
	Begin  Moment        `json:"begin"`          // before it was done
	End    Moment        `json:"end"`            // after it was undone; zero = it never was
	Step   time.Duration `json:"step,omitempty"` // of a Clock
	Note   string        `json:"note,omitempty"`
}

// Move is one step of a run, as the store remembers it.
type Move struct {
	State   string    `json:"state"`
	Cause   string    `json:"cause,omitempty"`
	At      time.Time `json:"at"`
	Attempt uint32    `json:"attempt"`
	By      string    `json:"by,omitempty"`
	Text    string    `json:"text,omitempty"`
}

// Run is a run in the store. It can be decoded from the API's JSON.
type Run struct {
	ID       string          `json:"id"`
	Key      string          `json:"job"`
	State    string          `json:"state"`
	Cause    string          `json:"cause,omitempty"`
	Origin   string          `json:"origin"` // cron and misfire: by the schedule
	Due      time.Time       `json:"due,omitzero"`
	Created  time.Time       `json:"created,omitzero"`
	Started  time.Time       `json:"started,omitzero"`
	Ended    time.Time       `json:"ended,omitzero"`
	RetryAt  time.Time       `json:"retryAt,omitzero"`
	Attempt  uint32          `json:"attempt"`
	Worker   string          `json:"worker,omitempty"`
	Unique   string          `json:"unique,omitempty"`
	Parent   string          `json:"parent,omitempty"`
	Error    string          `json:"error,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"` // a Token, if its handler returns one
	Moves    []Move          `json:"moves,omitempty"`
	Revision uint64          `json:"revision,omitempty"` // of the definition that made it, where that is known
	Place    *Place          `json:"place,omitempty"`
}

// Place is the index of a run of a broadcast: a due time then has as many runs as there are parts.
type Place struct {
	Index uint32 `json:"index"`
	Total uint32 `json:"total,omitempty"`
}

// part is which of its due time's runs this one is.
func (r *Run) part() uint32 {
	if r.Place == nil {
		return 0
	}
	return r.Place.Index
}

// Token is the result that a handler gives its run: which attempt has done the work.
type Token struct {
	Attempt uint32 `json:"attempt"`
	PID     int    `json:"pid"`
}

// Missed is a stretch of due times that have no run, with the reason why.
type Missed struct {
	Key    string    `json:"job"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Count  uint64    `json:"count"`
	Reason string    `json:"reason"` // missed, paused, disabled, debug, edited
}

// Definition is a job in the store.
type Definition struct {
	Key      string    `json:"key"`
	Schedule string    `json:"schedule,omitempty"`
	Created  time.Time `json:"created,omitzero"`
	Revision uint64    `json:"revision,omitempty"`
}

// Store is one reading of the store over the public API.
type Store struct {
	At          Moment       `json:"at"`
	Runs        []Run        `json:"runs"`
	Missed      []Missed     `json:"missed"`
	Definitions []Definition `json:"definitions"`
}

// Setup is what the driver meant to do. Durations are nanoseconds.
type Setup struct {
	Name   string `json:"name"`
	Store  string `json:"store"`  // which body: raft, postgres, ...
	Began  Moment `json:"began"`  // before the first process was started
	Healed Moment `json:"healed"` // nothing was done to the system after that
	// Faults that were to be done at least; a Case with fewer is no data.
	Faults int `json:"faults"`
	// Repairs is how many times sweeps have found ready runs that the leader had lost, by the logs of all control planes:
	// what carillon_dispatch_repairs_total counts, over all lives of their processes.
	Repairs int `json:"repairs,omitempty"`
	// Lease is how long an attempt is its worker's after the worker's last heartbeat, and Heartbeat how often one
	// comes. 0 = 15 s and 3 s, as they are.
	Lease     time.Duration `json:"lease,omitempty"`
	Heartbeat time.Duration `json:"heartbeat,omitempty"`
	// Skew is how far clocks of the machine's processes may differ when no fault has set one. 0 = 5 ms.
	Skew time.Duration `json:"skew,omitempty"`
	// Stamps is the clock of commit times: Rows (a database's own, which no fault sets), or "" (the leader's).
	Stamps string `json:"stamps,omitempty"`
	// MisfireAfter is how late a due time may be and still fire by itself. 0 = 30 s.
	MisfireAfter time.Duration `json:"misfireAfter,omitempty"`
}

// Case is all there is to judge by.
type Case struct {
	Setup   Setup
	Specs   []Spec // the jobs at first, unless Define has one; Edit changes them
	Journal []Line
	History []Op
	Faults  []Fault
	// Stores are readings in order of time. The last one was made when all runs were final. What was final in an
	// earlier one must be the same in it.
	Stores []Store
}
