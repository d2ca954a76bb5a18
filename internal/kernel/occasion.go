package kernel

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Occasions. A job may follow several others (Options.After): it has one run for each occasion for which a run of each
// of them ended as it wants. The occasion of a run is what started its family: a due time, or the first run. Runs that
// follow others, and runs that repeat others, have the occasion of those.

const (
	MaxAfter = 16 // jobs that one job follows
	// MaxBeforeFollowers is how many runs of a tenant wait, if it has no limit of its own, when runs that would follow
	// others are Skipped: jobs that start several others, these again, and so on, would fill all memory.
	MaxBeforeFollowers = 1_000_000
	MaxOccasionName    = 64
	maxAfterWithin     = 31 * 24 * time.Hour
	maxAfterSpan       = 7 * 24 * time.Hour
)

// When is which ends of a run a follower wants.
type When string

// The ends.
const (
	WhenSucceeded When = "succeeded"
	WhenFailed    When = "failed" // Terminated
	WhenEnded     When = "ended"  // Succeeded, Terminated or Cancelled: not Skipped, because then it never ran
)

// Wants reports whether a final state is one that the follower wants.
func (w When) Wants(s jobs.State) bool {
	switch w {
	case WhenSucceeded:
		return s == jobs.Succeeded
	case WhenFailed:
		return s == jobs.Terminated
	}
	return s == jobs.Succeeded || s == jobs.Terminated || s == jobs.Cancelled
}

// AfterOf splits an element of Policy.After into the job and the end that is wanted.
func AfterOf(text string) (jobs.Key, When) {
	key, when, ok := strings.Cut(text, ":")
	if !ok {
		return jobs.Key(key), WhenSucceeded
	}
	return jobs.Key(key), When(when)
}

// AfterKeys returns the keys of the jobs that a job follows.
func (p *Policy) AfterKeys() []jobs.Key {
	keys := make([]jobs.Key, len(p.After))
	for i, text := range p.After {
		keys[i], _ = AfterOf(text)
	}
	return keys
}

// Occasion is an open occasion of a job that follows others: some of them have ended. It is deleted when the job's run
// begins. After AfterWithin it is over, and its row stays for as long again, so that no late end opens it a second time.
type Occasion struct {
	Tenant jobs.Tenant
	Job    jobs.ID   // uid of the follower
	Key    jobs.Key  // the follower
	Name   string    // see Run.OccasionName; of a job with a span, that of its first end
	Slot   string    // what identifies it among those of the job: the name, or the part of time of a span
	Due    time.Time // the due time; zero = it is of a run
	Opened time.Time
	Until  time.Time
	Ended  []Ended
	// Done is the run that began. Only a job with a span has such rows: a job may end several times within one.
	Done jobs.ID
	Over bool // it ended without a run
}

// Open reports whether an end may still begin the occasion's run.
func (o *Occasion) Open() bool { return !o.Over && o.Done.IsZero() }

// Ended is how a run of a followed job ended. A zero state is that no run has ended.
type Ended struct {
	Job   jobs.Key
	Run   jobs.ID
	State jobs.State
	Cause Cause
	// Parts counts the ended runs of a broadcast, and Total has how many it has; 0 = it is none.
	Parts, Total uint32
}

// Final reports whether all runs of a broadcast have ended.
func (e *Ended) Final() bool { return e.State.Final() && e.Parts >= e.Total }

// Missing returns what an occasion lacks of what a policy wants: empty if its run may begin.
func (o *Occasion) Missing(p *Policy) (missing []Ended) {
	for _, text := range p.After {
		key, when := AfterOf(text)
		i := slices.IndexFunc(o.Ended, func(e Ended) bool { return e.Job == key })
		switch {
		case i < 0:
			missing = append(missing, Ended{Job: key})
		case !when.Wants(o.Ended[i].State) || !o.Ended[i].Final():
			missing = append(missing, o.Ended[i])
		}
	}
	return missing
}

// OccasionName names the occasion of a run: a due time in RFC 3339, or the ID of a run.
func (run *Run) OccasionName() string {
	switch p := run.Place; {
	case run.Occasion != "":
		return run.Occasion
	case run.Kind == Recurring && (run.Origin.Automatic() || run.Origin == FromBackfill):
		return run.Due.UTC().Format(time.RFC3339Nano)
	case p != nil && !p.Group.IsZero():
		return p.Group.String()
	}
	return run.ID.String()
}

// Opens reports whether the end of the run may begin an occasion. The end of one that repeats another counts for an
// open one only.
func (run *Run) OpensOccasion() bool {
	id := run.ID
	if p := run.Place; p != nil && !p.Group.IsZero() {
		id = p.Group
	}
	return run.Origin != FromRetry && (run.Origin != FromBackfill || id == DueID(run.Tenant, run.Job, run.Due, 0, 0))
}

// FollowerID returns the ID of the run of an occasion.
func (o *Occasion) FollowerID() jobs.ID {
	return DerivedID("occasion", string(o.Tenant), string(o.Job[:]), o.Name)
}

// TimerName is the name of the unique key that expires with the occasion.
func (o *Occasion) TimerName() string { return "occasion/" + o.Job.String() + "/" + o.Slot }

// TimedOccasion returns the occasion whose timer has a name.
func TimedOccasion(t jobs.Tenant, timer string) (Ref, bool) {
	rest, ok := strings.CutPrefix(timer, "occasion/")
	job, slot, found := strings.Cut(rest, "/")
	id, err := jobs.ParseID(job)
	return OccasionRef(t, id, slot), ok && found && err == nil
}

// WithParents adds the ended runs and the occasion to default arguments.
func WithParents(args []byte, o *Occasion) []byte {
	with := map[string]json.RawMessage{}
	if len(args) > 0 && json.Unmarshal(args, &with) != nil {
		return args // they were checked when they were written
	}
	list := make([]jobs.ParentRun, len(o.Ended))
	for i, e := range o.Ended {
		list[i] = jobs.ParentRun{Run: e.Run, Job: e.Job, State: e.State, Cause: string(e.Cause)}
	}
	for name, v := range map[string]any{"parents": list, "occasion": o.Name} {
		raw, err := json.Marshal(v)
		if err != nil {
			return args
		}
		with[name] = raw
	}
	if all, err := json.Marshal(with); err == nil && len(all) <= MaxArgs {
		return all
	}
	return args
}

// WithoutParents removes what WithParent and WithParents add to arguments, and reports whether there was any of it.
func WithoutParents(args []byte) (own []byte, changed bool) {
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(args, &fields) != nil {
		return args, false
	}
	for _, name := range []string{"parent", "parents", "occasion"} {
		if _, ok := fields[name]; ok {
			delete(fields, name)
			changed = true
		}
	}
	own, err := json.Marshal(fields)
	return own, changed && err == nil
}

// Followers lists the jobs that follow a job by their setting after: the job need not exist.
type Followers struct {
	Tenant jobs.Tenant
	Key    jobs.Key // the job that they follow
	Jobs   []jobs.Key
}

func (s *Settings) checkAfter() error {
	if err := cmp.Or(within("after within", s.AfterWithin, time.Minute, maxAfterWithin), within("after span", s.AfterSpan, 0, maxAfterSpan)); err != nil {
		return err
	}
	if s.After == nil {
		return nil
	}
	if n := len(*s.After); n > MaxAfter {
		return Invalid("after: %d jobs, at most %d are allowed", n, MaxAfter)
	}
	seen := map[jobs.Key]bool{}
	for _, text := range *s.After {
		key, when := AfterOf(text)
		if err := CheckName("after", string(key)); err != nil {
			return err
		}
		if when != WhenSucceeded && when != WhenFailed && when != WhenEnded {
			return Invalid("after: invalid end %.40q of job %s: want succeeded, failed or ended", string(when), key)
		}
		if seen[key] {
			return Invalid("after: job %s is repeated: name it once", key)
		}
		seen[key] = true
	}
	return nil
}

// OccasionRef returns the reference of an open occasion.
func OccasionRef(t jobs.Tenant, job jobs.ID, slot string) Ref {
	return Ref{Kind: RowOccasion, Tenant: t, ID: job, Name: slot}
}

// FollowersRef returns the reference of the followers of a job.
func FollowersRef(t jobs.Tenant, key jobs.Key) Ref {
	return Ref{Kind: RowFollowers, Tenant: t, Name: string(key)}
}

// Ref returns the reference of the occasion.
func (o *Occasion) Ref() Ref { return OccasionRef(o.Tenant, o.Job, o.Slot) }

// Ref returns the reference of the row.
func (f *Followers) Ref() Ref { return FollowersRef(f.Tenant, f.Key) }

func wireEnded(c *coder, e *Ended) {
	text(c, &e.Job)
	c.id(&e.Run)
	number(c, &e.State)
	word(c, &e.Cause)
	number(c, &e.Parts)
	number(c, &e.Total)
}

func wireOccasion(c *coder, o *Occasion) {
	text(c, &o.Tenant)
	c.id(&o.Job)
	text(c, &o.Key)
	text(c, &o.Name)
	text(c, &o.Slot)
	c.time(&o.Due)
	c.time(&o.Opened)
	c.time(&o.Until)
	list(c, &o.Ended, 4, wireEnded)
	c.id(&o.Done)
	c.bool(&o.Over)
}

func wireFollowers(c *coder, f *Followers) {
	text(c, &f.Tenant)
	text(c, &f.Key)
	list(c, &f.Jobs, 1, func(c *coder, k *jobs.Key) { text(c, k) })
}
