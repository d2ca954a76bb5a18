package judge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Defaults of a Setup.
const (
	defaultLease     = 15 * time.Second
	defaultHeartbeat = 3 * time.Second
	defaultSkew      = 5 * time.Millisecond
	defaultMisfire   = 30 * time.Second
)

// aftermath is how long after its end a fault may still be felt.
const aftermath = 10 * time.Second

// Judge returns the verdict on a case.
func Judge(c *Case) *Verdict {
	j := &judge{c: c, v: &Verdict{Name: c.Setup.Name, Store: c.Setup.Store, Faults: map[string]int{}}}
	for _, p := range promises {
		j.v.Counts = append(j.v.Counts, Count{Name: p.name, Promise: p.promise})
	}
	s := &c.Setup
	s.Lease, s.Heartbeat = cmp.Or(s.Lease, defaultLease), cmp.Or(s.Heartbeat, defaultHeartbeat)
	s.Skew, s.MisfireAfter = cmp.Or(s.Skew, defaultSkew), cmp.Or(s.MisfireAfter, defaultMisfire)
	slices.SortStableFunc(c.Journal, func(a, b Line) int { return cmp.Compare(a.At.Mono, b.At.Mono) })
	slices.SortStableFunc(c.History, func(a, b Op) int { return cmp.Compare(a.Invoked.Mono, b.Invoked.Mono) })
	j.index()
	j.data()
	j.v.looked(Forgotten, 1)
	for range s.Repairs {
		j.v.found(Forgotten, Finding{Expected: "no ready run is lost", Found: "a sweep has found some: see the logs of the control planes"})
	}
	if len(c.Stores) > 0 {
		j.decided()
		j.requests()
		j.moves()
		j.work()
		j.limits()
		j.late()
		if recurring := slices.ContainsFunc(slices.Collect(maps.Values(j.jobs)), (*timeline).recurring); recurring && j.v.Dues == 0 {
			j.v.found(NoData, Finding{Expected: "due times that must have a record", Found: "none"})
		}
	}
	j.v.Pass = len(j.v.Broken()) == 0
	return j.v
}

// judge is a case while it is being looked at.
type judge struct {
	c *Case
	v *Verdict

	end      *Store                // the last reading
	runs     map[string]*Run       // in it
	attempts map[string][]*attempt // by run, in order of beginning
	ops      map[string][]*Op      // by run: those that name it
	jobs     map[string]*timeline
}

// attempt is what a handler was seen to do.
type attempt struct {
	start  Line
	end    *Line  // nil: it was not seen to return
	until  Moment // until when it counts: it returned, its process was gone, or its lease had lapsed; zero = for ever
	lapsed bool   // until is when its lease lapsed
	lost   bool   // its lease lapsed, and nothing had happened to its worker
}

// data finds missing evidence.
func (j *judge) data() {
	c, v := j.c, j.v
	v.looked(NoData, 6)
	missing := func(what, found string) { v.found(NoData, Finding{Expected: what, Found: found}) }
	if len(c.Stores) == 0 {
		missing("a reading of the store in the end", "none")
	}
	if len(c.Journal) == 0 {
		missing("lines that handlers wrote", "none")
	}
	if len(c.Faults) < c.Setup.Faults {
		missing(fmt.Sprintf("at least %d faults", c.Setup.Faults), fmt.Sprint(len(c.Faults)))
	}
	recurring, requested := 0, 0
	for _, t := range j.jobs {
		if t.recurring() {
			recurring++
		}
	}
	for i := range c.History {
		if c.History[i].What == Create {
			requested++
		}
	}
	if recurring+requested == 0 {
		missing("a scheduled job, or a requested run", "neither")
	}
	if len(c.Stores) > 0 && len(j.end.Runs) == 0 {
		missing("runs in the store", "none")
	}
	for i := range c.Journal {
		if l := &c.Journal[i]; l.At.Wall == 0 || l.At.Mono == 0 || l.Attempt == 0 || l.Run == "" || l.What != Start && l.What != End {
			missing("lines with a run, an attempt and a moment", show(l))
			break
		}
	}
}

// index finds things by their names.
func (j *judge) index() {
	c := j.c
	j.runs, j.attempts, j.ops, j.jobs = map[string]*Run{}, map[string][]*attempt{}, map[string][]*Op{}, map[string]*timeline{}
	for i := range c.Faults {
		j.v.Faults[c.Faults[i].Kind+" "+c.Faults[i].Role]++
	}
	if n := len(c.Stores); n > 0 {
		j.end = &c.Stores[n-1]
		for i := range j.end.Runs {
			r := &j.end.Runs[i]
			if j.runs[r.ID] != nil {
				j.v.found(Doubled, Finding{Job: r.Key, Run: r.ID, Expected: "one row of a run", Found: "two"})
			}
			j.runs[r.ID] = r
		}
		j.v.Runs = len(j.runs)
	}
	for i := range c.History {
		o := &c.History[i]
		if o.Outcome == Unknown {
			j.v.Unknown++
		}
		for _, id := range slices.Compact([]string{o.Run, o.RequestID}) {
			if id != "" {
				j.ops[id] = append(j.ops[id], o)
			}
		}
	}
	for i := range c.Specs {
		j.job(c.Specs[i].Key).first = &c.Specs[i]
	}
	for i := range c.History {
		if o := &c.History[i]; slices.Contains([]string{Define, Edit, Pause, Resume, Delete}, o.What) {
			t := j.job(o.Key)
			t.ops = append(t.ops, o)
			if o.What == Define && t.first == nil {
				t.first = o.Spec
			}
		}
	}
	if j.end != nil {
		for i := range j.end.Definitions {
			d := &j.end.Definitions[i]
			if t := j.jobs[d.Key]; t != nil {
				t.row = d
			}
		}
	}
	for _, t := range j.jobs {
		t.settle()
	}
	j.spans()
}

func (j *judge) job(key string) *timeline {
	if j.jobs[key] == nil {
		j.jobs[key] = &timeline{key: key, began: j.c.Setup.Began}
	}
	return j.jobs[key]
}

// spans pairs beginnings with ends, and finds until when each attempt counts.
func (j *judge) spans() {
	for i := range j.c.Journal {
		l := &j.c.Journal[i]
		list := j.attempts[l.Run]
		if l.What == Start {
			j.attempts[l.Run] = append(list, &attempt{start: *l})
			j.v.Attempts++
			continue
		}
		for _, a := range list {
			if a.end == nil && a.start.Attempt == l.Attempt && a.start.PID == l.PID {
				a.end = l
				break
			}
		}
	}
	for id, list := range j.attempts {
		for _, a := range list {
			j.bound(a, j.runs[id])
		}
	}
}

// bound finds until when an attempt counts.
func (j *judge) bound(a *attempt, r *Run) {
	if a.end != nil {
		a.until = a.end.At
	} else {
		for i := range j.c.Faults {
			f := &j.c.Faults[i]
			if (f.Kind == Kill || f.Kind == Term) && f.PID == a.start.PID && f.PID != 0 && f.Begin.Mono >= a.start.At.Mono {
				a.until = f.Begin // its process has ended since; when is not known, so no later than this is held against it
				break
			}
		}
	}
	lapse := j.lapse(a, r)
	if lapse.Mono != 0 && (a.until.Mono == 0 || lapse.Mono < a.until.Mono) {
		a.until, a.lapsed = lapse, true
	}
}

// lapse returns when an attempt's lease expired, or zero. The store's time counts only if a fault can explain that no
// heartbeat arrived for as long as a lease lasts.
func (j *judge) lapse(a *attempt, r *Run) Moment {
	began := a.start.At
	s := &j.c.Setup
	at := Moment{}
	if r != nil {
		for _, m := range r.Moves {
			if m.Attempt == a.start.Attempt && m.State == "Failed" && m.Cause == "lost" {
				at = began.plus(m.At.Sub(time.Unix(0, began.Wall)))
			}
		}
	}
	stored := at.Mono != 0
	earliest, excused := int64(0), false // of an excuse: when the lease can have lapsed
	for i := range j.c.Faults {
		f := &j.c.Faults[i]
		mine := f.PID != 0 && f.PID == a.start.PID
		end := f.End.Mono
		if end == 0 {
			end = 1 << 62
		}
		if end < began.Mono {
			continue
		}
		switch {
		case mine && (f.Kind == Freeze || f.Kind == Cut || f.Kind == Kill || f.Kind == Term):
			// Its last heartbeat was at most so long before.
			can := f.Begin.Mono + int64(s.Lease-s.Heartbeat)
			if !excused || can < earliest {
				earliest, excused = can, true
			}
			if !stored && end-f.Begin.Mono > int64(s.Lease) && (f.Kind == Freeze || f.Kind == Cut) && f.Begin.Mono >= began.Mono {
				// The row does not have the time when the slots of a finished handler were freed: not before this.
				stored, at = true, f.Begin.plus(s.Lease)
			}
		case f.Role != Worker && f.Begin.Mono <= at.Mono && end+int64(3*s.Lease) >= at.Mono:
			// Another process was down within the last few leases, so heartbeats may have been lost. The last one that
			// arrived was sent after the attempt began.
			can := max(f.Begin.Mono, began.Mono) + int64(s.Lease-s.Heartbeat)
			if f.Begin.Mono < began.Mono {
				can = began.Mono + int64(s.Lease-s.Heartbeat)
			}
			if !excused || can < earliest {
				earliest, excused = can, true
			}
		}
	}
	if !stored {
		return Moment{}
	}
	if !excused {
		a.lost = true
		return Moment{}
	}
	slack := int64(time.Second) + j.unsure(at.Wall)
	if at.Mono < earliest-slack {
		a.lost = true
		return began.plus(time.Duration(earliest - began.Mono))
	}
	return at
}

// unsure is by how many nanoseconds the store's times may differ from those of handlers around a time. A clock that was
// set explains it only if the store goes by it, and if it was set for long enough to be believed.
func (j *judge) unsure(wall int64) int64 {
	most := int64(j.c.Setup.Skew)
	if j.c.Setup.Stamps == Rows {
		return most
	}
	for i := range j.c.Faults {
		f := &j.c.Faults[i]
		step := int64(f.Step.Abs())
		if f.Kind != Clock || f.Begin.Wall > wall+step || f.disbelieved() && !j.restarted(f) {
			continue
		}
		if f.End.Wall == 0 || wall <= f.End.Wall+step+int64(30*time.Second) {
			most = max(most, step+int64(j.c.Setup.Skew))
		}
	}
	return most
}

// restarted reports whether a process started while its clock was wrong, so that it knows no other.
func (j *judge) restarted(clock *Fault) bool {
	return slices.ContainsFunc(j.c.Faults, func(f Fault) bool {
		return (f.Kind == Kill || f.Kind == Term) && f.Target == clock.Target && f.End.Mono >= clock.Begin.Mono && f.Begin.Mono <= clock.End.Mono
	})
}

// Processes follow a small step of a clock at once, a larger one after a while; see metastore.Clock.
const (
	clockSlack    = 500 * time.Millisecond
	clockPatience = 15 * time.Second
)

// disbelieved reports whether a clock was corrected before any process followed it.
func (f *Fault) disbelieved() bool {
	return f.Step.Abs() > clockSlack && f.End.Mono != 0 && time.Duration(f.End.Mono-f.Begin.Mono) < clockPatience
}

// disturbed reports whether a fault was active during some time of an interval, or shortly before.
func (j *judge) disturbed(from, to int64) bool {
	for i := range j.c.Faults {
		f := &j.c.Faults[i]
		if f.Begin.Wall <= to && (f.End.Wall == 0 || f.End.Wall+int64(aftermath) >= from) {
			return true
		}
	}
	return false
}

// disturbedAll reports whether faults were active, or had been shortly before, during all of an interval.
func (j *judge) disturbedAll(from, to int64) bool {
	type span struct{ from, to int64 }
	var spans []span
	for i := range j.c.Faults {
		f := &j.c.Faults[i]
		end := f.End.Wall + int64(aftermath)
		if f.End.Wall == 0 {
			end = 1 << 62
		}
		spans = append(spans, span{f.Begin.Wall, end})
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, s := range spans {
		if s.from <= from && s.to > from {
			from = s.to
		}
	}
	return from >= to
}

// plus is a moment so much later.
func (m Moment) plus(d time.Duration) Moment { return Moment{m.Wall + int64(d), m.Mono + int64(d)} }

// show is a record as a line of evidence.
func show(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	const most = 600
	if len(raw) > most {
		return string(raw[:most]) + "..."
	}
	return string(raw)
}

func stamp(wall int64) string { return time.Unix(0, wall).UTC().Format("15:04:05.000000") }

func dueStamp(due time.Time) string {
	if due.IsZero() {
		return ""
	}
	return due.UTC().Format("2006-01-02T15:04:05.999Z")
}
