package api

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// What the API says and is told, in JSON. These are written out, and not the rows themselves, so that a row may
// change without the API changing, and the other way round.

// Duration is a length of time as people write it: "90s", "1h30m".
type Duration time.Duration

// Schema describes it to clients. The name is huma's.
func (Duration) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Description: "A length of time, such as 90s, 5m or 1h30m.", Examples: []any{"1h30m"}, MaxLength: new(40),
		Pattern: `^(0|([0-9]+(\.[0-9]+)?(ms|s|m|h))+)$`, PatternDescription: "a length of time such as 90s, 5m or 1h30m"}
}

// MarshalText writes it as Go does, without the zeros.
func (d Duration) MarshalText() ([]byte, error) {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return []byte(s), nil
}

// UnmarshalText reads what MarshalText writes, and the rest of Go's notation.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return jobs.Invalid("%.40q is not a length of time such as 90s or 1h30m", b)
	}
	*d = Duration(v)
	return nil
}

// Object is a JSON object as it was sent, to the byte.
type Object json.RawMessage

// Schema describes it to clients. The name is huma's.
func (Object) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true, Description: "Any JSON object, up to 256 KiB."}
}

// MarshalJSON writes it as it is.
func (o Object) MarshalJSON() ([]byte, error) { return json.RawMessage(o).MarshalJSON() }

// UnmarshalJSON keeps it as it is.
func (o *Object) UnmarshalJSON(b []byte) error { return (*json.RawMessage)(o).UnmarshalJSON(b) }

// Value is any JSON, as a handler left it.
type Value = json.RawMessage

// Limit is a number of slots that jobs share.
type Limit struct {
	Name string `json:"name" minLength:"1" maxLength:"200"`
	Max  int    `json:"max" minimum:"1" maximum:"1000000"`
}

// Policy is what can be said about a job. Fields that are left out say nothing.
type Policy struct {
	Name           *string    `json:"name,omitempty" maxLength:"200"`
	Description    *string    `json:"description,omitempty"`
	Tags           *[]string  `json:"tags,omitempty" maxItems:"32" nullable:"false"`
	Schedule       *string    `json:"schedule,omitempty" maxLength:"256" doc:"Cron, an interval, an ISO 8601 repeat or an instant; empty = never by itself." example:"0 30 2 * * *"`
	Zone           *string    `json:"zone,omitempty" maxLength:"100" doc:"IANA name." example:"Europe/Berlin"`
	Start          *time.Time `json:"start,omitempty" doc:"No run before."`
	End            *time.Time `json:"end,omitempty" doc:"No run after."`
	Gap            *string    `json:"gap,omitempty" enum:"after,before,skip" doc:"When it is due if clocks skip its time of day."`
	Twice          *string    `json:"twice,omitempty" enum:"first,second,both" doc:"When it is due if its time of day comes twice."`
	Args           *Object    `json:"args,omitempty" doc:"Default arguments."`
	MaxConcurrency *int       `json:"maxConcurrency,omitempty" minimum:"0" maximum:"1000000" doc:"Runs at the same time; 0 = no limit."`
	Limits         *[]Limit   `json:"limits,omitempty" maxItems:"8" nullable:"false" doc:"Slots shared with other jobs, by name."`
	Overlap        *string    `json:"overlap,omitempty" enum:"skip,queue" doc:"What becomes of a run that finds no slot."`
	Retries        *int       `json:"retries,omitempty" minimum:"0" maximum:"1000"`
	RetryDelay     *Duration  `json:"retryDelay,omitempty" doc:"Before the first retry, doubled each time; 0s = at once."`
	RetryDelayMax  *Duration  `json:"retryDelayMax,omitempty"`
	Timeout        *Duration  `json:"timeout,omitempty" doc:"Of one attempt; 0s = none."`
	OnLost         *string    `json:"onLost,omitempty" enum:"retry,fail" doc:"What becomes of a run whose worker died."`
	LeaseLost      *string    `json:"leaseLost,omitempty" enum:"continue,cancel" doc:"What a worker does with a run while no control plane answers."`
	Misfire        *string    `json:"misfire,omitempty" enum:"fire_once,fire_all,skip" doc:"What becomes of missed due times."`
	Priority       *int       `json:"priority,omitempty" minimum:"-100" maximum:"100"`
	StartWithin    *Duration  `json:"startWithin,omitempty" doc:"Not started by then: Skipped; 0s = no deadline."`
	Disabled       *bool      `json:"disabled,omitempty"`
}

// settings is what the policy says, in the words of a command.
func (p *Policy) settings() jobs.Settings {
	s := jobs.Settings{
		Name: p.Name, Description: p.Description, Tags: p.Tags, Schedule: p.Schedule, Zone: p.Zone,
		Start: instant(p.Start), End: instant(p.End), Gap: (*jobs.Gap)(p.Gap), Twice: (*jobs.Twice)(p.Twice),
		MaxConcurrency: p.MaxConcurrency, Retries: p.Retries, Priority: p.Priority, Disabled: p.Disabled,
		RetryDelay: (*time.Duration)(p.RetryDelay), RetryDelayMax: (*time.Duration)(p.RetryDelayMax),
		Timeout: (*time.Duration)(p.Timeout), StartWithin: (*time.Duration)(p.StartWithin),
		Overlap: (*jobs.Overlap)(p.Overlap), OnLost: (*jobs.OnLost)(p.OnLost), LeaseLost: (*jobs.LeaseLost)(p.LeaseLost), Misfire: (*jobs.Misfire)(p.Misfire),
		Args: (*json.RawMessage)(p.Args),
	}
	if p.Limits != nil {
		limits := make([]jobs.Limit, len(*p.Limits))
		for i, l := range *p.Limits {
			limits[i] = jobs.Limit(l)
		}
		s.Limits = &limits
	}
	return s
}

func instant(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	return new(jobs.Instant(*t))
}

// policy is what holds for a job.
func policy(p *jobs.Policy) Policy {
	limits := make([]Limit, len(p.Limits))
	for i, l := range p.Limits {
		limits[i] = Limit(l)
	}
	tags := p.Tags
	if tags == nil {
		tags = []string{}
	}
	return Policy{
		Name: &p.Name, Description: &p.Description, Tags: &tags, Schedule: &p.Schedule, Zone: &p.Zone,
		Start: when(p.Start), End: when(p.End), Gap: (*string)(&p.Gap), Twice: (*string)(&p.Twice), Args: object(p.Args), Limits: &limits,
		MaxConcurrency: &p.MaxConcurrency, Retries: &p.Retries, Priority: &p.Priority, Disabled: &p.Disabled,
		RetryDelay: (*Duration)(&p.RetryDelay), RetryDelayMax: (*Duration)(&p.RetryDelayMax),
		Timeout: (*Duration)(&p.Timeout), StartWithin: (*Duration)(&p.StartWithin),
		Overlap: (*string)(&p.Overlap), OnLost: (*string)(&p.OnLost), LeaseLost: (*string)(&p.LeaseLost), Misfire: (*string)(&p.Misfire),
	}
}

// when is a time that may not be there.
func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func object(b []byte) *Object {
	if len(b) == 0 {
		return nil
	}
	return new(Object(b))
}

// Pause says that a job does not fire by itself.
type Pause struct {
	Reason string     `json:"reason,omitempty"`
	By     string     `json:"by"`
	At     time.Time  `json:"at"`
	Until  *time.Time `json:"until,omitempty"`
}

// Job is a job with what holds for it and when it comes next.
type Job struct {
	Key  jobs.Key `json:"key"`
	Kind string   `json:"kind" enum:"recurring,triggered"`
	App  string   `json:"app" doc:"The worker group that runs it."`
	Policy
	Words      string      `json:"words,omitempty" doc:"The schedule in plain words."`
	Next       []time.Time `json:"next" nullable:"false" doc:"Due times ahead."`
	Silent     string      `json:"silent,omitempty" doc:"Why those would not become runs, as things stand."`
	Trouble    string      `json:"trouble,omitempty" doc:"Why its schedule cannot be read."`
	Warnings   []string    `json:"warnings,omitempty" doc:"What the schedule may mean that its writer did not."`
	Paused     *Pause      `json:"paused,omitempty"`
	Edited     []string    `json:"edited" nullable:"false" doc:"Fields that people have set; the others follow the code."`
	ArgsSchema *Object     `json:"argsSchema,omitempty"`
	Version    int         `json:"version" doc:"Of the code that registered it."`
	Revision   uint64      `json:"revision" doc:"Counts its changes; also its ETag."`
	Created    time.Time   `json:"created"`
	Changed    time.Time   `json:"changed"`
}

func jobOf(j ops.Job) Job {
	out := Job{
		Key: j.Key, Kind: j.Kind.String(), App: j.App, Policy: policy(&j.Definition.Policy), Words: j.Words, Next: j.Next,
		Silent: string(j.Silent), Trouble: j.Trouble, Warnings: j.Warnings, Edited: j.Edits.Given(), ArgsSchema: object(j.Schema),
		Version: j.Version, Revision: j.Revision, Created: j.Created, Changed: j.Definition.Edited,
	}
	if out.Next == nil {
		out.Next = []time.Time{}
	}
	if out.Edited == nil {
		out.Edited = []string{}
	}
	if p := j.Paused; p != nil {
		out.Paused = &Pause{Reason: p.Reason, By: p.By, At: p.At, Until: when(p.Until)}
	}
	return out
}

// Move is one line of a run's history.
type Move struct {
	State   string    `json:"state"`
	Cause   string    `json:"cause,omitempty"`
	At      time.Time `json:"at"`
	Attempt uint32    `json:"attempt"`
	By      string    `json:"by,omitempty"`
	Text    string    `json:"text,omitempty"`
}

// Progress is how far a run said it is.
type Progress struct {
	Done  int64  `json:"done"`
	Total int64  `json:"total,omitempty" doc:"0 = not known."`
	Text  string `json:"text,omitempty"`
}

// Instance is one run of a job. Lists leave out args, result and moves.
type Instance struct {
	ID        string     `json:"id" format:"uuid"`
	Job       jobs.Key   `json:"job"`
	App       string     `json:"app,omitempty"`
	State     string     `json:"state" enum:"Scheduled,Enqueued,Processing,Succeeded,Failed,Terminated,Cancelled,Skipped"`
	Cause     string     `json:"cause,omitempty" doc:"Why it is in this state."`
	Origin    string     `json:"origin" enum:"cron,misfire,code,person,retry,parent"`
	Actor     string     `json:"actor,omitempty" doc:"Who asked for it."`
	Parent    string     `json:"parent,omitempty" format:"uuid"`
	Unique    string     `json:"unique,omitempty"`
	Priority  int        `json:"priority"`
	Due       *time.Time `json:"due,omitempty"`
	Created   *time.Time `json:"created,omitempty"`
	Queued    *time.Time `json:"queued,omitempty"`
	Started   *time.Time `json:"started,omitempty"`
	Ended     *time.Time `json:"ended,omitempty"`
	Deadline  *time.Time `json:"deadline,omitempty" doc:"When the current attempt times out."`
	RetryAt   *time.Time `json:"retryAt,omitempty"`
	Attempt   uint32     `json:"attempt" doc:"Attempts begun so far."`
	Retries   int        `json:"retries" doc:"Attempts allowed after the first."`
	Worker    string     `json:"worker,omitempty"`
	Waits     string     `json:"waits,omitempty" doc:"The full gate it waits at."`
	Lingering bool       `json:"lingering,omitempty" doc:"Over for us, but its handler has not returned."`
	Stuck     bool       `json:"stuck,omitempty" doc:"Its handler was told to stop and has not returned."`
	Progress  *Progress  `json:"progress,omitempty"`
	Error     string     `json:"error,omitempty"`
	Duplicate bool       `json:"duplicate,omitempty" doc:"It was there before; a unique or idempotency key led to it."`
	Args      *Object    `json:"args,omitempty"`
	Result    Value      `json:"result,omitempty"`
	Moves     []Move     `json:"moves,omitempty" doc:"Its history."`
}

// listed is a run as lists show it.
func listed(in *jobs.Instance, now ops.Attempt) Instance {
	out := Instance{
		ID: in.ID.String(), Job: in.Key, App: in.App, State: in.State.String(), Cause: string(in.Cause), Origin: string(in.Origin),
		Actor: in.Actor, Parent: in.Parent.String(), Unique: in.Unique, Priority: in.Priority,
		Due: when(in.Due), Created: when(in.Created), Queued: when(in.Queued), Started: when(in.Started), Ended: when(in.Ended),
		RetryAt: when(in.RetryAt), Attempt: in.Attempt, Retries: in.Terms.Retries, Worker: in.Worker, Waits: in.Waits,
		Lingering: in.Lingering, Stuck: now.Stuck, Error: in.Error,
	}
	if in.State == jobs.Processing {
		out.Deadline = when(in.Deadline)
		if p := now.Progress; p != nil {
			out.Progress = &Progress{Done: p.Done, Total: p.Total, Text: p.Text}
		}
	}
	return out
}

// whole is a run with all that is known of it.
func whole(in *jobs.Instance, now ops.Attempt) Instance {
	out := listed(in, now)
	out.Args, out.Result = object(in.Args), Value(in.Result)
	for _, m := range in.Moves {
		out.Moves = append(out.Moves, Move{State: m.State.String(), Cause: string(m.Cause), At: m.At, Attempt: m.Attempt, By: m.By, Text: m.Text})
	}
	return out
}

// LogLine is one line a handler wrote.
type LogLine struct {
	Attempt  uint32    `json:"attempt"`
	Sequence uint64    `json:"sequence"`
	At       time.Time `json:"at"`
	Level    string    `json:"level"`
	Text     string    `json:"text"`
}

func logLine(l metastore.LogLine) LogLine {
	return LogLine{Attempt: l.Attempt, Sequence: l.Sequence, At: l.At, Level: l.Level, Text: l.Text}
}

// Debug is a debug mode: while it is on, nothing of its kind runs by itself.
type Debug struct {
	On bool       `json:"on"`
	By string     `json:"by,omitempty" doc:"Who switched it last."`
	At *time.Time `json:"at,omitempty"`
}

func debugOf(d jobs.Debug) Debug { return Debug{On: d.On, By: d.By, At: when(d.At)} }

// Worker is a worker as its beats describe it.
type Worker struct {
	Name    string           `json:"name"`
	Label   string           `json:"label"`
	App     string           `json:"app"`
	Host    string           `json:"host"`
	PID     int              `json:"pid"`
	Tags    []string         `json:"tags,omitempty"`
	Slots   int              `json:"slots" doc:"0 = unlimited."`
	Running int              `json:"running"`
	Leaving bool             `json:"leaving,omitempty" doc:"It is stopping and takes nothing new."`
	Jobs    map[jobs.Key]int `json:"jobs" doc:"Keys that it serves, with their code versions."`
	Started time.Time        `json:"started"`
	Seen    time.Time        `json:"seen"`
}

func workerOf(w ops.Worker) Worker {
	return Worker{Name: w.Name, Label: w.Label, App: w.App, Host: w.Host, PID: w.PID, Tags: w.Tags, Slots: w.Slots,
		Running: w.Running, Leaving: w.Leaving, Jobs: w.Keys, Started: w.Started, Seen: w.Seen}
}
