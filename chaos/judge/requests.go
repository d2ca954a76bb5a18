package judge

import (
	"fmt"
	"slices"
	"time"
)

// request is one request of a client, sent in one or more operations.
type request struct {
	key  string
	ops  []*Op
	runs []string // in its responses, each once
}

// own returns the IDs that the client itself gave the run.
func (w *request) own() (ids []string) {
	for _, o := range w.ops {
		if o.RequestID != "" && !slices.Contains(ids, o.RequestID) {
			ids = append(ids, o.RequestID)
		}
	}
	return ids
}

// requests checks that acknowledged runs exist, that repeated requests have one run, and that each run was requested.
func (j *judge) requests() {
	var all []*request
	by := map[string]*request{}
	for i := range j.c.History {
		o := &j.c.History[i]
		if o.What != Create {
			continue
		}
		name := fmt.Sprint("operation ", i)
		switch {
		case o.Idempotency != "":
			name = "idempotency key " + o.Idempotency
		case o.RequestID != "":
			name = "request " + o.RequestID
		}
		w := by[name]
		if w == nil {
			w = &request{key: o.Key}
			by[name] = w
			all = append(all, w)
		}
		w.ops = append(w.ops, o)
		if o.Outcome == OK && o.Run != "" && !slices.Contains(w.runs, o.Run) {
			w.runs = append(w.runs, o.Run)
		}
	}
	j.v.Requests = len(all)
	answered := map[string]bool{}
	open := map[string]int{} // by job: requests of unknown outcome
	for _, w := range all {
		j.judgeRequest(w)
		for _, id := range append(w.own(), w.runs...) {
			answered[id] = true
		}
		if len(w.runs) == 0 && len(w.own()) == 0 && slices.ContainsFunc(w.ops, func(o *Op) bool { return o.Outcome == Unknown }) {
			open[w.key]++
		}
	}
	j.unaccounted(answered, open)
	j.uniqueKeys()
}

func (j *judge) judgeRequest(w *request) {
	j.v.looked(Lost, 1)
	j.v.looked(Doubled, 1)
	f := Finding{Job: w.key}
	for _, o := range w.ops {
		f.Evidence = append(f.Evidence, show(o))
	}
	// The IDs that the client gave and those in responses: at most one of them has a run.
	there := []string{}
	for _, id := range append(w.own(), w.runs...) {
		if j.runs[id] != nil && !slices.Contains(there, id) {
			there = append(there, id)
		}
	}
	switch {
	case len(w.runs) > 1:
		f.Run, f.Expected, f.Found = w.runs[0], "repeated requests have the same run", fmt.Sprint("runs ", w.runs)
		j.v.found(Doubled, f)
	case len(there) > 1:
		f.Run, f.Expected, f.Found = there[0], "one request is one run", fmt.Sprint("the store has ", there)
		j.v.found(Doubled, f)
	case len(w.runs) == 1 && j.runs[w.runs[0]] == nil:
		f.Run, f.Expected, f.Found = w.runs[0], "an acknowledged run is stored", "the store has none"
		j.v.found(Lost, f)
	}
	for _, id := range there {
		j.judgeDue(w, j.runs[id])
	}
}

// judgeDue checks that a run is not due before the requested time.
func (j *judge) judgeDue(w *request, r *Run) {
	for _, o := range w.ops {
		if o.Due != 0 && !o.Duplicate && r.Due.UnixNano() < o.Due-int64(time.Millisecond) {
			j.v.found(Early, Finding{Job: r.Key, Run: r.ID, Due: dueStamp(r.Due), Expected: "due at " + stamp(o.Due) + ", as the client requested", Found: show(r), Evidence: []string{show(o)}})
			return
		}
	}
}

// unaccounted checks that clients requested every run that no schedule made. A request without a response and without
// an ID may have made one run.
func (j *judge) unaccounted(answered map[string]bool, open map[string]int) {
	extra := map[string][]*Run{}
	for i := range j.end.Runs {
		r := &j.end.Runs[i]
		if r.Origin != "cron" && r.Origin != "misfire" && r.Origin != "retry" && r.Origin != "parent" {
			j.v.looked(Unasked, 1)
			if !answered[r.ID] {
				extra[r.Key] = append(extra[r.Key], r)
			}
		}
	}
	for key, list := range extra {
		for _, r := range list[min(open[key], len(list)):] {
			j.v.found(Unasked, Finding{Job: key, Run: r.ID, Expected: fmt.Sprintf("at most %d unacknowledged runs: this many requests have an unknown outcome", open[key]),
				Found: fmt.Sprintf("%d, this among them: %s", len(list), show(r))})
		}
	}
}

// uniqueKeys checks that a unique key belongs to one run of a job at a time.
func (j *judge) uniqueKeys() {
	holders := map[string][]*Run{}
	for i := range j.c.History {
		if o := &j.c.History[i]; o.What == Create && o.Unique != "" {
			for _, id := range []string{o.Run, o.RequestID} {
				name := o.Key + " " + o.Unique
				if r := j.runs[id]; r != nil && !slices.Contains(holders[name], r) {
					holders[name] = append(holders[name], r)
				}
			}
		}
	}
	for name, list := range holders {
		j.v.looked(Doubled, len(list))
		slices.SortFunc(list, func(a, b *Run) int { return a.Created.Compare(b.Created) })
		for i := 1; i < len(list); i++ {
			if a, b := list[i-1], list[i]; a.Ended.IsZero() || b.Created.Before(a.Ended) {
				j.v.found(Doubled, Finding{Job: b.Key, Run: b.ID, Expected: "unique key " + name + " belongs to one run at a time", Found: "two at once", Evidence: []string{show(a), show(b)}})
			}
		}
	}
}
