//go:build unix

package processtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// history is all that was said about a time: by the client, by the handlers, and by the store when it was over.
type history struct {
	asked  []asked // in order of time
	lines  []line  // in order of time
	runs   []*jobs.Instance
	ledger []*jobs.Missed

	dues   map[jobs.Key][]time.Time // due times that must be accounted for
	limits map[jobs.Key]int         // of runs at a time
	gone   map[int]time.Time        // processes that were killed or frozen: their handlers do not count from then on
	once   bool                     // nothing has happened that excuses a second attempt
}

// asked is one wish of the client, and what it was told.
type asked struct {
	at        time.Time
	wish      jobs.Create
	run       jobs.ID // that was answered
	duplicate bool
	err       error // it may or may not have been done
}

// breach is a promise that was not kept: its name, and what happened.
type breach struct{ name, what string }

// The names of breaches.
const (
	lost        = "lost"        // acknowledged, and it did not run to its end
	doubled     = "doubled"     // something happened twice
	early       = "early"       // begun before it was due
	overlapping = "overlapping" // two attempts of one run at once, or more runs of a job than its limit
	stale       = "stale"       // an attempt counted after a later one had begun
	undecided   = "undecided"   // a due time that has no record, or more than one
)

// check fails a test for every breach, and shows the first few.
func (h *history) check(t *testing.T) {
	t.Helper()
	all := h.breaches()
	for i, b := range all {
		if i == 20 {
			t.Errorf("and %d more", len(all)-i)
			break
		}
		t.Errorf("%s: %s", b.name, b.what)
	}
}

func (h *history) breaches() []breach {
	var all []breach
	for name, find := range map[string]func(*index) []string{
		lost: h.lost, doubled: h.doubled, early: h.early, overlapping: h.overlapping, stale: h.stale, undecided: h.undecided,
	} {
		for _, what := range find(h.index()) {
			all = append(all, breach{name, what})
		}
	}
	slices.SortStableFunc(all, func(a, b breach) int { return cmp.Compare(a.name, b.name) })
	return all
}

// index finds things by their names.
type index struct {
	runs  map[jobs.ID]*jobs.Instance
	spans map[jobs.ID][]span // in order of beginning
}

// span is how long a handler was at work.
type span struct {
	began, ended line
	over         bool // it has ended, or nobody can tell any more
}

func (h *history) index() *index {
	x := &index{runs: map[jobs.ID]*jobs.Instance{}, spans: map[jobs.ID][]span{}}
	for _, in := range h.runs {
		x.runs[in.ID] = in
	}
	for _, l := range h.lines {
		list := x.spans[l.Run]
		if l.What == began {
			x.spans[l.Run] = append(list, span{began: l, ended: l})
			continue
		}
		for i := range list {
			if s := &list[i]; !s.over && s.began.Attempt == l.Attempt && s.began.PID == l.PID {
				s.ended, s.over = l, true
				break
			}
		}
	}
	for _, list := range x.spans {
		for i := range list {
			s := &list[i]
			if until, gone := h.gone[s.began.PID]; gone && (!s.over || s.ended.At.After(until)) {
				s.ended.At, s.over = until, true
				if s.began.At.After(until) {
					s.ended.At = s.began.At
				}
			}
		}
	}
	return x
}

// lost: what was acknowledged, and what the store knows of, must have come to an end that is the job's own.
func (h *history) lost(x *index) (found []string) {
	for _, a := range h.asked {
		if a.err == nil && x.runs[a.run] == nil {
			found = append(found, fmt.Sprintf("the client was told of run %s of %s, and the store knows of none", a.run, a.wish.Key))
		}
	}
	for _, in := range h.runs {
		switch in.State {
		case jobs.Succeeded:
			done := slices.ContainsFunc(x.spans[in.ID], func(s span) bool {
				return s.began.Attempt == in.Attempt && s.ended.What == ended && s.ended.Cause == ""
			})
			if !done && in.Key != jobs.Key(floodJob) {
				found = append(found, fmt.Sprintf("run %s of %s has succeeded in attempt %d, and no handler has done it", in.ID, in.Key, in.Attempt))
			}
		case jobs.Terminated:
		default:
			found = append(found, fmt.Sprintf("run %s of %s ended as %v (%s)", in.ID, in.Key, in.State, in.Cause))
		}
	}
	return found
}

// doubled: a wish is one run, a due time is one run, an attempt begins once; and there is one attempt, unless
// something has happened to the first.
func (h *history) doubled(x *index) (found []string) {
	wished := map[jobs.ID]asked{}
	for _, a := range h.asked {
		wished[a.wish.ID] = a
	}
	found = append(found, h.doubledWishes(x)...)
	seen := map[jobs.ID]bool{}
	dues := map[string]jobs.ID{}
	for _, in := range h.runs {
		if seen[in.ID] {
			found = append(found, fmt.Sprintf("run %s of %s is in the store twice", in.ID, in.Key))
		}
		seen[in.ID] = true
		if !in.Origin.Automatic() {
			if _, asked := wished[in.ID]; !asked {
				found = append(found, fmt.Sprintf("run %s of %s was asked for by nobody", in.ID, in.Key))
			}
			continue
		}
		name := fmt.Sprint(in.Key, in.Due.UnixNano())
		if other, twice := dues[name]; twice && other != in.ID {
			found = append(found, fmt.Sprintf("%s has the runs %s and %s for %v", in.Key, other, in.ID, in.Due))
		}
		dues[name] = in.ID
	}
	for id, spans := range x.spans {
		attempts := map[uint32]bool{}
		for _, s := range spans {
			if attempts[s.began.Attempt] {
				found = append(found, fmt.Sprintf("attempt %d of run %s began twice", s.began.Attempt, id))
			}
			attempts[s.began.Attempt] = true
		}
		if h.once && len(attempts) > 1 {
			found = append(found, fmt.Sprintf("run %s of %s had %d attempts without need", id, spans[0].began.Key, len(attempts)))
		}
		if x.runs[id] == nil && len(h.runs) > 0 {
			found = append(found, fmt.Sprintf("run %s of %s was at work, and the store knows of none", id, spans[0].began.Key))
		}
	}
	return found
}

// doubledWishes: words that are repeated are answered by the same run, and a unique key belongs to one run at a time.
func (h *history) doubledWishes(x *index) (found []string) {
	answered := map[jobs.ID]jobs.ID{}
	requests := map[string]jobs.ID{}
	holders := map[string][]*jobs.Instance{}
	for _, a := range h.asked {
		if in := x.runs[a.wish.ID]; in != nil && a.wish.Unique != "" && !slices.Contains(holders[a.wish.Unique], in) {
			holders[a.wish.Unique] = append(holders[a.wish.Unique], in)
		}
		if a.err != nil {
			continue
		}
		if first, again := answered[a.wish.ID]; again && first != a.run {
			found = append(found, fmt.Sprintf("wish %s was answered by the runs %s and %s", a.wish.ID, first, a.run))
		}
		answered[a.wish.ID] = a.run
		if a.run != a.wish.ID && x.runs[a.wish.ID] != nil {
			found = append(found, fmt.Sprintf("wish %s was answered by run %s and made one of its own", a.wish.ID, a.run))
		}
		if key := a.wish.Idempotency; key != "" {
			if first, again := requests[key]; again && first != a.run {
				found = append(found, fmt.Sprintf("idempotency key %s was answered by the runs %s and %s", key, first, a.run))
			}
			requests[key] = a.run
		}
	}
	for key, list := range holders {
		slices.SortFunc(list, func(a, b *jobs.Instance) int { return a.Created.Compare(b.Created) })
		for i := 1; i < len(list); i++ {
			if list[i].Created.Before(list[i-1].Ended) {
				found = append(found, fmt.Sprintf("unique key %s was held by the runs %s and %s at once", key, list[i-1].ID, list[i].ID))
			}
		}
	}
	return found
}

// early: no handler begins before its run is due, and no run is due before it was asked for.
func (h *history) early(x *index) (found []string) {
	for _, l := range h.lines {
		in := x.runs[l.Run]
		if l.What != began || in == nil {
			continue
		}
		if before := in.Due.Sub(l.At); before > 0 {
			found = append(found, fmt.Sprintf("run %s of %s began %v before it was due", in.ID, in.Key, before))
		}
		if !l.Due.Equal(in.Due) {
			found = append(found, fmt.Sprintf("run %s of %s is due at %v, and its handler was told %v", in.ID, in.Key, in.Due, l.Due))
		}
	}
	repeated := map[jobs.ID]bool{} // the same words, sent later: the run counts from the first
	for _, a := range h.asked {
		if repeated[a.wish.ID] {
			continue
		}
		repeated[a.wish.ID] = true
		if in := x.runs[a.wish.ID]; in != nil && in.Due.Before(a.at.Add(a.wish.Delay)) {
			found = append(found, fmt.Sprintf("run %s of %s was asked for at %v with a delay of %v, and is due at %v", in.ID, in.Key, a.at, a.wish.Delay, in.Due))
		}
	}
	return found
}

// overlapping: one attempt of a run at a time, and no more runs of a job than its limit.
func (h *history) overlapping(x *index) (found []string) {
	type edge struct {
		at  time.Time
		add int
	}
	edges := map[jobs.Key][]edge{}
	for id, spans := range x.spans {
		for i, s := range spans {
			if i > 0 {
				before := spans[i-1]
				if !before.over || before.ended.At.After(s.began.At) {
					found = append(found, fmt.Sprintf("attempt %d of run %s began while attempt %d was at work", s.began.Attempt, id, before.began.Attempt))
				}
			}
			key := s.began.Key
			edges[key] = append(edges[key], edge{s.began.At, 1})
			if s.over {
				edges[key] = append(edges[key], edge{s.ended.At, -1})
			}
		}
	}
	for key, most := range h.limits {
		// At one instant, who ends goes first.
		slices.SortFunc(edges[key], func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.add, b.add)) })
		now, worst := 0, 0
		for _, e := range edges[key] {
			now += e.add
			worst = max(worst, now)
		}
		if worst > most {
			found = append(found, fmt.Sprintf("%d runs of %s were at work at once, its limit is %d", worst, key, most))
		}
	}
	return found
}

// stale: attempts have growing numbers, and the one that counted is the last that began.
func (h *history) stale(x *index) (found []string) {
	for id, spans := range x.spans {
		last := spans[0].began.Attempt
		for _, s := range spans[1:] {
			if s.began.Attempt < last {
				found = append(found, fmt.Sprintf("attempt %d of run %s began after attempt %d", s.began.Attempt, id, last))
			}
			last = max(last, s.began.Attempt)
		}
		in := x.runs[id]
		if in == nil || in.State != jobs.Succeeded {
			continue
		}
		var by token
		if len(in.Result) > 0 && json.Unmarshal(in.Result, &by) != nil {
			found = append(found, fmt.Sprintf("run %s has the result %s", id, in.Result))
			continue
		}
		if in.Attempt < last || by.Attempt != 0 && by.Attempt != in.Attempt {
			found = append(found, fmt.Sprintf("run %s was ended by attempt %d with the result of attempt %d, and attempt %d had begun", id, in.Attempt, by.Attempt, last))
		}
	}
	return found
}

// undecided: a due time has one run, or lies in one missed range, whose count is right.
func (h *history) undecided(*index) (found []string) {
	runs := map[string]int{}
	for _, in := range h.runs {
		if in.Origin.Automatic() {
			runs[fmt.Sprint(in.Key, in.Due.UnixNano())]++
		}
	}
	inside := map[*jobs.Missed]uint64{}
	for key, dues := range h.dues {
		for _, due := range dues {
			var records []string
			for range runs[fmt.Sprint(key, due.UnixNano())] {
				records = append(records, "a run")
			}
			for _, m := range h.ledger {
				if m.Key == key && !due.Before(m.From) && !due.After(m.To) {
					records = append(records, fmt.Sprintf("%s from %v to %v", m.Reason, m.From, m.To))
					inside[m]++
				}
			}
			if len(records) != 1 {
				found = append(found, fmt.Sprintf("%s has for %v: %s", key, due, cmp.Or(strings.Join(records, " and "), "nothing")))
			}
		}
	}
	for _, m := range h.ledger {
		if n, known := inside[m]; known && n != m.Count {
			found = append(found, fmt.Sprintf("the range of %s from %v to %v counts %d due times and covers %d", m.Key, m.From, m.To, m.Count, n))
		}
	}
	return found
}
