package judge

import (
	"encoding/json"
	"fmt"
	"slices"
)

// steps are the moves that a run may take, written down here a second time.
var steps = map[string][]string{
	"":           {"Scheduled", "Enqueued"},
	"Scheduled":  {"Enqueued", "Cancelled"},
	"Enqueued":   {"Processing", "Scheduled", "Skipped", "Cancelled"},
	"Processing": {"Succeeded", "Failed", "Cancelled"},
	"Failed":     {"Processing", "Terminated", "Cancelled"},
	"Succeeded":  {},
	"Terminated": {},
	"Cancelled":  {},
	"Skipped":    {},
}

func final(state string) bool {
	next, known := steps[state]
	return known && len(next) == 0
}

// longHistory is how many moves a run must have before some of the middle may have been left out.
const longHistory = 100

// moves checks the history of each run in the store.
func (j *judge) moves() {
	for i := range j.end.Runs {
		r := &j.end.Runs[i]
		j.v.looked(Illegal, 1)
		j.v.looked(Stuck, 1)
		j.judgeSteps(r)
		j.judgeSent(r)
		j.judgeEnd(r)
		j.judgeFinish(r)
		j.judgeResponses(r)
	}
	for i := range j.c.Stores[:len(j.c.Stores)-1] {
		for k := range j.c.Stores[i].Runs {
			j.judgeEarlier(&j.c.Stores[i].Runs[k])
		}
	}
}

// illegal notes a step that may not be.
func (j *judge) illegal(r *Run, expected, found string, evidence ...string) {
	j.v.found(Illegal, Finding{Job: r.Key, Run: r.ID, Due: dueStamp(r.Due), Expected: expected, Found: found, Evidence: append(evidence, show(r))})
}

// judgeSteps: each move follows from the one before.
func (j *judge) judgeSteps(r *Run) {
	if expected, found := r.misstep(); found != "" {
		j.illegal(r, expected, found)
	}
}

// misstep returns the first move that does not follow from the one before, and what does; "" if there is none.
func (r *Run) misstep() (expected, found string) {
	if len(r.Moves) == 0 {
		return "", "" // the reader of the store did not request them
	}
	was := Move{}
	cut := len(r.Moves) >= longHistory
	for _, m := range r.Moves {
		if !cut && !slices.Contains(steps[was.State], m.State) {
			return fmt.Sprintf("after %q comes one of %q", was.State, steps[was.State]), fmt.Sprintf("%s at %s", m.State, stamp(m.At.UnixNano()))
		}
		if m.At.Before(was.At) {
			return "times of a run never go back", fmt.Sprintf("%s at %s follows %s", m.State, stamp(m.At.UnixNano()), stamp(was.At.UnixNano()))
		}
		if expected, ok := follows(was, m.State, m.Attempt); !ok && !cut {
			return expected, fmt.Sprintf("%s in attempt %d", m.State, m.Attempt)
		}
		was = m
	}
	spent := (r.State == "Enqueued" || r.State == "Failed") && r.Attempt > was.Attempt
	if was.State != r.State || was.Attempt != r.Attempt && !spent {
		return fmt.Sprintf("the state of the last move: %s in attempt %d", was.State, was.Attempt), fmt.Sprintf("%s in attempt %d", r.State, r.Attempt)
	}
	return "", ""
}

// follows reports whether a move to a state may have an attempt's number, after another move, and which it should have.
// A start that is taken back spends a number and leaves no move.
func follows(was Move, state string, attempt uint32) (expected string, ok bool) {
	switch before := was.Attempt; {
	case state == "Processing":
		return fmt.Sprintf("an attempt after %d", before), attempt > before
	case state == "Cancelled", state == "Skipped", was.State == "Enqueued": // perhaps held
		return fmt.Sprintf("attempt %d or a later one", before), attempt >= before
	default:
		return fmt.Sprintf("attempt %d", before), attempt == before
	}
}

// judgeSent: what is sent to a worker that nothing happens to arrives there.
func (j *judge) judgeSent(r *Run) {
	for i, m := range r.Moves {
		if i == 0 || m.State != "Failed" || m.Cause != "lost" || r.Moves[i-1].State != "Processing" {
			continue
		}
		began := slices.ContainsFunc(j.attempts[r.ID], func(a *attempt) bool { return a.start.Attempt == m.Attempt })
		if !began && !j.disturbed(r.Moves[i-1].At.UnixNano(), m.At.UnixNano()) {
			j.illegal(r, fmt.Sprintf("attempt %d, which was sent to %s, begins there, since nothing happened", m.Attempt, m.By), "it never arrived")
		}
	}
}

// judgeEnd: a run comes to an end, and to one that something explains.
func (j *judge) judgeEnd(r *Run) {
	now := j.end.At.Wall - int64(undecided)
	if !final(r.State) {
		if r.State == "Scheduled" && r.Due.UnixNano() > now || r.State == "Failed" && r.RetryAt.UnixNano() > now && !r.RetryAt.IsZero() {
			return
		}
		if t := j.jobs[r.Key]; r.State == "Scheduled" && r.Cause == "paused" && t != nil && t.mayBePaused(now) {
			return // until its job is resumed
		}
		j.v.found(Stuck, Finding{Job: r.Key, Run: r.ID, Due: dueStamp(r.Due), Expected: "a final state in the end", Found: r.State + " " + r.Cause, Evidence: j.witnesses(r.ID)})
		return
	}
	policies := j.policies(r)
	if len(policies) == 0 {
		return
	}
	any := func(so func(*Spec) bool) bool { return slices.ContainsFunc(policies, so) }
	lost := func(expected string) {
		j.v.found(Lost, Finding{Job: r.Key, Run: r.ID, Due: dueStamp(r.Due), Expected: expected, Found: r.State + " " + r.Cause, Evidence: append(j.witnesses(r.ID), show(r))})
	}
	switch {
	case r.State == "Skipped" && r.Cause == "overlap" && !any(func(s *Spec) bool { return s.Overlap == "skip" }):
		lost("its turn: runs of this job wait for a slot")
	case r.State == "Skipped" && r.Cause == "disabled" && !any(func(s *Spec) bool { return s.Disabled }) && !j.jobs[r.Key].edited(r.Due.UnixNano(), r.Ended.UnixNano()):
		lost("to run: no client disabled its job")
	case r.State == "Skipped" && r.Cause == "paused" && !j.jobs[r.Key].pausedBy(r.Ended.UnixNano()+j.unsure(r.Ended.UnixNano())):
		lost("to run: no client paused its job")
	case r.State == "Cancelled" && !slices.ContainsFunc(j.ops[r.ID], func(o *Op) bool { return o.What == Cancel && o.Outcome != Refused }) && j.jobs[r.Key].gone() == 0:
		lost("to run: no client cancelled it")
	case r.State == "Terminated" && (r.Cause == "error" || r.Cause == "timeout"):
		failures := 0
		for _, m := range r.Moves {
			if m.State == "Failed" && (m.Cause == "error" || m.Cause == "timeout") {
				failures++
			}
		}
		least, most := 1<<30, 0
		for _, s := range policies {
			least, most = min(least, s.Retries+1), max(most, s.Retries+1)
		}
		if len(r.Moves) > 0 && len(r.Moves) < longHistory && failures > most {
			j.illegal(r, fmt.Sprintf("at most %d failures", most), fmt.Sprint(failures))
		}
		if len(r.Moves) > 0 && failures < least && !j.fatal(r) {
			lost(fmt.Sprintf("%d attempts before it is given up", least))
		}
	case r.State == "Terminated" && r.Cause == "lost" && !any(func(s *Spec) bool { return s.OnLost == "fail" }):
		lost("to be taken up again")
	}
}

// policies are the specs that may have held when a run was made, as far as is known.
func (j *judge) policies(r *Run) []*Spec {
	t := j.jobs[r.Key]
	if t == nil {
		return nil
	}
	return t.may(r.Created.UnixNano(), j.unsure(r.Created.UnixNano()))
}

// fatal reports whether a handler returned an error that forbids retries.
func (j *judge) fatal(r *Run) bool {
	list := j.attempts[r.ID]
	return len(list) > 0 && list[len(list)-1].end != nil && list[len(list)-1].end.Outcome == "fatal"
}

// judgeFinish: the end of an attempt counts if a handler of that attempt has come to it, and no other.
func (j *judge) judgeFinish(r *Run) {
	stale := func(expected, found string) {
		j.v.found(Stale, Finding{Job: r.Key, Run: r.ID, Due: dueStamp(r.Due), Expected: expected, Found: found, Evidence: append(j.witnesses(r.ID), show(r))})
	}
	if r.State == "Succeeded" {
		j.v.looked(Stale, 1)
		var by Token
		if len(r.Result) > 0 && json.Unmarshal(r.Result, &by) == nil && by.Attempt != 0 && by.Attempt != r.Attempt {
			stale(fmt.Sprintf("the result of attempt %d, which was the current one", r.Attempt), fmt.Sprintf("that of attempt %d", by.Attempt))
			return
		}
	}
	for _, m := range r.Moves {
		if m.State != "Succeeded" && (m.State != "Failed" || m.Cause != "error") {
			continue
		}
		began, done := false, false
		for _, a := range j.attempts[r.ID] {
			if a.start.Attempt != m.Attempt || m.By != "" && a.start.Worker != "" && a.start.Worker != m.By {
				continue
			}
			began = true
			if a.end != nil && (a.end.Outcome == "ok") == (m.State == "Succeeded") && a.end.At.Wall <= m.At.UnixNano()+j.unsure(m.At.UnixNano()) {
				done = true
			}
		}
		switch {
		case !began:
			j.v.found(Lost, Finding{Job: r.Key, Run: r.ID, Due: dueStamp(r.Due), Expected: fmt.Sprintf("work in attempt %d, which %s", m.Attempt, m.State),
				Found: "no handler has begun it", Evidence: append(j.witnesses(r.ID), show(r))})
			return
		case !done:
			stale(fmt.Sprintf("%s at %s, after the handler of attempt %d had come to that", m.State, stamp(m.At.UnixNano()), m.Attempt), "by then it had not")
			return
		}
	}
}

// judgeResponses checks that responses about a run stay true.
func (j *judge) judgeResponses(r *Run) {
	for _, o := range j.ops[r.ID] {
		switch {
		case o.What == Look && o.Outcome == OK && final(o.State) && (o.State != r.State || o.Attempt != r.Attempt):
			j.illegal(r, fmt.Sprintf("%s in attempt %d, as a client has seen at %s", o.State, o.Attempt, stamp(o.Returned.Wall)), r.State, show(o))
		case o.What == Cancel && o.Outcome == OK && r.State != "Cancelled":
			j.illegal(r, "Cancelled, as the response to a client at "+stamp(o.Returned.Wall), r.State, show(o))
		case o.What == Look && o.Outcome == OK && o.Attempt > r.Attempt:
			j.illegal(r, fmt.Sprintf("attempt %d at least, as a client has seen", o.Attempt), fmt.Sprint("attempt ", r.Attempt), show(o))
		}
	}
}

// judgeEarlier: what was final in an earlier reading is the same in the last one, and nothing has gone.
func (j *judge) judgeEarlier(was *Run) {
	r := j.runs[was.ID]
	switch {
	case r == nil:
		j.v.found(Lost, Finding{Job: was.Key, Run: was.ID, Due: dueStamp(was.Due), Expected: "a run that was there before is there in the end", Found: "none", Evidence: []string{show(was)}})
	case final(was.State) && (was.State != r.State || was.Cause != r.Cause || was.Attempt != r.Attempt || !was.Ended.Equal(r.Ended) || string(was.Result) != string(r.Result)):
		j.illegal(r, "what was final stays as it was: "+show(was), "another row")
	case was.Attempt > r.Attempt:
		j.illegal(r, fmt.Sprintf("attempt %d at least, as before", was.Attempt), fmt.Sprint("attempt ", r.Attempt))
	}
}

// witnesses are the lines about a run.
func (j *judge) witnesses(id string) (lines []string) {
	for _, a := range j.attempts[id] {
		line := fmt.Sprintf("attempt %d by %s (process %d) began %s", a.start.Attempt, a.start.Worker, a.start.PID, stamp(a.start.At.Wall))
		if a.end != nil {
			line += fmt.Sprintf(", returned %s %q", stamp(a.end.At.Wall), a.end.Outcome)
		} else {
			line += ", was not seen to return"
		}
		if a.until.Mono != 0 {
			line += ", counts until " + stamp(a.until.Wall)
		}
		if a.lapsed {
			line += ", when its lease had lapsed"
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		lines = append(lines, "no handler has begun it")
	}
	for _, o := range j.ops[id] {
		if o.What != Create && o.What != Look {
			lines = append(lines, "client "+show(o))
		}
	}
	return lines[:min(len(lines), 12)]
}
