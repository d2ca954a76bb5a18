package kernel

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Routes returns all routes, in the order of the pages.
func Routes() []jobs.Route {
	return []jobs.Route{jobs.RouteAny, jobs.RouteFirst, jobs.RouteLast, jobs.RouteRoundRobin, jobs.RouteRandom, jobs.RouteHash, jobs.RouteLeastRecent, jobs.RouteLeastFrequent,
		jobs.RouteFailover, jobs.RouteIdle, jobs.RouteBroadcast}
}

// Place describes which worker a run may go to. It is derived from the job's policy when the run is created, and stored
// in its row. A run that any worker with its job may take has none.
type Place struct {
	Route   jobs.Route
	Hash    string   // RouteHash: what is hashed
	Needs   []string // worker tags that it requires: tag, or key=value
	Pin     string   // the worker that runs it, by its own or its configured name; "" = any
	PinAway jobs.PinAway
	Version int // lowest code version; 0 = any
	Slots   int // max parallel runs of the job in one worker; 0 = as many as it has slots

	// For a broadcast. One that has not been expanded yet has neither.
	Index, Total uint32  // index, from 0, and total
	Group        jobs.ID // the run that was expanded: part 0
}

// Unexpanded reports whether the run is a broadcast that has not been expanded yet.
func (p *Place) Unexpanded() bool { return p != nil && p.Route == jobs.RouteBroadcast && p.Total == 0 }

// Words describes where the run may go, for users.
func (p *Place) Words() string {
	text := map[jobs.Route]string{
		jobs.RouteAny: "any worker", jobs.RouteFirst: "the first worker that is free", jobs.RouteLast: "the last worker that is free", jobs.RouteRoundRobin: "free workers in turn",
		jobs.RouteRandom: "a random free worker", jobs.RouteHash: "the worker whose share contains " + strconv.Quote(p.Hash), jobs.RouteLeastRecent: "the free worker that had the job longest ago",
		jobs.RouteLeastFrequent: "the free worker that had the job least often today", jobs.RouteFailover: "the first worker that is online", jobs.RouteIdle: "a worker that does not run the job",
		jobs.RouteBroadcast: "each worker",
	}[p.Route]
	if p.Total > 0 {
		text = "part " + strconv.Itoa(int(p.Index)) + " of " + strconv.Itoa(int(p.Total))
	}
	if p.Pin != "" {
		text += ", on " + p.Pin
		if p.PinAway == jobs.PinAny {
			text += " while it is online"
		}
	}
	if len(p.Needs) > 0 {
		text += ", with " + strings.Join(p.Needs, " and ")
	}
	if p.Version > 0 {
		text += ", version " + strconv.Itoa(p.Version) + " or later"
	}
	if p.Slots > 0 {
		text += ", at most " + strconv.Itoa(p.Slots) + " at a time in one"
	}
	return text
}

// PlaceOf returns where runs of a job with these arguments may go; nil = to any worker that has the job.
func PlaceOf(d *Definition, args []byte) *Place {
	p := &d.Policy
	current := p.CodeVersion == jobs.CodeCurrent && d.Version > 0
	if (p.Route == jobs.RouteAny || p.Route == "") && len(p.Needs) == 0 && p.Pin == "" && p.Slots == 0 && !current {
		return nil
	}
	at := &Place{Route: p.Route, Needs: p.Needs, Pin: p.Pin, PinAway: p.PinAway, Slots: p.Slots}
	if at.Route == "" {
		at.Route = jobs.RouteAny
	}
	if current {
		at.Version = d.Version
	}
	if at.Route == jobs.RouteHash {
		at.Hash = string(d.Key)
		if p.RouteBy != "" {
			at.Hash = ArgAt(args, p.RouteBy)
		}
	}
	return at
}

// ArgAt returns the argument at a path such as customer.id, as text; "" if there is none.
func ArgAt(args []byte, path string) string {
	raw := json.RawMessage(args)
	for name := range strings.SplitSeq(path, ".") {
		var fields map[string]json.RawMessage
		var list []json.RawMessage
		if json.Unmarshal(raw, &fields) == nil {
			raw = fields[name]
		} else if i, err := strconv.Atoi(name); err == nil && json.Unmarshal(raw, &list) == nil && i >= 0 && i < len(list) {
			raw = list[i]
		} else {
			return ""
		}
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// PartID returns the ID of one of the runs of a broadcast; part 0 is the run itself. For a recurring job it is derived
// from the due time, like the run's own.
func PartID(run *Run, part uint32) jobs.ID {
	if part == 0 {
		return run.ID
	}
	if run.ID == DueID(run.Tenant, run.Job, run.Due, 0, 0) {
		return DueID(run.Tenant, run.Job, run.Due, part, 0)
	}
	return DerivedID("shard", string(run.Tenant), string(run.ID[:]), strconv.Itoa(int(part)))
}

// PartsGate returns the name of the gate that counts the runs of a broadcast which hold its slots.
func PartsGate(group jobs.ID) string { return "parts/" + group.String() }

// MaxParts is how many workers a broadcast reaches: the first, in the order of their names.
const MaxParts = 1000

// Expand splits a ready broadcast run into one run for each of the named workers, in their order. With no
// workers it is Skipped, with that cause. One that was expanded before stays as it is.
type Expand struct {
	ID      jobs.ID
	Workers []string
}

// Verb returns the verb of the command.
func (Expand) Verb() Verb { return VerbExpand }

// Check validates the workers.
func (c Expand) Check() error {
	if len(c.Workers) > MaxParts {
		return Invalid("too many workers for a broadcast: %d of %d", len(c.Workers), MaxParts)
	}
	for _, w := range c.Workers {
		if err := checkRun(c.ID, w, 1); err != nil {
			return err
		}
	}
	return checkRun(c.ID, "-", 1)
}

// Drain drains a worker, or resumes it. Its only row is the audit: the worker reports its state in its heartbeats, so
// that any leader knows it.
type Drain struct {
	Worker string // its own name, of this process
	On     bool
}

// Verb returns the verb of the command.
func (Drain) Verb() Verb { return VerbDrain }

// Check validates the name.
func (c Drain) Check() error { return CheckName("worker", c.Worker) }

// Mark records whether a job is stopped: its app has live workers, and none of them has it any more.
type Mark struct {
	Key     jobs.Key
	Stopped bool
}

// Verb returns the verb of the command.
func (Mark) Verb() Verb { return VerbMark }

// Check validates the key.
func (c Mark) Check() error { return c.Key.Check() }

func wirePlace(c *coder, p *Place) {
	text(c, &p.Route)
	text(c, &p.Hash)
	list(c, &p.Needs, 1, wireString)
	text(c, &p.Pin)
	text(c, &p.PinAway)
	signed(c, &p.Version)
	signed(c, &p.Slots)
	number(c, &p.Index)
	number(c, &p.Total)
	c.id(&p.Group)
}

// checkPlace validates the settings of routes.
func (s *Settings) checkPlace() error {
	if s.RouteBy != nil && (len(*s.RouteBy) > 200 || !plain.Is(*s.RouteBy)) {
		return Invalid("invalid route by %.40q: want a path of arguments such as customer.id, of at most 200 bytes", *s.RouteBy)
	}
	if s.Needs != nil {
		if len(*s.Needs) > MaxTags {
			return Invalid("too many needs: %d of %d", len(*s.Needs), MaxTags)
		}
		for _, t := range *s.Needs {
			if t == "" || len(t) > 200 || !plain.Is(t) {
				return Invalid("invalid needs %.120q: want a tag of a worker, or key=value, of 1 to 200 bytes", t)
			}
		}
	}
	if s.Pin != nil && *s.Pin != "" {
		if err := CheckName("pin", *s.Pin); err != nil {
			return err
		}
	}
	return within("slots", s.Slots, 0, MaxConcurrencyTop)
}

// Queue names the ready runs of an app that the same workers can take, now or later: if its first run cannot start for
// want of a worker, no other can.
type Queue struct {
	Handler   jobs.Key
	Work      string
	Place     string // a code of all else that decides where they may go; "" = nothing else does
	Broadcast bool   // they are broadcasts that have not been expanded yet
}

// Queue returns the queue of the run, for when it is ready.
func (run *Run) Queue() Queue {
	q := Queue{Handler: run.HandlerKey(), Work: run.Work}
	p := run.Place
	if p == nil {
		return q
	}
	q.Broadcast = p.Unexpanded()
	b := make([]byte, 0, 64)
	for _, s := range []string{string(run.Key), string(p.Route), p.Hash, p.Pin, string(p.PinAway), strings.Join(p.Needs, "\x01")} {
		b = append(append(b, s...), 0)
	}
	b = strconv.AppendInt(b, int64(p.Version), 10)
	q.Place = string(strconv.AppendInt(append(b, 0), int64(p.Slots), 10))
	return q
}

// Skills is what a worker must have for a run that any worker of its app may take which has the code.
type Skills struct {
	App     string
	Handler jobs.Key
	Work    string
}

// Skills returns what a worker must have for the run; false if it may not go to any worker that has that.
func (run *Run) Skills() (Skills, bool) {
	return Skills{run.App, run.HandlerKey(), run.Work}, run.Place == nil
}
