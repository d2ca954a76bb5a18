package judge

import (
	"fmt"
	"slices"
	"time"
)

// wish is what a client wanted once, in however many operations it said so.
type wish struct {
	key  string
	ops  []*Op
	runs []string // that it was answered with, each once
}

// own are the IDs that the wish's client gave the run itself.
func (w *wish) own() (ids []string) {
	for _, o := range w.ops {
		if o.Wish != "" && !slices.Contains(ids, o.Wish) {
			ids = append(ids, o.Wish)
		}
	}
	return ids
}

// wishes: what was acknowledged is there; the same words mean the same run; nobody else asked.
func (j *judge) wishes() {
	var all []*wish
	by := map[string]*wish{}
	for i := range j.c.History {
		o := &j.c.History[i]
		if o.What != Create {
			continue
		}
		name := fmt.Sprint("operation ", i)
		switch {
		case o.Idempotency != "":
			name = "idempotency key " + o.Idempotency
		case o.Wish != "":
			name = "wish " + o.Wish
		}
		w := by[name]
		if w == nil {
			w = &wish{key: o.Key}
			by[name] = w
			all = append(all, w)
		}
		w.ops = append(w.ops, o)
		if o.Outcome == OK && o.Run != "" && !slices.Contains(w.runs, o.Run) {
			w.runs = append(w.runs, o.Run)
		}
	}
	j.v.Wishes = len(all)
	answered := map[string]bool{}
	open := map[string]int{} // by job: wishes of which nobody knows what became
	for _, w := range all {
		j.judgeWish(w)
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

func (j *judge) judgeWish(w *wish) {
	j.v.looked(Lost, 1)
	j.v.looked(Doubled, 1)
	f := Finding{Job: w.key}
	for _, o := range w.ops {
		f.Evidence = append(f.Evidence, show(o))
	}
	// The run that the client made itself and the one that it was answered with: at most one of them all is there.
	there := []string{}
	for _, id := range append(w.own(), w.runs...) {
		if j.runs[id] != nil && !slices.Contains(there, id) {
			there = append(there, id)
		}
	}
	switch {
	case len(w.runs) > 1:
		f.Run, f.Expected, f.Found = w.runs[0], "the same words are answered by the same run", fmt.Sprint("runs ", w.runs)
		j.v.found(Doubled, f)
	case len(there) > 1:
		f.Run, f.Expected, f.Found = there[0], "one wish is one run", fmt.Sprint("the store has ", there)
		j.v.found(Doubled, f)
	case len(w.runs) == 1 && j.runs[w.runs[0]] == nil:
		f.Run, f.Expected, f.Found = w.runs[0], "a run that a client was told of is there", "the store knows of none"
		j.v.found(Lost, f)
	}
	for _, id := range there {
		j.judgeDue(w, j.runs[id])
	}
}

// judgeDue: a run that was asked for a time is due then, or at once if it has passed.
func (j *judge) judgeDue(w *wish, r *Run) {
	for _, o := range w.ops {
		if o.Due != 0 && !o.Duplicate && r.Due.UnixNano() < o.Due-int64(time.Millisecond) {
			j.v.found(Early, Finding{Job: r.Key, Run: r.ID, Due: dueStamp(r.Due), Expected: "due at " + stamp(o.Due) + ", as the client said", Found: show(r), Evidence: []string{show(o)}})
			return
		}
	}
}

// unaccounted: every run that no schedule made was asked for. A client who got no answer, and had given the run no name
// of its own, may have been the one, once for each of its wishes.
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
			j.v.found(Unasked, Finding{Job: key, Run: r.ID, Expected: fmt.Sprintf("at most %d runs that no client was told of: so many wishes got no answer", open[key]),
				Found: fmt.Sprintf("%d, this among them: %s", len(list), show(r))})
		}
	}
}

// uniqueKeys: a unique key belongs to one run of a job at a time.
func (j *judge) uniqueKeys() {
	holders := map[string][]*Run{}
	for i := range j.c.History {
		if o := &j.c.History[i]; o.What == Create && o.Unique != "" {
			for _, id := range []string{o.Run, o.Wish} {
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
