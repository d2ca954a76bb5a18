package kernel

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Command is a request to change a store. Commands are atomic and idempotent: each is applied whole or refused without
// effect, and sending one again returns the same result.
type Command interface {
	// Verb returns the command's number on the wire and in the table of who may send it.
	Verb() Verb
	// Check validates the command by itself, before any row is read.
	Check() error
}

// Envelope carries a command to a store. The sender fills all fields but At, which the store stamps: never before the
// last commit's time, and never from the sender's clock.
type Envelope struct {
	ID      jobs.ID     // identifies this request; new rows get IDs derived from it
	Tenant  jobs.Tenant //
	Actor   string      // the caller, such as "worker:w1", "person:ann", "leader"
	Reason  string      // why, in the caller's text; recorded with the change
	Sender  *Sender     // what the door that authenticated the caller knows; nil = the scheduler itself
	At      time.Time
	Command Command
}

// Declaration is a job as its code describes it.
type Declaration struct {
	Key     jobs.Key
	Kind    Kind
	Version int // Options.Version
	Code    Settings
	Schema  []byte // JSON Schema of the arguments, or nil
}

// NoWorker is the Worker of a Register that creates a job without a worker.
const NoWorker = "none"

// Register registers a worker's jobs. The first registration of a worker's process (Start) makes unedited fields follow
// the code, unless a higher version has registered; later ones only add missing jobs.
type Register struct {
	App    string
	Worker string
	Start  bool
	Job    Declaration

	// Bundle and Set are of a job that is created without a worker: the bundle that creates it ("" = none), and what an
	// Edit would set. A job that is there already is refused, unless it has the same Set.
	Bundle string
	Set    Settings
}

// Edit sets fields of a job for a person or a file. Fields of Set override the code until they are cleared; Clear names
// fields that follow the code again.
type Edit struct {
	Key        jobs.Key
	Set        Settings
	Clear      []string
	IfRevision uint64 // refused as Stale if the job has another; 0 = any
	Restart    bool   // the schedule begins anew, also if it does not change

	// Bundle is the bundle that edits the job; "" = none. The job joins it if it is registered and in no bundle, and,
	// with TakeOver, in any case. With Leave, a registered job leaves it, and the fields that it set follow the code.
	Bundle   string
	TakeOver bool
	Leave    bool
}

// Pause pauses a job, until a time or until resumed: due times of a recurring one become ledger ranges, new runs of a
// triggered one wait. Runs that a person starts are not affected.
type Pause struct {
	Key    jobs.Key
	Reason string
	Until  time.Time
}

// Resume ends a pause. Due times that passed meanwhile stay in the ledger as a paused range. The leader releases the runs
// that the pause held, one by one (Release): they begin, or end as this command decides.
type Resume struct {
	Key     jobs.Key
	Discard bool      // requested runs are cancelled
	From    time.Time // runs of due times from then on begin; zero = all are Skipped
}

// Create creates one run.
type Create struct {
	ID          jobs.ID // chosen by the sender; repeating it creates no second run
	Key         jobs.Key
	Args        []byte        // JSON object; nil = the job's default arguments
	Due         time.Time     // zero = now
	Delay       time.Duration // after the store's now; used when Due is zero
	Unique      string        // unique key: at most one run of the job that is not final has it
	UniqueFor   time.Duration // the key lasts for this duration from creation instead, final or not
	Idempotency string        // a repeated key within 24 h returns the run that it created
	Origin      Origin        // FromCode if empty
	Parent      jobs.ID
	Priority    *int
	Retries     *int
	Timeout     *time.Duration
	StartWithin *time.Duration
	Trace       string // W3C traceparent of the request, passed to the handler
	Pin         string // the worker that runs it, instead of the job's pin; the route is ignored then
	// Set if one run of a broadcast is started again; Total 0 = it is not.
	Index, Total uint32
	Batch        jobs.ID // that the run is in: its end waits for it
	Occasion     string  // FromRetry: the occasion of the run that is repeated; see Run.OccasionName
	//lint:ignore U1000 builds with the tag nextrules have a field here
	nextCreate
}

// IdempotencyLife is how long an idempotency key is kept.
const IdempotencyLife = 24 * time.Hour

// Fire decides due times of a recurring job: some become runs, others ledger ranges, and the cursor moves from From to
// To with them. Refused as Stale if the job, its revision, its cursor, the tenant's Global or the leader has changed
// since the decision.
type Fire struct {
	Key      jobs.Key
	Job      jobs.ID
	Revision uint64
	Global   uint64
	Term     uint64
	From, To time.Time
	Due      []time.Time
	Late     int      // how many of Due, the first, are late and run all the same, by the misfire policy
	Missed   []Missed // ranges in order: no due time of Due lies in one
	// Calendars is Global.Calendars at the decision; it only matters to jobs that use calendars.
	Calendars uint64
}

// Release wakes a run: a Scheduled one becomes Enqueued, a Failed one queues for its retry.
type Release struct {
	ID    jobs.ID
	Force bool // also a run that is held or not due yet: a person requested it
}

// Start starts attempt number Attempt of a run on a worker. The leader sends it, and pushes the run when it is committed.
type Start struct {
	ID      jobs.ID
	Worker  string
	Attempt uint32
	Term    uint64  // of the leader; refused as Stale if a later one is current. 0 = any
	Skills  *Skills // of a run that the same entry creates: refused as Stale if it has others. nil = the leader knew them
}

// Unstart takes back the start of an attempt that never began: its worker refused it, or no process received it. The
// run keeps its place in line; the attempt's number is spent.
type Unstart struct {
	ID      jobs.ID
	Attempt uint32
}

// Outcome is how an attempt ended.
type Outcome uint8

// The outcomes. The numbers are part of the wire.
const (
	OutcomeSuccess  Outcome = 1
	OutcomeError    Outcome = 2
	OutcomeFatal    Outcome = 3 // an error without a retry
	OutcomeTimeout  Outcome = 4
	OutcomeHandback Outcome = 5 // the worker is stopping
	OutcomeSnooze   Outcome = 6 // the handler asked to be called again after Delay
)

func (o Outcome) String() string {
	return [...]string{"", "success", "error", "fatal", "timeout", "handback", "snooze"}[min(o, 6)]
}

// Finish ends an attempt.
type Finish struct {
	ID      jobs.ID
	Worker  string
	Attempt uint32
	Outcome Outcome
	Result  []byte
	Error   string
	Delay   time.Duration
	Running bool   // the handler has not returned yet; Returned follows
	Code    string // of the error, as Fail gave it
}

// Returned reports that the handler of an ended attempt has returned: its slots are free.
type Returned struct {
	ID      jobs.ID
	Worker  string
	Attempt uint32
}

// Checkpoint stores data of a handler for its next attempt.
type Checkpoint struct {
	ID      jobs.ID
	Worker  string
	Attempt uint32
	Data    []byte
}

// Expire ends an attempt whose worker is lost (ByLoss), or that exceeded its timeout (ByTimeout).
type Expire struct {
	ID      jobs.ID
	Attempt uint32
	Cause   Cause
	Unbegun bool // ByLoss: the worker never reported that it had begun
}

// Cancel cancels a run.
type Cancel struct{ ID jobs.ID }

// Lead starts a leader's term. Fires of older terms are refused from then on.
type Lead struct {
	Term uint64
	Node string
}

// Refresh merges the settings of a job again, after the defaults have changed.
type Refresh struct{ Key jobs.Key }

// Forget deletes an expired unique key.
type Forget struct{ Name string }

// Hand assigns free slots of a gate to waiting runs, after more became free than one command could assign.
type Hand struct{ Gate string }

// Verb returns the verb of each command.
func (Register) Verb() Verb   { return VerbRegister }
func (Edit) Verb() Verb       { return VerbEdit }
func (Pause) Verb() Verb      { return VerbPause }
func (Resume) Verb() Verb     { return VerbResume }
func (Create) Verb() Verb     { return VerbCreate }
func (Fire) Verb() Verb       { return VerbFire }
func (Release) Verb() Verb    { return VerbRelease }
func (Start) Verb() Verb      { return VerbStart }
func (Unstart) Verb() Verb    { return VerbUnstart }
func (Finish) Verb() Verb     { return VerbFinish }
func (Returned) Verb() Verb   { return VerbReturned }
func (Checkpoint) Verb() Verb { return VerbCheckpoint }
func (Expire) Verb() Verb     { return VerbExpire }
func (Cancel) Verb() Verb     { return VerbCancel }
func (Lead) Verb() Verb       { return VerbLead }
func (Refresh) Verb() Verb    { return VerbRefresh }
func (Forget) Verb() Verb     { return VerbForget }
func (Hand) Verb() Verb       { return VerbHand }

// Check validates the tenant, the actor, what the sender may send, and the command.
func (e *Envelope) Check() error {
	if e.Command == nil {
		return Invalid("envelope %s carries no command", e.ID)
	}
	if err := CheckName("tenant", string(e.Tenant)); err != nil {
		return err
	}
	if e.Actor == "" || len(e.Actor) > 300 || !plain.Is(e.Actor) {
		return Invalid("invalid actor %.40q: want 1 to 300 bytes of text", e.Actor)
	}
	if len(e.Reason) > 1024 {
		return Invalid("reason has %d bytes, at most 1024 are allowed", len(e.Reason))
	}
	if err := CheckText("reason", e.Reason); err != nil {
		return err
	}
	if err := e.Sender.check(e); err != nil {
		return err
	}
	if _, ok := e.Command.(FinalizeUpgrade); ok && e.Tenant != jobs.DefaultTenant {
		return Refuse(jobs.Forbidden, "tenant %s may not finalize an upgrade: all tenants share the nodes", e.Tenant)
	}
	return CheckCommand(e.Command)
}

// CheckCommand validates a command by itself: Check, and each text in it. Every command passes here, whatever door it
// came through, and a dry run asks the same.
func CheckCommand(k Command) error {
	switch k.(type) {
	case Create, Start, Finish: // each run passes here, some three times: these look at their few texts themselves
		return k.Check()
	}
	c := coder{looking: true}
	wireCommand(&c, &k)
	if c.found != "" {
		return CheckText("text", c.found)
	}
	return k.Check()
}

// Check validates the registration.
func (c Register) Check() error {
	if err := c.Job.Check(); err != nil {
		return err
	}
	if err := CheckName("app", c.App); err != nil {
		return err
	}
	if err := CheckName("worker", c.Worker); err != nil {
		return err
	}
	if err := c.Job.checkSchema(); err != nil {
		return err
	}
	if err := c.checkSystem(); err != nil {
		return err
	}
	if err := checkBundle(c.Bundle); err != nil {
		return err
	}
	if c.Bundle != "" && c.Worker != NoWorker {
		return Invalid("job %s: a worker may not register into bundle %s", c.Job.Key, c.Bundle)
	}
	if len(c.Set.Given()) > 0 && c.Worker != NoWorker {
		return Invalid("job %s: a worker may not edit what it registers", c.Job.Key)
	}
	if err := c.Set.Check(); err != nil {
		return err
	}
	if name := c.Job.Code.givenWork(); name != "" { // a worker must not make others send their secrets, or run its commands
		return Invalid("job %s: a registration may not contain %s settings: create such jobs with carillon apply or POST /api/v1/jobs", c.Job.Key, name)
	}
	return nil
}

// Check validates the edit.
func (c Edit) Check() error {
	if err := c.Key.Check(); err != nil {
		return err
	}
	if err := checkBundle(c.Bundle); err != nil {
		return err
	}
	if c.Bundle == "" && (c.TakeOver || c.Leave) {
		return Invalid("edit of %s: taking over and leaving need a bundle", c.Key)
	}
	if c.Leave && (c.TakeOver || c.Restart || len(c.Clear) > 0 || len(c.Set.Given()) > 0) {
		return Invalid("edit of %s: leaving bundle %s may not be combined with other changes", c.Key, c.Bundle)
	}
	for _, name := range c.Clear {
		if !slices.Contains(Fields(), name) {
			return Invalid("there is no field %.60q to clear: the fields are %s", name, strings.Join(Fields(), ", "))
		}
	}
	return c.Set.Check()
}

// Check validates the pause.
func (c Pause) Check() error {
	if len(c.Reason) > 1024 {
		return Invalid("reason has %d bytes, at most 1024 are allowed", len(c.Reason))
	}
	if err := checkTime("end of the pause", c.Until); err != nil {
		return err
	}
	return c.Key.Check()
}

// Check validates the key.
func (c Resume) Check() error { return c.Key.Check() }

// Check validates the request for a run.
func (c Create) Check() error {
	if c.ID.IsZero() {
		return Invalid("a new run needs an ID")
	}
	if err := c.Key.Check(); err != nil {
		return err
	}
	if err := c.checkSystem(); err != nil {
		return err
	}
	if err := CheckArgs(c.Args); err != nil {
		return err
	}
	if err := checkTime("due time", c.Due); err != nil {
		return err
	}
	if err := checkTrace(c.Trace); err != nil {
		return err
	}
	if c.Delay < 0 || c.Delay > MaxDelay {
		return Invalid("invalid delay %v: want 0 to %v", c.Delay, MaxDelay)
	}
	if c.UniqueFor < 0 || c.UniqueFor > MaxDuration {
		return Invalid("invalid unique duration %v: want 0 to %v", c.UniqueFor, MaxDuration)
	}
	if c.UniqueFor > 0 && c.Unique == "" {
		return Invalid("unique duration %v without a unique key: set both", c.UniqueFor)
	}
	if len(c.Unique) > 200 {
		return Invalid("unique key has %d bytes, at most 200 are allowed", len(c.Unique))
	}
	if err := cmp.Or(CheckText("unique key", c.Unique), checkIdempotency(c.Idempotency)); err != nil {
		return err
	}
	if c.Pin != "" {
		if err := CheckName("pin", c.Pin); err != nil {
			return err
		}
	}
	if c.Occasion != "" && (c.Origin != FromRetry || len(c.Occasion) > MaxOccasionName || !plain.Is(c.Occasion)) {
		return Invalid("invalid occasion %.60q: only runs that repeat another have one, of at most %d bytes", c.Occasion, MaxOccasionName)
	}
	if !c.Batch.IsZero() && c.Origin == FromRetry {
		return Invalid("a run that repeats another cannot be added to a batch")
	}
	if c.Total > MaxParts || c.Total > 0 && c.Index >= c.Total {
		return Invalid("invalid part %d of %d: parts are numbered from 0, and there are at most %d", c.Index, c.Total, MaxParts)
	}
	switch c.Origin {
	case "", FromCode, FromPerson, FromAPI, FromRetry, FromParent:
	default:
		return Invalid("invalid origin %.20q: want code, person, api, retry or parent", c.Origin)
	}
	if c.Priority == nil && c.Retries == nil && c.Timeout == nil && c.StartWithin == nil {
		return nil // the common case: each run passes here, more than once
	}
	own := Settings{Priority: c.Priority, Retries: c.Retries, Timeout: c.Timeout, StartWithin: c.StartWithin}
	return own.Check()
}

func checkIdempotency(key string) error {
	if len(key) > 200 {
		return Invalid("idempotency key has %d bytes, at most 200 are allowed", len(key))
	}
	return CheckText("idempotency key", key)
}

// Digest returns a hash of the request without the run's ID and the trace, which a repeated request has of its own: two
// requests under one idempotency key must have the same. It is stored in rows, so it must not change when Create gains
// a field.
func (c Create) Digest() jobs.ID {
	c.ID = jobs.ID{}
	if c.Origin == FromParent { // the parent run does not matter
		c.Origin, c.Parent = FromCode, jobs.ID{}
	}
	w := coder{buf: []byte{byte(VerbCreate)}}
	wireRequest(&w, &c)
	if c.Pin != "" || c.Total > 0 { // left out otherwise, so that digests from before these fields stay the same
		wirePlacing(&w, &c)
	}
	return DerivedID(string(w.buf))
}

// Check validates the fire.
func (c Fire) Check() error {
	if c.Late < 0 || c.Late > len(c.Due) {
		return Invalid("fire of %s: %d of %d due times cannot be late", c.Key, c.Late, len(c.Due))
	}
	if !c.To.After(c.From) {
		return Invalid("fire of %s: the cursor would move from %v to %v", c.Key, c.From, c.To)
	}
	last := c.From
	for _, d := range c.Due {
		if !d.After(last) || d.After(c.To) {
			return Invalid("fire of %s: due time %v is outside (%v, %v] or out of order", c.Key, d, last, c.To)
		}
		last = d
	}
	due := c.Due
	last = c.From
	for _, m := range c.Missed {
		for len(due) > 0 && due[0].Before(m.From) {
			last, due = due[0], due[1:]
		}
		if m.Count == 0 || m.To.Before(m.From) || !m.From.After(last) || m.To.After(c.To) {
			return Invalid("fire of %s: missed range %v to %v of %d is not within (%v, %v]", c.Key, m.From, m.To, m.Count, last, c.To)
		}
		if len(due) > 0 && !due[0].After(m.To) {
			return Invalid("fire of %s: due time %v is in the missed range %v to %v", c.Key, due[0], m.From, m.To)
		}
		last = m.To
	}
	return c.Key.Check()
}

// Check validates the release.
func (c Release) Check() error { return checkRun(c.ID, "-", 1) }

// Check validates the start.
func (c Start) Check() error { return checkRun(c.ID, c.Worker, c.Attempt) }

// Check validates the attempt.
func (c Unstart) Check() error { return checkRun(c.ID, "-", c.Attempt) }

// Check validates the end of an attempt.
func (c Finish) Check() error {
	if c.Outcome < OutcomeSuccess || c.Outcome > OutcomeSnooze {
		return Invalid("unknown outcome %d", c.Outcome)
	}
	if err := CheckResult(c.Result); err != nil {
		return err
	}
	if len(c.Error) > MaxError {
		return Invalid("error text has %d bytes, at most %d are allowed", len(c.Error), MaxError)
	}
	if err := CheckText("error text", c.Error); err != nil {
		return err
	}
	if c.Delay < 0 || c.Delay > MaxDelay {
		return Invalid("invalid delay %v: want 0 to %v", c.Delay, MaxDelay)
	}
	if err := checkCode("code", c.Code); err != nil {
		return err
	}
	return checkRun(c.ID, c.Worker, c.Attempt)
}

// Check validates the return.
func (c Returned) Check() error { return checkRun(c.ID, c.Worker, c.Attempt) }

// Check validates the checkpoint.
func (c Checkpoint) Check() error {
	if err := CheckCheckpoint(c.Data); err != nil {
		return err
	}
	return checkRun(c.ID, c.Worker, c.Attempt)
}

// Check validates the expiry.
func (c Expire) Check() error {
	if c.Cause != ByLoss && c.Cause != ByTimeout {
		return Invalid("invalid cause %.20q: an attempt expires by loss or by timeout", c.Cause)
	}
	if c.Unbegun && c.Cause != ByLoss {
		return Invalid("an attempt that has not begun cannot time out")
	}
	return checkRun(c.ID, "-", c.Attempt)
}

// Check validates the cancel.
func (c Cancel) Check() error { return checkRun(c.ID, "-", 1) }

// Check validates the term.
func (c Lead) Check() error {
	if c.Term == 0 {
		return Invalid("invalid term 0: want at least 1")
	}
	return nil
}

// Check validates the key.
func (c Refresh) Check() error { return c.Key.Check() }

// Check validates the name.
func (c Forget) Check() error {
	if c.Name == "" {
		return Invalid("forget needs a name")
	}
	return nil
}

// Check validates the gate's name.
func (c Hand) Check() error {
	if c.Gate == "" {
		return Invalid("hand needs a gate")
	}
	return nil
}

// CheckText refuses, with BadInput, texts that not every store can store. A database would fail on them: on the commit
// of a command, with all other commands in it, or on a search.
func CheckText(what, s string) error {
	if !plain.Is(s) {
		return Invalid("%s %.40q is not UTF-8, or contains a NUL: write bytes in hex or base64", what, s)
	}
	return nil
}

func checkRun(id jobs.ID, worker string, attempt uint32) error {
	switch {
	case id.IsZero():
		return Invalid("run ID missing")
	case worker == "" || len(worker) > 300 || !plain.Is(worker):
		return Invalid("invalid worker name %.40q: want 1 to 300 bytes of text", worker)
	case attempt == 0:
		return Invalid("invalid attempt 0: want at least 1")
	}
	return nil
}
