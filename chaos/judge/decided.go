package judge

import (
	"fmt"
	"slices"
	"time"
)

// undecided is how long before the reading a due time must be to have its record by then.
const undecided = 5 * time.Second

// decided compares the expected due times with the stored runs and missed ranges.
func (j *judge) decided() {
	automatic := map[string]map[int64][]*Run{}
	for i := range j.end.Runs {
		r := &j.end.Runs[i]
		if r.Origin == "cron" || r.Origin == "misfire" {
			if automatic[r.Key] == nil {
				automatic[r.Key] = map[int64][]*Run{}
			}
			n := r.Due.UnixNano()
			automatic[r.Key][n] = append(automatic[r.Key][n], r)
		}
	}
	for key, t := range j.jobs {
		if !t.recurring() {
			continue
		}
		if _, known := t.known(); !known {
			j.v.found(NoData, Finding{Job: key, Expected: "since when the job is known", Found: "neither a define that went well nor a row with its creation"})
			continue
		}
		// Due times are times of the store's clock, so times of operations may be beside them by what it may be wrong.
		slack := j.unsure(j.end.At.Wall)
		dues, err := t.dues(j.end.At.Wall-int64(undecided), slack)
		if err != nil {
			j.v.found(NoData, Finding{Job: key, Expected: "a schedule that the judge can read", Found: err.Error()})
			continue
		}
		j.judgeDues(t, dues, automatic[key], slack)
		delete(automatic, key)
	}
	for key, runs := range automatic { // of jobs that are not in the case
		for _, list := range runs {
			for _, r := range list {
				j.v.found(Unasked, Finding{Job: key, Run: r.ID, Due: dueStamp(r.Due), Expected: "a job of the case", Found: show(r)})
			}
		}
	}
}

func (j *judge) judgeDues(t *timeline, dues []due, runs map[int64][]*Run, slack int64) {
	var ranges []*Missed
	for i := range j.end.Missed {
		if m := &j.end.Missed[i]; m.Key == t.key {
			ranges = append(ranges, m)
		}
	}
	slices.SortFunc(ranges, func(a, b *Missed) int { return a.From.Compare(b.From) })
	must, may := map[*Missed]uint64{}, map[*Missed]uint64{}
	theirs := map[int64]bool{}
	for _, d := range dues {
		n := d.at.UnixNano()
		theirs[n] = true
		j.v.looked(Unasked, 1)
		var in []*Missed
		for _, m := range ranges {
			if m.From.After(d.at) {
				break
			}
			if !d.at.After(m.To) {
				in = append(in, m)
				may[m]++
				if d.must {
					must[m]++
				}
			}
		}
		if d.must {
			j.v.Dues++
			j.v.looked(Lost, 1)
		}
		j.v.looked(Doubled, 1)
		f := Finding{Job: t.key, Due: dueStamp(d.at), Expected: fmt.Sprintf("one record of this due time of %q: a run, or a missed range with the reason", d.spec.Schedule)}
		for _, r := range runs[n] {
			f.Run = r.ID
			f.Evidence = append(f.Evidence, "run "+show(r))
		}
		for _, m := range in {
			f.Evidence = append(f.Evidence, "range "+show(m))
		}
		parts := map[uint32]bool{}
		for _, r := range runs[n] {
			parts[r.part()] = true
		}
		twice := len(runs[n]) > len(parts)
		switch have := min(len(runs[n]), 1) + len(in); {
		case have == 0 && d.must:
			f.Found = "nothing"
			f.Evidence = j.around(t, n)
			j.v.found(Lost, f)
		case twice || have > 1 && d.must:
			f.Found = fmt.Sprintf("%d runs and %d ranges", len(runs[n]), len(in))
			j.v.found(Doubled, f)
		case have == 1 && len(in) == 1 && d.must:
			j.judgeRange(t, d, in[0], slack)
		case have == 1 && len(runs[n]) > 0:
			j.judgePause(t, d, runs[n][0], slack)
		}
	}
	for n, list := range runs {
		if !theirs[n] && n <= j.end.At.Wall-int64(undecided) {
			for _, r := range list {
				j.v.found(Unasked, Finding{Job: t.key, Run: r.ID, Due: dueStamp(r.Due), Expected: "a due time that the job's schedule names", Found: show(r), Evidence: j.around(t, n)})
			}
		}
	}
	for _, m := range ranges {
		if m.To.UnixNano() > j.end.At.Wall-int64(undecided) {
			continue // its last due times were not reckoned
		}
		f := Finding{Job: t.key, Due: dueStamp(m.From), Expected: fmt.Sprintf("a count of %d to %d", must[m], may[m]), Found: show(m)}
		switch {
		case m.Count < must[m]:
			j.v.found(Lost, f)
		case m.Count > may[m]:
			j.v.found(Doubled, f)
		}
	}
}

// judgeRange checks that the missed range of a due time without a run has the right reason.
func (j *judge) judgeRange(t *timeline, d due, m *Missed, slack int64) {
	n := d.at.UnixNano()
	// A late decision uses the specs of its time.
	late := n + int64(j.c.Setup.MisfireAfter) + int64(2*aftermath)
	for late < j.end.At.Wall && j.disturbedAll(n, late) {
		late += int64(aftermath)
	}
	_, pause, disable := t.silent(n, slack)
	_, _, later := t.silent(late, slack)
	var wrong string
	switch m.Reason {
	case "missed":
		policies := t.may(n, slack)
		if slices.ContainsFunc(policies, func(s *Spec) bool { return s.Misfire == "fire_all" }) && len(policies) == 1 {
			wrong = "a run: all missed due times of this job fire"
		} else if !j.disturbedAll(n, n+int64(j.c.Setup.MisfireAfter)) {
			wrong = fmt.Sprintf("a run: nothing was wrong for as long as %v after it", j.c.Setup.MisfireAfter)
		}
	case "paused":
		if !pause {
			wrong = "a run: the job was not paused"
		}
	case "disabled":
		if !disable && !later && !t.edited(n, late) {
			wrong = "a run: the job was not disabled"
		}
	case "edited":
		if !t.edited(n-slack, late) {
			wrong = "a run: the job was not changed"
		}
	case "debug": // the case does not have debug modes
	default:
		wrong = "a reason that there is"
	}
	if wrong != "" {
		j.v.found(Lost, Finding{Job: t.key, Due: dueStamp(d.at), Expected: wrong, Found: "range " + show(m), Evidence: j.around(t, n)})
	}
}

// judgePause finds runs whose job was paused or disabled, both when they were due and when they were made.
func (j *judge) judgePause(t *timeline, d due, r *Run, slack int64) {
	held, _, _ := t.silent(d.at.UnixNano(), slack)
	made, _, _ := t.silent(r.Created.UnixNano(), slack)
	if held && made {
		j.v.found(Unasked, Finding{Job: t.key, Run: r.ID, Due: dueStamp(d.at), Expected: "no run: the job was paused or disabled when it was due and when it was made", Found: show(r), Evidence: j.around(t, d.at.UnixNano())})
	}
}

// around returns the operations on a job and the faults near a time.
func (j *judge) around(t *timeline, at int64) (lines []string) {
	const near = int64(20 * time.Second)
	for _, o := range t.ops {
		if o.What != Define && o.Invoked.Wall-near <= at && at <= o.Returned.Wall+near {
			lines = append(lines, "client "+show(o))
		}
	}
	for i := range j.c.Faults {
		f := &j.c.Faults[i]
		if f.Begin.Wall-near <= at && (f.End.Wall == 0 || at <= f.End.Wall+near) {
			lines = append(lines, fmt.Sprintf("fault %s %s %s from %s to %s", f.Kind, f.Role, f.Target, stamp(f.Begin.Wall), stamp(f.End.Wall)))
		}
	}
	return lines[:min(len(lines), 12)]
}
