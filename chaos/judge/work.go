package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// work looks at what handlers did: each attempt once, none before its time, none while an earlier one counts.
func (j *judge) work() {
	for id, list := range j.attempts {
		r := j.runs[id]
		for i, a := range list {
			j.v.looked(Doubled, 1)
			j.v.looked(Early, 1)
			j.judgeBeginning(r, list[:i], a)
			j.judgeLease(r, a)
			j.beyond(a)
		}
	}
}

func (j *judge) judgeBeginning(r *Run, before []*attempt, a *attempt) {
	s := &a.start
	f := Finding{Job: s.Key, Run: s.Run, Due: dueStamp(time.Unix(0, s.Due)), Evidence: j.witnesses(s.Run)}
	found := func(name, expected, found string) {
		f.Expected, f.Found = expected, found
		j.v.found(name, f)
	}
	if r == nil {
		found(Doubled, "a run that the store knows of", "a handler for one that is not there")
		return
	}
	if len(r.Moves) > 0 && len(r.Moves) < longHistory && !slices.ContainsFunc(r.Moves, func(m Move) bool { return m.State == "Processing" && m.Attempt == s.Attempt }) {
		found(Doubled, fmt.Sprintf("handlers begin attempts that the store has given out, and it has given out %d", r.Attempt), fmt.Sprintf("attempt %d has begun", s.Attempt))
	}
	if ahead := r.Due.UnixNano() - s.At.Wall; ahead > j.unsure(s.At.Wall) {
		found(Early, "begun at "+stamp(r.Due.UnixNano())+" or later", fmt.Sprintf("%v before", time.Duration(ahead)))
	}
	if wrong := r.Due.UnixNano() - s.Due; wrong > int64(time.Millisecond) || -wrong > int64(time.Millisecond) {
		found(Illegal, "the handler sees the run's due time", "it saw "+dueStamp(time.Unix(0, s.Due))+", the row has "+dueStamp(r.Due))
	}
	for _, b := range before {
		j.v.looked(Overlapping, 1)
		switch {
		case b.start.Attempt == s.Attempt:
			found(Doubled, fmt.Sprintf("attempt %d begins once", s.Attempt), "it has begun twice")
		case b.start.Attempt > s.Attempt:
			found(Stale, fmt.Sprintf("numbers of attempts only grow, and %d had begun", b.start.Attempt), fmt.Sprintf("attempt %d began after it", s.Attempt))
		}
		if b.until.Mono == 0 || b.until.Mono > s.At.Mono {
			found(Overlapping, fmt.Sprintf("attempt %d begins when attempt %d has ended", s.Attempt, b.start.Attempt), "it was at work")
		}
	}
}

// judgeLease: an attempt is not taken from a worker that nothing has happened to.
func (j *judge) judgeLease(r *Run, a *attempt) {
	if a.lost && r != nil {
		j.illegal(r, fmt.Sprintf("attempt %d is its worker's for %v after the worker's last heartbeat", a.start.Attempt, j.c.Setup.Lease),
			"it was taken away earlier, or although nothing had happened to the worker", j.witnesses(r.ID)...)
	}
}

// firstOf returns the number of the first attempt of a run that was not taken back.
func firstOf(r *Run) uint32 {
	for _, m := range r.Moves {
		if m.State == "Processing" {
			return m.Attempt
		}
	}
	return 1
}

// beyond measures work of a handler after its lease expired.
func (j *judge) beyond(a *attempt) {
	if !a.lapsed || a.end == nil || a.end.At.Mono <= a.until.Mono {
		return
	}
	d := time.Duration(a.end.At.Mono - a.until.Mono)
	b := &j.v.Beyond
	b.N, b.Max, b.Sum = b.N+1, max(b.Max, d), b.Sum+d
}

// gate is a number of slots: of a job, or one that jobs share.
type gate struct {
	name string
	of   func(*Spec) int // the limit in a spec; 0 = none
	keys []string
}

// gates are those that any job has had.
func (j *judge) gates() (all []gate) {
	shared := map[string]int{}
	for key, t := range j.jobs {
		own := false
		for _, s := range t.specs() {
			own = own || s.MaxConcurrency > 0
			for _, l := range s.Limits {
				i, known := shared[l.Name]
				if !known {
					i = len(all)
					shared[l.Name] = i
					all = append(all, gate{name: "limit " + l.Name, of: func(s *Spec) int {
						for _, other := range s.Limits {
							if other.Name == l.Name {
								return other.Max
							}
						}
						return 0
					}})
				}
				if !slices.Contains(all[i].keys, key) {
					all[i].keys = append(all[i].keys, key)
				}
			}
		}
		if own {
			all = append(all, gate{name: "job " + key, keys: []string{key}, of: func(s *Spec) int { return s.MaxConcurrency }})
		}
	}
	return all
}

// limits: at no moment more attempts that count than a limit allows. A run is held to the limits that held when it was
// made or since: one that was made without a limit never counts.
func (j *judge) limits() {
	for _, g := range j.gates() {
		var list []*attempt
		for id, attempts := range j.attempts {
			r := j.runs[id]
			if r == nil || !slices.Contains(g.keys, r.Key) {
				continue
			}
			free := slices.ContainsFunc(j.policies(r), func(s *Spec) bool { return g.of(s) == 0 })
			if !free {
				list = append(list, attempts...)
			}
		}
		slices.SortFunc(list, func(a, b *attempt) int { return cmp.Compare(a.start.At.Mono, b.start.At.Mono) })
		var at []*attempt // at work
		for _, a := range list {
			now := a.start.At.Mono
			at = slices.DeleteFunc(at, func(b *attempt) bool { return b.until.Mono != 0 && b.until.Mono <= now })
			at = append(at, a)
			j.v.looked(OverLimit, 1)
			if most := j.most(g, a); len(at) > most {
				f := Finding{Job: a.start.Key, Run: a.start.Run, Expected: fmt.Sprintf("%s: at most %d at once", g.name, most), Found: fmt.Sprintf("%d at %s", len(at), stamp(a.start.At.Wall))}
				for _, b := range at {
					f.Evidence = append(f.Evidence, "run "+b.start.Run+": "+j.witnesses(b.start.Run)[0])
				}
				j.v.found(OverLimit, f)
			}
		}
	}
}

// most is the highest limit that may have held since the run took its slot.
func (j *judge) most(g gate, a *attempt) (most int) {
	r := j.runs[a.start.Run]
	for _, key := range g.keys {
		t := j.jobs[key]
		slack := j.unsure(a.start.At.Wall)
		for _, s := range t.may(r.Created.UnixNano(), slack) {
			most = max(most, g.of(s))
		}
		for _, o := range t.ops {
			if o.Spec != nil && o.Outcome != Refused && o.Invoked.Wall >= r.Created.UnixNano()-slack && o.Invoked.Wall <= a.start.At.Wall+slack {
				most = max(most, g.of(o.Spec))
			}
		}
	}
	return most
}

// late measures how late due times became runs, and runs without a limit were begun, while all was well and otherwise.
func (j *judge) late() {
	type kind struct{ what, where string }
	all := map[kind][]time.Duration{}
	note := func(what string, due, at int64) {
		where := "quiet"
		if j.disturbed(due, at) {
			where = "in a fault"
		}
		all[kind{what, where}] = append(all[kind{what, where}], time.Duration(at-due))
	}
	for i := range j.end.Runs {
		r := &j.end.Runs[i]
		if r.Origin == "cron" || r.Origin == "misfire" {
			note("fired", r.Due.UnixNano(), r.Created.UnixNano())
		}
		if slices.ContainsFunc(j.policies(r), func(s *Spec) bool { return s.MaxConcurrency > 0 || len(s.Limits) > 0 }) {
			continue
		}
		if list := j.attempts[r.ID]; len(list) > 0 && list[0].start.Attempt == firstOf(r) {
			note("begun", r.Due.UnixNano(), list[0].start.At.Wall)
		}
	}
	for _, what := range []string{"fired", "begun"} {
		for _, where := range []string{"quiet", "in a fault"} {
			l := Lateness{What: what, Where: where}
			if d := all[kind{what, where}]; len(d) > 0 {
				slices.Sort(d)
				l.N, l.P50, l.P99, l.Max = len(d), d[(len(d)-1)/2], d[(len(d)-1)*99/100], d[len(d)-1]
			}
			j.v.Late = append(j.v.Late, l)
		}
	}
}
