package timemodel

import "time"

// Event is something that happened to a job, by the clock of the store. Of its fields one is set.
type Event struct {
	At time.Time

	Spec      *Spec      // the job is created, or has these settings from now on
	Restart   bool       // its schedule begins anew
	Deleted   bool       //
	Pause     *time.Time // it is paused, until then (zero: until resumed)
	Resume    bool
	Debug     *bool
	Suspended *bool         // its tenant
	Leads     *bool         // a node decides
	Has       *bool         // a worker has the code of the job; without, nothing is decided
	LateAfter time.Duration // a due time that is later than this follows Misfire; the tenant's
	Ended     bool          // the run ended from which the next due time counts

	Calendar string // it excludes these times from now on
	Excludes func(time.Time) bool
}

// Reason is why a due time has no run.
type Reason string

// The reasons, by rank: of several, the first is named.
const (
	Calendar  Reason = "calendar"
	Disabled  Reason = "disabled"
	Suspended Reason = "suspended"
	Paused    Reason = "paused"
	Debug     Reason = "debug"
	Edited    Reason = "edited"
	Missed    Reason = "missed"
)

// Fate is what becomes of a due time: a run, or a reason why there is none.
type Fate struct {
	Why     Reason // "" = it has a run
	Late    bool   // of a run: it makes up for the due time
	Decided time.Time
	Spec    *Spec // by which it was decided
}

// span is a time in which something was so. A due time at either end is not inside.
type span struct{ from, until time.Time }

// ahead is how far the model looks for due times whose run may begin early.
const ahead = time.Hour

// life is a job at a moment, with all that it has been.
type life struct {
	now    time.Time
	end    time.Time // of the history
	plan   plan
	dues   []time.Time // of the plan
	born   bool
	fates  map[time.Time]Fate
	late   time.Duration
	leads  bool
	has    bool
	runs   bool      // a run is under way from whose end the next due time counts
	last   time.Time // its due time
	gone   bool
	silent map[Reason][]span // until zero = it lasts
	rules  map[string][]rules

	overtaken []overtaken
}

// overtaken is a due time of a schedule that was changed before it was decided.
type overtaken struct {
	due time.Time
	by  Spec
}

// rules are what a calendar excludes from a time on.
type rules struct {
	since    time.Time
	excludes func(time.Time) bool
}

// Fates returns what becomes of each due time up to an end, given what happened, in order.
func Fates(events []Event, end time.Time) map[time.Time]Fate {
	return until(events, end).fates
}

// Held reports whether nothing of the job may begin at a time.
func Held(events []Event, at time.Time) bool { return until(events, at).idle() }

// until is the job at the end of a history.
func until(events []Event, end time.Time) *life {
	l := &life{end: end, fates: map[time.Time]Fate{}, silent: map[Reason][]span{}, rules: map[string][]rules{}}
	for i := range events {
		if events[i].At.After(end) {
			break
		}
		for next, ok := l.next(); ok && !next.After(events[i].At); next, ok = l.next() {
			l.now = next
			l.decide()
		}
		l.now = events[i].At
		l.happens(&events[i])
		l.decide()
	}
	for next, ok := l.next(); ok && !next.After(end); next, ok = l.next() {
		l.now = next
		l.decide()
	}
	return l
}

// next is the next moment at which something may be decided without an event.
func (l *life) next() (first time.Time, ok bool) {
	look := func(at time.Time) {
		if at.After(l.now) && (!ok || at.Before(first)) {
			first, ok = at, true
		}
	}
	for _, due := range l.dues {
		if _, decided := l.fates[due]; !decided {
			look(due)
			look(due.Add(-l.plan.Early))
		}
	}
	for _, s := range l.silent[Paused] {
		look(s.until)
	}
	return first, ok
}

func (l *life) happens(e *Event) {
	switch {
	case e.Spec != nil:
		l.set(*e.Spec)
	case e.Restart:
		l.overtake()
		l.plan.anchor, l.plan.ttlFrom = l.now, l.now
		l.reckon()
	case e.Deleted:
		l.gone, l.dues = true, nil
	case e.Pause != nil:
		l.ends(Paused)
		l.silent[Paused] = append(l.silent[Paused], span{l.now, *e.Pause})
	case e.Resume:
		l.ends(Paused)
	case e.Debug != nil:
		l.turn(Debug, *e.Debug)
	case e.Suspended != nil:
		l.turn(Suspended, *e.Suspended)
	case e.Leads != nil:
		l.leads = *e.Leads
	case e.Has != nil:
		l.has = *e.Has
	case e.LateAfter > 0:
		l.late = e.LateAfter
	case e.Ended:
		if l.runs = false; l.plan.afterEnd() {
			l.plan.ended = l.now
			l.reckon()
		}
	case e.Calendar != "":
		l.rules[e.Calendar] = append(l.rules[e.Calendar], rules{l.now, e.Excludes})
	}
}

// set gives the job other settings. A schedule that is set does not cover the past; what it counts from moves only if
// its text changes.
func (l *life) set(s Spec) {
	before := l.plan
	if l.born && !s.sameTimes(&before.Spec) {
		l.overtake()
	}
	l.plan.Spec = s
	if s.Schedule != before.Schedule {
		l.plan.anchor = l.now
	}
	if before.Schedule == "" {
		l.plan.ttlFrom = l.now
	}
	if s.Disabled != before.Disabled {
		l.turn(Disabled, s.Disabled)
	}
	if !l.born || !s.sameTimes(&before.Spec) {
		l.reckon()
	}
	l.born = true
}

// reckon computes the due times from now on. One that counts from the end of a run is later than that of the run, which
// may have begun early.
func (l *life) reckon() {
	from := l.now
	if l.dues = nil; l.plan.afterEnd() {
		if l.runs {
			return
		}
		from = latest(l.now, l.last)
	}
	l.dues = l.plan.dues(from, l.end.Add(ahead))
}

// overtake takes the due times that are undecided from the schedule, which is changed: they do not fire.
func (l *life) overtake() {
	for _, due := range l.dues {
		if _, decided := l.fates[due]; decided || due.After(l.now) {
			continue
		}
		l.overtaken = append(l.overtaken, overtaken{due, l.plan.Spec})
		if l.plan.afterEnd() {
			break // the others would have counted from the end of its run
		}
	}
}

func (l *life) turn(why Reason, on bool) {
	l.ends(why)
	if on {
		l.silent[why] = append(l.silent[why], span{from: l.now})
	}
}

// ends ends what lasts.
func (l *life) ends(why Reason) {
	for i, s := range l.silent[why] {
		if s.until.IsZero() || s.until.After(l.now) {
			l.silent[why][i].until = l.now
		}
	}
}

// silence returns why a due time must not run.
func (l *life) silence(s *Spec, due time.Time) Reason {
	for _, name := range s.Calendars {
		for i, r := range l.rules[name] {
			outdated := i+1 < len(l.rules[name]) && l.rules[name][i+1].since.Before(due)
			if !outdated && r.excludes(due) {
				return Calendar
			}
		}
	}
	for _, s := range l.silent[Disabled] { // also one that came while it was undecided
		if s.until.IsZero() || s.until.After(due) {
			return Disabled
		}
	}
	for _, why := range []Reason{Suspended, Paused, Debug} {
		for _, s := range l.silent[why] {
			if due.After(s.from) && (s.until.IsZero() || due.Before(s.until)) {
				return why
			}
		}
	}
	return ""
}

// idle reports whether nothing of the job may begin now ahead of its due time.
func (l *life) idle() bool {
	for _, why := range []Reason{Disabled, Suspended, Paused, Debug} {
		for _, s := range l.silent[why] {
			if s.until.IsZero() || s.until.After(l.now) {
				return true
			}
		}
	}
	return false
}

// decide decides all that can be decided now: due times that have come, and those whose run may begin early.
func (l *life) decide() {
	if !l.leads || l.gone {
		return
	}
	for _, o := range l.overtaken {
		f := Fate{Why: l.silence(&o.by, o.due), Decided: l.now, Spec: &o.by}
		if f.Why == "" {
			f.Why = Edited
		}
		l.fates[o.due] = f
	}
	if l.overtaken = nil; !l.has {
		return
	}
	var newest time.Time // the newest late one that fire_once may fire
	onTime := false
	for _, due := range l.dues {
		if _, decided := l.fates[due]; decided {
			continue
		}
		if due.After(l.now.Add(l.plan.Early)) {
			break
		}
		why := l.silence(&l.plan.Spec, due)
		if due.After(l.now) && (why != "" || l.idle()) {
			break // it is decided when it is due
		}
		f := Fate{Why: why, Decided: l.now, Spec: new(l.plan.Spec)}
		switch late := l.now.Sub(due) > l.late; {
		case why != "":
		case !late:
			onTime = true
		case l.plan.Misfire == "fire_all":
			f.Late = true
		default:
			f.Why, newest = Missed, due
		}
		l.fates[due] = f
		if l.plan.afterEnd() && f.Why == "" {
			l.runs, l.last, l.dues = true, due, nil
			return
		}
	}
	if l.plan.Misfire == "fire_once" && !onTime && !newest.IsZero() {
		l.fates[newest] = Fate{Late: true, Decided: l.now, Spec: new(l.plan.Spec)}
		if l.plan.afterEnd() {
			l.runs, l.last, l.dues = true, newest, nil
		}
	}
}
