package kernel

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Origin is where a run came from.
type Origin string

// The origins of a run.
const (
	FromCron    Origin = "cron"    // its job's schedule
	FromMisfire Origin = "misfire" // its job's schedule, late, by the misfire policy
	FromCode    Origin = "code"    // a program
	FromPerson  Origin = "person"  // a person, on a page or the command line
	FromRetry   Origin = "retry"   // "run again" of a final run
	FromParent  Origin = "parent"  // another run, which it follows or whose handler enqueued it
	FromAPI     Origin = "api"     // a program, over the API

	FromBackfill Origin = "backfill" // a backfill
)

// Origins lists all origins of a run.
func Origins() []Origin {
	return []Origin{FromCron, FromMisfire, FromCode, FromPerson, FromAPI, FromRetry, FromParent, FromBackfill}
}

// ByHand reports whether this very run was requested, by a person or as another one again: no pause and no debug mode
// holds it.
func (o Origin) ByHand() bool { return o == FromPerson || o == FromBackfill || o == FromRetry }

// Automatic reports whether a schedule or a settings rule started the run. Debug modes hold such runs, and those from
// programs.
func (o Origin) Automatic() bool { return o == FromCron || o == FromMisfire }

// Terms are the settings of a run, fixed when it is created: the job's policy of that revision, with those of the
// request.
type Terms struct {
	Retries       int
	RetryDelay    time.Duration
	RetryDelayMax time.Duration
	Timeout       time.Duration // 0 = none
	OnLost        jobs.OnLost
	LeaseLost     jobs.LeaseLost
	Overlap       jobs.Overlap
	Failing       *Failing // further policy for failures; nil = none. Shared, never changed
}

// Move is one transition in a run's history.
type Move struct {
	State   jobs.State
	Cause   Cause
	At      time.Time
	Attempt uint32
	By      string // the worker, the requester, or the parent run
	Text    string // the error or the reason, shortened; Skipped: the gate that had no free slot, or "". For users: Run.Text
}

// Run is one run of a job. A store never changes one in place; each move below returns a new value.
type Run struct {
	Tenant   jobs.Tenant
	ID       jobs.ID
	Job      jobs.ID // uid of the definition
	Key      jobs.Key
	App      string
	Revision uint64   // of the definition when it was created
	Handler  jobs.Key // of which job's code runs it; "" = Key's
	Work     string   // the setting that defines what it does: http or exec; "" = a worker has its code

	Kind   Kind
	State  jobs.State
	Cause  Cause
	Origin Origin
	Actor  string // who requested it
	Args   []byte // JSON object, or nil
	Terms  Terms

	Priority int
	Due      time.Time // when it should start
	Created  time.Time
	Queued   time.Time // when it last began to wait, for a slot of its limits or then for a worker
	Turn     uint64    // its place among the ready runs of its priority, the lowest first; Processing: the one that it had; else 0
	// Version numbers the changes of all live runs of a store: of two rows of a run, the one with the higher is newer. A
	// settled run has 0, because nothing changes it again.
	Version uint64
	Started time.Time // of the current or last attempt
	Ended   time.Time // when it became final

	Attempt  uint32    // attempts started so far; the number of the current one is its fencing token
	Worker   string    // of the current or last attempt
	Deadline time.Time // when the current attempt times out; zero = never
	StartBy  time.Time // start deadline: Skipped if not started by then; zero = none
	Failures uint32    // attempts that used up a retry
	Losses   uint32    // attempts whose worker was lost
	Unbegun  uint32    // attempts whose worker was lost before it reported that they had begun
	RetryAt  time.Time // Failed: when the retry is due; zero = at once. Held by a pause: when that ends; zero = when resumed. Jitter: when it may start

	Gates     []string // the gates at which it needs a slot, in key order
	Holds     bool     // it holds its slots
	Waits     string   // the full gate it waits at, or ""
	First     bool     // it has priority at a gate (a retry)
	Lingering bool     // the attempt has ended, but its handler has not returned; it keeps its slots

	Checkpoint []byte
	Result     []byte
	Error      string // of the last attempt, from its handler or its worker; see Problem
	Moves      []Move

	Parent jobs.ID
	Unique string // the unique key that it has until it is final, or ""
	Trace  string // W3C traceparent of its request, or ""
	Place  *Place // which worker it may go to; nil = any that has the job
	//lint:ignore U1000 builds with the tag nextrules have a field here
	nextRun

	Faults   []Fault   // attempts that failed with a code or by a rule, the oldest first
	Opens    time.Time // when the gate that it waits at opens by its rate; set on the first run there
	Late     bool      // it makes up for a due time that has passed: it never takes a slot that a due time on time needs
	Reserved bool      // it waits, and holds its slots at the gates of its arguments meanwhile
	Forced   bool      // it was released by force: no pause and no debug mode holds it any more
	Depth    uint8     // length of its chain of parent runs; see MaxDepth
	Budgeted uint8     // of the retry that it waits for: how many budgets have admitted it, the job's and the tenant's
	Feedback *Feedback // reports of another system; nil = none are expected. Shared, never changed

	// Execution is the run's number among the runs of its HTTP job, from 1. Runs of other jobs have 0, because counting
	// writes the job's row for each run.
	Execution uint32

	// Occasion is what started its family, if that is another run or a due time of another job; see Occasion.
	Occasion string

	Batch jobs.ID // that it is in; zero = none
}

// MaxLosses is how many times a run is retried after its worker was lost. The next loss is attributed to the run: it is
// Terminated as poison.
const MaxLosses = 3

// freeUnbegun is how many lost attempts count as no loss because their workers never reported that they had begun. More
// of them may be a run that ends each worker's process at once.
const freeUnbegun = 2

// maxMoves limits a run's history: the first lines and the latest are kept.
const maxMoves = 128

// Wanted returns since when the run could have started: its due time, or when it was requested if that is later.
func (run *Run) Wanted() time.Time {
	if run.Origin == FromBackfill {
		return run.Created
	}
	return run.Due
}

// Waiting reports whether the run has not started: it waits for its time, or for a worker.
func (run *Run) Waiting() bool { return run.State == jobs.Scheduled || run.State == jobs.Enqueued }

// Payer returns whose quota of waiting runs the run counts against; "" = none: the system created it.
func (run *Run) Payer() string { return Payer(run.Actor, run.App) }

// Payer returns whose quota a request of an actor counts against, for jobs of an app. Workers count together with all
// of their app, and clients with all of their tenant: they choose their own names.
func Payer(actor, app string) string {
	switch role, _, _ := strings.Cut(actor, ":"); role {
	case "worker":
		return "app:" + app
	case "client":
		return "clients"
	case "person":
		return actor
	}
	return ""
}

// HandlerKey returns the key of the job whose code runs it.
func (run *Run) HandlerKey() jobs.Key { return cmp.Or(run.Handler, run.Key) }

// Settled reports whether the run cannot change any more: it is final and its handler has returned.
func (run *Run) Settled() bool { return run.State.Final() && !run.Lingering }

// Ready reports whether the run is ready: it can start on a worker now.
func (run *Run) Ready() bool {
	if run.Lingering || run.Waits != "" {
		return false
	}
	return run.State == jobs.Enqueued || run.State == jobs.Failed && run.RetryAt.IsZero()
}

// Wake returns when the run needs the control plane next: a delayed one at its due time, a failed one at its retry, a
// paused one at the end of the pause. Zero means that it does not.
func (run *Run) Wake() time.Time {
	switch {
	case run.Waits != "":
		return run.Opens
	case run.State == jobs.Scheduled && run.Cause == "":
		return run.Due
	case run.State == jobs.Scheduled && (run.Cause == ByPause || run.Cause == ByJitter):
		return run.RetryAt
	case run.State == jobs.Failed && !run.Lingering:
		return run.RetryAt
	}
	return time.Time{}
}

// Next returns the number of the next attempt.
func (run *Run) Next() uint32 { return run.Attempt + 1 }

// to is the only place that sets a state, but for Unstart.
func (run Run) to(s jobs.State, cause Cause, at time.Time, by, text string) (Run, error) {
	if !May(run.State, s) {
		return run, Refuse(jobs.Conflict, "run %s is %s and cannot become %s", run.ID, run.State, s)
	}
	run.State, run.Cause = s, cause
	if s.Final() {
		run.Ended = at
		run.Feedback = run.Feedback.settled()
	}
	if len(text) > 1024 {
		text = plain.Cut(text, 1024)
	}
	if len(run.Moves) >= maxMoves {
		kept := append([]Move(nil), run.Moves[:maxMoves/4]...)
		run.Moves = append(kept, run.Moves[maxMoves/4+maxMoves/8:]...)
	}
	if n := len(run.Moves); n < cap(run.Moves) && run.Moves[:n+1][n] != (Move{}) {
		run.Moves = slices.Clip(run.Moves) // another move from this row has used the spare capacity
	}
	run.Moves = append(run.Moves, Move{State: s, Cause: cause, At: at, Attempt: run.Attempt, By: by, Text: text})
	return run, nil
}

// Begin makes a new run Scheduled (due later, or held by debug mode or a pause until a time) or Enqueued. A run that is
// due later is held only if the hold still applies then.
func (run Run) Begin(at time.Time, held Cause, until time.Time) (Run, error) {
	run.Created = at
	switch {
	case run.Due.After(at):
		return run.to(jobs.Scheduled, "", at, run.Actor, "")
	case held != "":
		return run.Hold(at, held, until)
	}
	return run.Enqueue(at)
}

// BeginAt makes a new run of a schedule Scheduled (until start, or held until a time) or Enqueued: its due time may be
// before that, or after.
func (run Run) BeginAt(at, start time.Time, held Cause, until time.Time) (Run, error) {
	run.Created = at
	switch {
	case start.After(at):
		run.RetryAt = start
		return run.to(jobs.Scheduled, ByJitter, at, run.Actor, "")
	case held != "":
		return run.Hold(at, held, until)
	}
	return run.Enqueue(at)
}

// Hold makes a run that is new, or that would begin now, Scheduled: it is held until a time, or if that is zero until it
// is released. The caller has it give up its slots.
func (run Run) Hold(at time.Time, why Cause, until time.Time) (Run, error) {
	run.RetryAt = until
	return run.to(jobs.Scheduled, why, at, run.Actor, "")
}

// Held reports whether a pause or a debug mode holds the run, or held it until it is released.
func (run *Run) Held() bool {
	return run.State == jobs.Scheduled && (run.Cause == ByPause || run.Cause == ByDebug)
}

// Enqueue makes a new or a Scheduled run Enqueued. The caller decides whether it holds slots.
func (run Run) Enqueue(at time.Time) (Run, error) {
	run.Queued, run.RetryAt = at, time.Time{}
	return run.to(jobs.Enqueued, "", at, run.Actor, "")
}

// Skip ends a run that will never start. gate is the one that had no free slot, or "".
func (run Run) Skip(at time.Time, why Cause, gate string) (Run, error) {
	return run.to(jobs.Skipped, why, at, run.Actor, gate)
}

// Retry makes a Failed run whose retry is due ready.
func (run Run) Retry() Run {
	run.RetryAt, run.First, run.Budgeted = time.Time{}, true, 0
	return run
}

// Start starts an attempt. Its number is the token that fences all older ones.
func (run Run) Start(at time.Time, worker string) (Run, error) {
	run.Attempt++
	run.Worker, run.Started, run.Deadline = worker, at, time.Time{}
	if run.Terms.Timeout > 0 {
		run.Deadline = at.Add(run.Terms.Timeout)
	}
	run.RetryAt, run.First, run.Error, run.Budgeted = time.Time{}, false, "", 0
	return run.to(jobs.Processing, "", at, worker, "")
}

// Unstart takes back the start of an attempt that never began. The run is as it was, but for the attempt's number.
func (run Run) Unstart() (Run, error) {
	n := len(run.Moves) - 1
	if run.State != jobs.Processing || n < 1 {
		return run, Refuse(jobs.Conflict, "run %s is %s: no start can be taken back", run.ID, run.State)
	}
	last := &run.Moves[n-1]
	run.State, run.Cause, run.Moves = last.State, last.Cause, run.Moves[:n]
	run.Worker, run.Started, run.Deadline = "", time.Time{}, time.Time{}
	if last.State == jobs.Failed {
		run.Error = last.Text
	}
	for _, m := range slices.Backward(run.Moves) {
		if m.State == jobs.Processing {
			if run.Worker, run.Started = m.By, m.At; run.Terms.Timeout > 0 {
				run.Deadline = m.At.Add(run.Terms.Timeout)
			}
			break
		}
	}
	return run, nil
}

// Succeed ends a run with success.
func (run Run) Succeed(at time.Time, result []byte) (Run, error) {
	run.Result = result
	return run.to(jobs.Succeeded, "", at, run.Worker, "")
}

// Fail ends an attempt with a failure: the run becomes Failed, and Terminated when the budget of its cause is used up.
// Errors and timeouts count as retries, losses have a budget of their own, handback and snooze cost nothing. A positive
// delay is when the next attempt is due; otherwise a failure of the handler waits by its terms and its code, and
// everything else is retried at once.
func (run Run) Fail(at time.Time, cause Cause, code, text string, delay time.Duration, retry bool) (Run, error) {
	return run.fail(at, cause, code, text, delay, retry, true)
}

// Lose ends an attempt whose worker was lost. One that never reported that it had begun the attempt costs the run nothing
// the first times; whether it did is unknown all the same.
func (run Run) Lose(at time.Time, unbegun bool) (Run, error) {
	if unbegun {
		run.Unbegun++
	}
	return run.fail(at, ByLoss, "", "", 0, true, !unbegun || run.Unbegun > freeUnbegun)
}

func (run Run) fail(at time.Time, cause Cause, code, text string, delay time.Duration, retry, loss bool) (Run, error) {
	run.Error = text
	next, err := run.to(jobs.Failed, cause, at, run.Worker, text)
	if err != nil {
		return run, err
	}
	end := Cause("")
	switch cause {
	case ByError, ByTimeout:
		next.Failures++
		next.Feedback = next.Feedback.unheard()
		wait, again := next.again(code)
		if !again || !retry {
			end = cause
		} else if delay <= 0 {
			delay = wait
		}
	case BySnooze:
		next.blame(Fault{Attempt: next.Attempt, Code: code})
	case ByLoss:
		if loss {
			next.Losses++
		}
		switch {
		case next.Terms.OnLost == jobs.LostFail:
			end = ByLoss
		case next.Losses > MaxLosses:
			end = ByPoison
		}
	}
	if end != "" {
		return next.to(jobs.Terminated, end, at, next.Worker, text)
	}
	if delay > 0 {
		next.RetryAt = at.Add(delay)
	}
	return next, nil
}

// Cancel cancels a run. One that is Processing keeps its slots until its handler has returned.
func (run Run) Cancel(at time.Time, by, text string) (Run, error) {
	run.Lingering, run.RetryAt = run.Lingering || run.State == jobs.Processing, time.Time{}
	return run.to(jobs.Cancelled, ByPerson, at, by, text)
}

// Replace ends a run because a newer one of its job replaces it: a waiting one is Skipped.
func (run Run) Replace(at time.Time, by jobs.ID) (Run, error) {
	if run.State == jobs.Enqueued {
		return run.to(jobs.Skipped, ByReplaced, at, "run:"+by.String(), "")
	}
	run.Lingering, run.RetryAt = run.Lingering || run.State == jobs.Processing, time.Time{}
	return run.to(jobs.Cancelled, ByReplaced, at, "run:"+by.String(), "")
}
