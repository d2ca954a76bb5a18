package kernel

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Routes are all routes, in the order in which people are shown them.
func Routes() []jobs.Route {
	return []jobs.Route{jobs.RouteAny, jobs.RouteFirst, jobs.RouteLast, jobs.RouteRoundRobin, jobs.RouteRandom, jobs.RouteHash, jobs.RouteLeastRecent, jobs.RouteLeastFrequent,
		jobs.RouteFailover, jobs.RouteIdle, jobs.RouteBroadcast}
}

// Place says which worker a run may go to. It is made of the job's policy when the run is created, and kept in its row.
// A run that any worker with its job may take has none.
type Place struct {
	Route   jobs.Route
	Hash    string   // RouteHash: what is hashed
	Needs   []string // what a worker must have: tags, or key=value
	Pin     string   // the worker that is meant, by its own or its configured name; "" = none is
	PinAway jobs.PinAway
	Version int // the least code version; 0 = any
	Slots   int // how many runs of the job a worker may have at the same time; 0 = as many as it has slots

	// Of a broadcast. One that has not been expanded yet has neither.
	Index, Total uint32  // index, from 0, and total
	Group        jobs.ID // the run that was expanded: part 0
}

// Unexpanded says that the run is to become one for each worker, and has not yet.
func (p *Place) Unexpanded() bool { return p != nil && p.Route == jobs.RouteBroadcast && p.Total == 0 }

// Words say where the run may go, for people.
func (p *Place) Words() string {
	text := map[jobs.Route]string{
		jobs.RouteAny: "any worker", jobs.RouteFirst: "the first worker that is free", jobs.RouteLast: "the last worker that is free", jobs.RouteRoundRobin: "free workers in turn",
		jobs.RouteRandom: "a free worker by chance", jobs.RouteHash: "the worker whose share holds " + strconv.Quote(p.Hash), jobs.RouteLeastRecent: "the free worker that had the job longest ago",
		jobs.RouteLeastFrequent: "the free worker that had the job least often today", jobs.RouteFailover: "the first worker that lives", jobs.RouteIdle: "a worker that runs nothing",
		jobs.RouteBroadcast: "each worker",
	}[p.Route]
	if p.Total > 0 {
		text = "part " + strconv.Itoa(int(p.Index)) + " of " + strconv.Itoa(int(p.Total))
	}
	if p.Pin != "" {
		text += ", on " + p.Pin
		if p.PinAway == jobs.PinAny {
			text += " while it is there"
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

// PlaceOf is where runs of a job with these arguments may go; nil = to any worker that has the job.
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
			at.Hash = argAt(args, p.RouteBy)
		}
	}
	return at
}

// argAt is the argument at a path such as customer.id, as text; "" if there is none.
func argAt(args []byte, path string) string {
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

// PartID is the ID of one of the runs that a broadcast becomes; part 0 is the run itself. That of a recurring job
// follows from its due time as its own does.
func PartID(run *Run, part uint32) jobs.ID {
	if part == 0 {
		return run.ID
	}
	if run.ID == DueID(run.Tenant, run.Job, run.Due, 0, 0) {
		return DueID(run.Tenant, run.Job, run.Due, part, 0)
	}
	return DerivedID("shard", string(run.Tenant), string(run.ID[:]), strconv.Itoa(int(part)))
}

// PartsGate is the name of the gate that counts the parts of a broadcast which hold its slots.
func PartsGate(group jobs.ID) string { return "parts/" + group.String() }

// MaxParts is how many workers a broadcast reaches: the first, in the order of their names.
const MaxParts = 1000

// Expand makes a broadcast run that can be claimed one run for each of the named workers, in their order. With no
// workers it is Skipped, and says so. One that was expanded before stays as it is.
type Expand struct {
	ID      jobs.ID
	Workers []string
}

// Verb of the command.
func (Expand) Verb() Verb { return VerbExpand }

// Check says what is wrong with the workers.
func (c Expand) Check() error {
	if len(c.Workers) > MaxParts {
		return Invalid("a broadcast to %d workers: %d are allowed", len(c.Workers), MaxParts)
	}
	for _, w := range c.Workers {
		if err := checkRun(c.ID, w, 1); err != nil {
			return err
		}
	}
	return checkRun(c.ID, "-", 1)
}

// Drain has a worker take nothing new, or take runs again. The row of the change is its audit: the worker itself says in
// its heartbeats how it stands, so that any leader knows.
type Drain struct {
	Worker string // its own name, of this start
	On     bool
}

// Verb of the command.
func (Drain) Verb() Verb { return VerbDrain }

// Check says what is wrong with the name.
func (c Drain) Check() error { return CheckName("worker", c.Worker) }

// Mark notes whether a job is stopped: workers of its app live, and none of them has it any more.
type Mark struct {
	Key     jobs.Key
	Stopped bool
}

// Verb of the command.
func (Mark) Verb() Verb { return VerbMark }

// Check says what is wrong with the key.
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

// checkPlace says what is wrong with where the job may run.
func (s *Settings) checkPlace() error {
	if err := oneOf("route", s.Route, Routes()...); err != nil {
		return err
	}
	if s.RouteBy != nil && (len(*s.RouteBy) > 200 || !plain.Is(*s.RouteBy)) {
		return Invalid("route by %.40q: a path of arguments such as customer.id has at most 200 bytes of text", *s.RouteBy)
	}
	if s.Needs != nil {
		if len(*s.Needs) > MaxTags {
			return Invalid("needs: %d given, at most %d are allowed", len(*s.Needs), MaxTags)
		}
		for _, t := range *s.Needs {
			if t == "" || len(t) > 200 || !plain.Is(t) {
				return Invalid("needs %.120q: a tag of a worker, or key=value, has 1 to 200 bytes", t)
			}
		}
	}
	if s.Pin != nil && *s.Pin != "" {
		if err := CheckName("pin", *s.Pin); err != nil {
			return err
		}
	}
	if err := oneOf("pin away", s.PinAway, jobs.PinWait, jobs.PinAny); err != nil {
		return err
	}
	if err := oneOf("code version", s.CodeVersion, jobs.CodeAny, jobs.CodeCurrent); err != nil {
		return err
	}
	return within("slots", s.Slots, 0, MaxConcurrencyTop)
}
