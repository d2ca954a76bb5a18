package judge

import (
	"slices"
	"time"
)

// timeline has all operations on a job. A current operation may have happened or not, and one of unknown outcome may
// happen for a while after its client gave up; so a time may have several possible specs.
type timeline struct {
	key   string
	began Moment // of the whole case
	first *Spec
	ops   []*Op // in order of their beginning
	row   *Definition

	edits, pauses []*Op         // of those, what may have been done
	by            map[*Spec]*Op // the edit that brought a spec
	unsettled     map[*Op]bool  // pauses and resumes that an earlier one may come after
}

// wanders is how long an operation may still take effect after its client gave up: couriers retry for half a minute.
const wanders = time.Minute

// over is when an operation has surely happened, or never will.
func (o *Op) over() int64 {
	if o.Outcome == Unknown {
		return o.Returned.Mono + int64(wanders)
	}
	return o.Returned.Mono
}

// settle sorts the operations, when all are known.
func (t *timeline) settle() {
	t.by, t.unsettled = map[*Spec]*Op{}, map[*Op]bool{}
	latest := int64(0)
	for _, o := range t.ops {
		switch {
		case o.Outcome == Refused:
		case o.What == Edit && o.Spec != nil:
			t.edits = append(t.edits, o)
			t.by[o.Spec] = o
		case o.What == Pause || o.What == Resume:
			t.unsettled[o] = latest > o.Invoked.Mono
			latest = max(latest, o.over())
			t.pauses = append(t.pauses, o)
		}
	}
}

func (t *timeline) recurring() bool {
	if t.first != nil && t.first.Schedule != "" {
		return true
	}
	return slices.ContainsFunc(t.ops, func(o *Op) bool { return o.Spec != nil && o.Spec.Schedule != "" })
}

// specs are those that the job had at some time.
func (t *timeline) specs() (all []*Spec) {
	if t.first != nil {
		all = append(all, t.first)
	}
	for _, o := range t.ops {
		if o.Spec != nil && o.Spec != t.first {
			all = append(all, o.Spec)
		}
	}
	return all
}

// known returns when the job certainly existed: by a client's response, or by the store. ok is false if neither has it.
func (t *timeline) known() (since int64, ok bool) {
	for _, o := range t.ops {
		if o.What == Define && o.Outcome == OK {
			return o.Returned.Wall, true
		}
	}
	if t.row != nil && !t.row.Created.IsZero() {
		return t.row.Created.UnixNano(), true
	}
	return 0, false
}

// gone returns when a client began to delete the job, or 0.
func (t *timeline) gone() int64 {
	for _, o := range t.ops {
		if o.What == Delete && o.Outcome != Refused {
			return o.Invoked.Wall
		}
	}
	return 0
}

// may are the specs that may hold at a time, give or take slack.
func (t *timeline) may(at, slack int64) (specs []*Spec) {
	if t.first != nil {
		specs = []*Spec{t.first}
	}
	for _, o := range t.edits {
		if o.Invoked.Wall-slack > at {
			break
		}
		if o.Outcome == OK && o.Returned.Wall+slack < at {
			specs = slices.DeleteFunc(specs, func(s *Spec) bool {
				earlier := t.by[s] // it may come after o all the same, if it was still on its way
				return earlier == nil || earlier.over() <= o.Invoked.Mono
			})
		}
		specs = append(specs, o.Spec)
	}
	return specs
}

// silent reports whether the job is certainly paused or disabled at a time, and whether it is possibly paused or
// possibly disabled.
func (t *timeline) silent(at, slack int64) (surely, pause, disable bool) {
	paused := []bool{false} // what may hold
	for _, o := range t.pauses {
		if o.Invoked.Wall-slack > at {
			break
		}
		pauses := o.What == Pause && (o.Until == 0 || o.Until > at)
		if o.Outcome == OK && o.Returned.Wall+slack < at && !t.unsettled[o] {
			paused = paused[:0]
		}
		if !slices.Contains(paused, pauses) {
			paused = append(paused, pauses)
		}
		if o.What == Pause && o.Until != 0 && o.Until-slack <= at && at <= o.Until+slack {
			paused = append(paused, true, false)
		}
	}
	specs := t.may(at, slack)
	disabled := func(s *Spec) bool { return s.Disabled }
	pause, disable = slices.Contains(paused, true), slices.ContainsFunc(specs, disabled)
	all := len(specs) > 0 && !slices.ContainsFunc(specs, func(s *Spec) bool { return !s.Disabled })
	return all || !slices.Contains(paused, false), pause, disable
}

// mayBePaused reports whether the job is possibly paused at a time.
func (t *timeline) mayBePaused(at int64) bool {
	_, pause, _ := t.silent(at, 0)
	return pause
}

// pausedBy reports whether a client may have paused the job by then.
func (t *timeline) pausedBy(at int64) bool {
	return slices.ContainsFunc(t.pauses, func(o *Op) bool { return o.What == Pause && o.Invoked.Wall <= at })
}

// edited reports whether a client may have changed the job between two times.
func (t *timeline) edited(from, to int64) bool {
	return slices.ContainsFunc(t.ops, func(o *Op) bool {
		return o.What == Edit && o.Outcome != Refused && o.Invoked.Wall <= to && (o.Outcome == Unknown || o.Returned.Wall >= from)
	})
}

// due is a due time of a job; must means that it certainly is one.
type due struct {
	at   time.Time
	must bool
	spec *Spec // one by which it is due
}

// dues are the due times that must or may have a record, by the judge's own reckoning, until a time.
func (t *timeline) dues(until, slack int64) (all []due, err error) {
	since, ok := t.known()
	if !ok {
		return nil, nil
	}
	end := until
	gone := t.gone()
	if gone != 0 {
		end = min(end, gone+slack)
	}
	// Specs that are due at the same times are walked once, and each time is asked once what may hold then.
	type times struct {
		spec *Spec
		at   map[int64]bool
	}
	var walked []times
	of := map[*Spec]int{}
	union := map[int64]time.Time{}
	for _, s := range t.specs() {
		of[s] = slices.IndexFunc(walked, func(w times) bool { return sameTimes(w.spec, s) })
		if of[s] >= 0 {
			continue
		}
		list, err := dueTimes(s, time.Unix(0, t.began.Wall), time.Unix(0, end))
		if err != nil {
			return nil, err
		}
		w := times{s, map[int64]bool{}}
		for _, d := range list {
			w.at[d.UnixNano()], union[d.UnixNano()] = true, d
		}
		of[s] = len(walked)
		walked = append(walked, w)
	}
	for n, d := range union {
		found := due{at: d, must: n > since+slack && (gone == 0 || n < gone-slack)}
		for _, s := range t.may(n, slack) {
			if walked[of[s]].at[n] {
				found.spec = s
			} else {
				found.must = false
			}
		}
		if found.spec != nil {
			all = append(all, found)
		}
	}
	slices.SortFunc(all, func(a, b due) int { return a.at.Compare(b.at) })
	return all, nil
}

func sameTimes(a, b *Spec) bool {
	return a.Schedule == b.Schedule && a.Zone == b.Zone && a.Start.Equal(b.Start) && a.End.Equal(b.End)
}
