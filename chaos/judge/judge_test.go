package judge

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

func succeeded(r *Run) bool { return r.State == "Succeeded" }

func of(key string) func(*Run) bool {
	return func(r *Run) bool { return r.Key == key && succeeded(r) }
}

// quietly are runs of a job that were begun while nothing was wrong.
func (l *life) quietly(key string) *Run {
	return l.any(func(r *Run) bool {
		at := r.Created.Sub(l.begin)
		return r.Key == key && succeeded(r) && r.Attempt == 1 && at < 9*time.Second && at > 2*time.Second
	})
}

// A system that keeps its promises is let go, whatever happened to it.
func TestHealthy(t *testing.T) {
	for seed := range uint64(30) {
		v := Judge(lived(seed).c)
		if !v.Pass {
			var out bytes.Buffer
			v.Print(&out)
			t.Fatalf("seed %d: %s", seed, out.String())
		}
		if v.Dues < 120 || v.Attempts < 200 || v.Requests < 100 || v.Faults["kill worker"] != 1 {
			t.Fatalf("seed %d: %+v", seed, v)
		}
		for _, l := range v.Late {
			if l.N == 0 {
				t.Errorf("seed %d: nothing was measured of what was %s %s", seed, l.What, l.Where)
			}
		}
	}
}

// A due time of a broadcast has a run for each worker that was there, and no two for one.
func TestBroadcast(t *testing.T) {
	l := lived(3)
	r := l.quietly(tickJob)
	r.Place = &Place{Index: 0, Total: 2}
	id := r.ID
	l.copy(r, "part one").Place = &Place{Index: 1, Total: 2}
	if v := Judge(l.c); !v.Pass {
		t.Errorf("the judge names %q", v.Broken())
	}
	l.find("part one").Place = l.find(id).Place
	if v := Judge(l.c); !slices.Contains(v.Broken(), Doubled) {
		t.Errorf("the same part twice: the judge names %q", v.Broken())
	}
}

// Work of a frozen worker after its lease is counted, but no violation.
func TestRanAfterLease(t *testing.T) {
	n := 0
	for seed := range uint64(20) {
		v := Judge(lived(seed).c)
		n += v.Beyond.N
		if v.Beyond.N > 0 && (v.Beyond.Max < 10*time.Second || v.Beyond.Max > 25*time.Second) {
			t.Errorf("seed %d: a handler went on for %v", seed, v.Beyond.Max)
		}
	}
	if n == 0 {
		t.Error("no handler went on after its lease: the lives are too quiet")
	}
}

// Each breach, alone in a life that is otherwise healthy, is found and named.
func TestBreaches(t *testing.T) {
	none := time.Time{}
	for _, tt := range []struct {
		what  string
		names []string // one of them must be named
		spoil func(l *life)
	}{
		{"a due time has no record", []string{Lost}, func(l *life) { l.erase(l.any(of(tickJob)).ID) }},
		{"due times of a whole hour have none, for the leader never woke", []string{Lost}, func(l *life) {
			l.end().Runs = slices.DeleteFunc(l.end().Runs, func(r Run) bool { return r.Key == tickJob && r.Due.Sub(l.begin) > time.Minute })
			l.unwrite(func(line *Line) bool { return line.Key == tickJob && line.Due > l.begin.Add(time.Minute).UnixNano() })
		}},
		{"a range counts less than it covers", []string{Lost}, func(l *life) { l.end().Missed[0].Count-- }},
		{"a range counts more than it covers", []string{Doubled}, func(l *life) { l.end().Missed[0].Count++ }},
		{"a due time of a job that fires all was missed", []string{Lost}, func(l *life) {
			r := l.any(func(r *Run) bool {
				return r.Key == tickJob && r.Due.Sub(l.begin) > 45*time.Second && r.Due.Sub(l.begin) < 50*time.Second
			})
			l.end().Missed = append(l.end().Missed, Missed{Key: tickJob, From: r.Due, To: r.Due, Count: 1, Reason: "missed"})
			l.erase(r.ID)
		}},
		{"a due time was missed while nothing was wrong", []string{Lost}, func(l *life) {
			r := l.quietly(onceJob)
			l.end().Missed = append(l.end().Missed, Missed{Key: onceJob, From: r.Due, To: r.Due, Count: 1, Reason: "missed"})
			l.erase(r.ID)
		}},
		{"a due time is paused that was not", []string{Lost}, func(l *life) {
			r := l.quietly(tickJob)
			l.end().Missed = append(l.end().Missed, Missed{Key: tickJob, From: r.Due, To: r.Due, Count: 1, Reason: "paused"})
			l.erase(r.ID)
		}},
		{"an acknowledged run is missing", []string{Lost}, func(l *life) { l.erase(l.quietly(looseJob).ID) }},
		{"a run that was there has gone", []string{Lost}, func(l *life) {
			id := l.quietly(looseJob).ID
			l.end().Runs = slices.DeleteFunc(l.end().Runs, func(r Run) bool { return r.ID == id })
			l.unwrite(func(line *Line) bool { return line.Run == id })
			l.c.History = slices.DeleteFunc(l.c.History, func(o Op) bool { return o.Run == id })
		}},
		{"a run has succeeded without an attempt", []string{Lost}, func(l *life) {
			id := l.quietly(looseJob).ID
			l.unwrite(func(line *Line) bool { return line.Run == id })
		}},
		{"a run was skipped that should have waited", []string{Lost}, func(l *life) {
			r := l.quietly(pairJob)
			l.unwrite(func(line *Line) bool { return line.Run == r.ID })
			l.unlook(r.ID)
			r.State, r.Cause, r.Attempt, r.Result = "Skipped", "overlap", 0, nil
			r.Moves = append(r.Moves[:1], Move{State: "Skipped", Cause: "overlap", At: r.Created})
			l.hush()
		}},
		{"a run was given up too early", []string{Lost}, func(l *life) {
			r := l.quietly(pairJob)
			l.unlook(r.ID)
			l.lines(r.ID)[1].Outcome = "error"
			r.State, r.Cause, r.Result = "Terminated", "error", nil
			last := &r.Moves[len(r.Moves)-1]
			last.State, last.Cause = "Failed", "error"
			r.Moves = append(r.Moves, Move{State: "Terminated", Cause: "error", At: last.At, Attempt: 1})
			l.hush()
		}},
		{"a run was cancelled without a request", []string{Lost}, func(l *life) {
			l.c.History = slices.DeleteFunc(l.c.History, func(o Op) bool { return o.What == Cancel })
		}},
		{"a due time has two runs", []string{Doubled}, func(l *life) { l.copy(l.any(of(tickJob)), "copy") }},
		{"a due time has a run and a range", []string{Doubled}, func(l *life) {
			due := l.quietly(tickJob).Due
			l.end().Missed = append(l.end().Missed, Missed{Key: tickJob, From: due, To: due, Count: 1, Reason: "missed"})
		}},
		{"a row is there twice", []string{Doubled}, func(l *life) { l.copy(l.any(of(looseJob)), "") }},
		{"an idempotency key was answered by two runs", []string{Doubled}, func(l *life) {
			r := l.quietly(looseJob)
			l.copy(r, "copy")
			for _, o := range l.c.History {
				if o.Run == r.ID && o.What == Create {
					o.Run = "copy"
					l.c.History = append(l.c.History, o)
					return
				}
			}
		}},
		{"a request of unknown outcome was done, and its repetition, too", []string{Unasked, Doubled}, func(l *life) {
			r := l.any(func(r *Run) bool {
				return slices.ContainsFunc(l.c.History, func(o Op) bool { return o.Run == r.ID && o.Duplicate })
			})
			l.copy(r, "copy")
		}},
		{"a request with its own ID got another run, and made one, too", []string{Doubled}, func(l *life) {
			r := l.quietly(looseJob)
			l.copy(r, "own")
			for i := range l.c.History {
				if o := &l.c.History[i]; o.Run == r.ID && o.What == Create {
					o.RequestID = "own"
				}
			}
		}},
		{"a unique key belongs to two runs", []string{Doubled}, func(l *life) {
			a := l.quietly(looseJob)
			id := a.ID
			l.copy(a, "copy").Created = a.Created.Add(time.Millisecond)
			for _, id := range []string{id, "copy"} {
				r := l.find(id)
				l.c.History = append(l.c.History, Op{What: Create, Key: looseJob, Run: r.ID, Unique: "both", Invoked: l.at(time.Second), Returned: l.at(time.Second), Outcome: OK})
			}
		}},
		{"an attempt was begun by two workers", []string{Doubled, Overlapping}, func(l *life) {
			line := *l.lines(l.quietly(looseJob).ID)[0]
			line.Worker, line.PID = "w4", 4
			line.At = line.At.plus(time.Microsecond)
			l.c.Journal = append(l.c.Journal, line)
		}},
		{"an attempt was begun that the store knows nothing of", []string{Doubled}, func(l *life) {
			line := *l.lines(l.quietly(looseJob).ID)[1]
			line.What, line.Attempt, line.At = Start, 2, line.At.plus(time.Second)
			l.c.Journal = append(l.c.Journal, line)
		}},
		{"a handler began before its time", []string{Early}, func(l *life) {
			r := l.quietly(tickJob)
			l.lines(r.ID)[0].At = Moment{r.Due.UnixNano() - int64(50*time.Millisecond), l.at(r.Due.Sub(l.begin) - 50*time.Millisecond).Mono}
		}},
		{"a run is due before it was asked for", []string{Early}, func(l *life) {
			r := l.quietly(looseJob)
			for i := range l.c.History {
				if o := &l.c.History[i]; o.Run == r.ID {
					o.Duplicate = false
					o.Due = r.Due.Add(time.Minute).UnixNano()
				}
			}
		}},
		{"a job fired when it was not due", []string{Unasked}, func(l *life) {
			r := l.copy(l.quietly(onceJob), "copy")
			r.Due = r.Due.Add(time.Second)
			for _, line := range l.lines("copy") {
				line.Due = r.Due.UnixNano()
				line.At = line.At.plus(time.Second)
			}
			for i := range r.Moves {
				r.Moves[i].At = r.Moves[i].At.Add(time.Second)
			}
		}},
		{"a job fired although it was paused", []string{Unasked}, func(l *life) {
			m := &l.end().Missed[0]
			m.From, m.Count = m.From.Add(time.Second), m.Count-1
			l.run(tickJob, "cron", 11*time.Second, 11*time.Second, 11*time.Second, 10*time.Millisecond)
		}},
		{"a run was made without a request", []string{Unasked}, func(l *life) { l.copy(l.quietly(looseJob), "copy") }},
		{"an attempt began while the one before was at work", []string{Overlapping}, func(l *life) {
			r := l.retried()
			lines := l.lines(r.ID)
			lines[1].At = lines[2].At.plus(time.Millisecond)
		}},
		{"an attempt began before the lease of a frozen worker can have lapsed", []string{Overlapping, Illegal}, func(l *life) {
			l.moveLapse(6 * time.Second)
		}},
		{"three runs at once where two are allowed", []string{OverLimit}, func(l *life) {
			for i := range l.c.Specs {
				l.c.Specs[i].MaxConcurrency = min(l.c.Specs[i].MaxConcurrency, 1)
			}
			for i := range l.c.History {
				if s := l.c.History[i].Spec; s != nil {
					s.MaxConcurrency = min(s.MaxConcurrency, 1)
				}
			}
		}},
		{"two jobs share a limit and exceed it together", []string{OverLimit}, func(l *life) {
			for i := range l.c.Specs {
				for k := range l.c.Specs[i].Limits {
					l.c.Specs[i].Limits[k].Max = 2 // the list is shared with the specs of the history
				}
			}
		}},
		{"a final run went on", []string{Illegal}, func(l *life) {
			r := l.quietly(looseJob)
			last := r.Moves[len(r.Moves)-1]
			last.State = "Cancelled"
			r.Moves, r.State = append(r.Moves, last), "Cancelled"
			l.hush()
			l.unlook(r.ID)
			l.c.History = append(l.c.History, Op{What: Cancel, Run: r.ID, Outcome: OK})
		}},
		{"a state was left out", []string{Illegal}, func(l *life) {
			r := l.quietly(looseJob)
			r.Moves = append(r.Moves[:1:1], r.Moves[2:]...)
		}},
		{"a final row has changed since an earlier reading", []string{Illegal}, func(l *life) {
			r := l.quietly(looseJob)
			r.Ended = r.Ended.Add(time.Second)
		}},
		{"a client has seen another end", []string{Illegal}, func(l *life) {
			r := l.quietly(looseJob)
			l.c.History = append(l.c.History, Op{What: Look, Run: r.ID, State: "Terminated", Attempt: 1, Outcome: OK, Invoked: l.at(time.Minute), Returned: l.at(time.Minute)})
		}},
		{"an acknowledged cancel did not hold", []string{Illegal}, func(l *life) {
			l.c.History = append(l.c.History, Op{What: Cancel, Run: l.quietly(looseJob).ID, Outcome: OK, Invoked: l.at(time.Minute), Returned: l.at(time.Minute)})
		}},
		{"a worker that nothing happened to lost its run", []string{Illegal}, func(l *life) {
			r := l.quietly(looseJob)
			first := r.Moves[len(r.Moves)-1]
			lines := l.lines(r.ID)
			lost := Move{State: "Failed", Cause: "lost", At: first.At, Attempt: 1}
			again := Move{State: "Processing", At: first.At.Add(time.Millisecond), Attempt: 2, By: "w3"}
			done := Move{State: "Succeeded", At: first.At.Add(time.Second), Attempt: 2, By: "w3"}
			r.Moves = append(r.Moves[:2:2], lost, again, done)
			r.Attempt, r.Worker, r.Ended = 2, "w3", done.At
			r.Result, _ = json.Marshal(Token{Attempt: 2})
			second := *lines[0]
			second.Attempt, second.Worker, second.PID = 2, "w3", 3
			second.At = lines[1].At.plus(2 * time.Millisecond)
			end := second
			end.What, end.Outcome, end.At = End, "ok", second.At.plus(500*time.Millisecond)
			l.c.Journal = append(l.c.Journal, second, end)
			l.hush()
			l.unlook(r.ID)
		}},
		{"a run waits for ever", []string{Stuck}, func(l *life) {
			r := l.quietly(looseJob)
			l.unwrite(func(line *Line) bool { return line.Run == r.ID })
			l.unlook(r.ID)
			r.State, r.Attempt, r.Moves, r.Ended, r.Result = "Enqueued", 0, r.Moves[:1], none, nil
			l.hush()
		}},
		{"a run is held, and its job is not paused", []string{Stuck}, func(l *life) {
			r := l.quietly(looseJob)
			l.unwrite(func(line *Line) bool { return line.Run == r.ID })
			l.unlook(r.ID)
			r.State, r.Cause, r.Attempt, r.Ended, r.Result = "Scheduled", "paused", 0, none, nil
			r.Moves = append(r.Moves[:1:1], Move{State: "Scheduled", Cause: "paused", At: r.Moves[0].At})
			l.hush()
		}},
		{"a run is skipped as paused, and its job was never paused", []string{Lost}, func(l *life) {
			r := l.quietly(looseJob)
			l.unwrite(func(line *Line) bool { return line.Run == r.ID })
			l.unlook(r.ID)
			r.State, r.Cause, r.Attempt, r.Result = "Skipped", "paused", 0, nil
			r.Moves = append(r.Moves[:1:1], Move{State: "Skipped", Cause: "paused", At: r.Ended})
			l.hush()
		}},
		{"the leader had lost a ready run", []string{Forgotten}, func(l *life) { l.c.Setup.Repairs = 1 }},
		{"a run of a dead worker is Processing for ever", []string{Stuck}, func(l *life) {
			r := l.orphaned(1)
			l.unwrite(func(line *Line) bool { return line.Run == r.ID && line.Attempt > 1 })
			l.unlook(r.ID)
			r.State, r.Cause, r.Attempt, r.Moves, r.Ended, r.Result = "Processing", "", 1, r.Moves[:2], none, nil
			l.hush()
		}},
		{"the result of an attempt counts that was over", []string{Stale}, func(l *life) {
			r := l.any(func(r *Run) bool { return succeeded(r) && r.Attempt > 1 })
			r.Result, _ = json.Marshal(Token{Attempt: 1})
			l.hush()
		}},
		{"a run ended before its handler did", []string{Stale}, func(l *life) {
			r := l.quietly(looseJob)
			lines := l.lines(r.ID)
			lines[1].At = lines[1].At.plus(10 * time.Second)
		}},
		{"an older attempt began after a newer one", []string{Stale}, func(l *life) {
			lines := l.lines(l.retried().ID)
			lines[0].Attempt, lines[1].Attempt, lines[2].Attempt, lines[3].Attempt = 2, 2, 1, 1
		}},
		{"no journals", []string{NoData}, func(l *life) { l.c.Journal = nil }},
		{"no reading of the store", []string{NoData}, func(l *life) { l.c.Stores = nil }},
		{"fewer faults than were asked for", []string{NoData}, func(l *life) { l.c.Setup.Faults = 5 }},
		{"no due times and no requests", []string{NoData}, func(l *life) { l.c.Specs, l.c.History = nil, nil }},
		{"the time when a job was created is unknown", []string{NoData}, func(l *life) {
			l.c.History = slices.DeleteFunc(l.c.History, func(o Op) bool { return o.What == Define })
		}},
		{"a schedule that the judge cannot read", []string{NoData}, func(l *life) {
			l.c.Specs = append(l.c.Specs, Spec{Key: "odd", Schedule: "0 0 1 1 * 5"})
			l.c.History = append(l.c.History, Op{What: Define, Key: "odd", Outcome: OK, Invoked: l.at(1), Returned: l.at(2)})
		}},
		{"lines without clocks", []string{NoData}, func(l *life) { l.c.Journal[7].At = Moment{} }},
	} {
		t.Run(tt.what, func(t *testing.T) {
			for seed := range uint64(4) {
				l := lived(seed)
				tt.spoil(l)
				v := Judge(l.c)
				broken := v.Broken()
				if !slices.ContainsFunc(tt.names, func(n string) bool { return slices.Contains(broken, n) }) {
					var out bytes.Buffer
					v.Print(&out)
					t.Fatalf("seed %d: the judge names %q, want one of %q\n%s", seed, broken, tt.names, out.String())
				}
				// It is explained, for people and for programs.
				var text, raw bytes.Buffer
				v.Print(&text)
				if err := v.PrintJSON(&raw); err != nil {
					t.Fatal(err)
				}
				var again Verdict
				if err := json.Unmarshal(raw.Bytes(), &again); err != nil || again.Pass || !strings.Contains(text.String(), "FAIL") || !strings.Contains(text.String(), "expected:") {
					t.Fatalf("seed %d: %v\n%s", seed, err, text.String())
				}
			}
		})
	}
}

// erase removes a run from all evidence except the clients' responses.
func (l *life) erase(id string) {
	l.drop(id)
	l.unwrite(func(line *Line) bool { return line.Run == id })
}

// unlook takes away what clients have seen of a run.
func (l *life) unlook(id string) {
	l.c.History = slices.DeleteFunc(l.c.History, func(o Op) bool { return o.Run == id && o.What == Look })
}

func (l *life) find(id string) *Run {
	for i := range l.end().Runs {
		if r := &l.end().Runs[i]; r.ID == id {
			return r
		}
	}
	return nil
}

// copy adds a run to the store that is like another, with lines of its own if it has another ID.
func (l *life) copy(r *Run, id string) *Run {
	twin := *r
	twin.Moves = slices.Clone(r.Moves)
	if id != "" {
		twin.ID = id
		for _, line := range l.lines(r.ID) {
			other := *line
			other.Run = id
			l.c.Journal = append(l.c.Journal, other)
		}
	}
	l.end().Runs = append(l.end().Runs, twin)
	return &l.end().Runs[len(l.end().Runs)-1]
}

// retried is a run whose first attempt was seen to fail, and the second to begin.
func (l *life) retried() *Run {
	return l.any(func(r *Run) bool { return r.Attempt == 2 && r.Moves[2].Cause == "error" && len(l.lines(r.ID)) == 4 })
}

// moveLapse has the next attempt of a frozen worker's run begin so much earlier.
func (l *life) moveLapse(earlier time.Duration) {
	r := l.orphaned(2)
	r.Moves[2].At = r.Moves[2].At.Add(-earlier)
	r.Moves[3].At = r.Moves[3].At.Add(-earlier)
	for _, line := range l.lines(r.ID) {
		if line.Attempt == 2 && line.What == Start {
			line.At = line.At.plus(-earlier)
		}
	}
	l.hush()
}

// orphaned is a run that the worker of a number had when something happened to it, in this life or another.
func (l *life) orphaned(worker int) *Run {
	for seed := uint64(1000); ; seed++ {
		for i := range l.end().Runs {
			if r := &l.end().Runs[i]; len(r.Moves) > 3 && r.Moves[2].Cause == "lost" && l.lines(r.ID)[0].PID == worker {
				return r
			}
		}
		*l = *lived(seed)
	}
}

// A clock that was corrected before any process followed it excuses nothing; one that was wrong for long enough does.
func TestAClockThatNoNodeBelieved(t *testing.T) {
	for away, must := range map[time.Duration]bool{8 * time.Second: true, 40 * time.Second: false} {
		l := lived(1)
		usual := Judge(l.c).Dues
		l.c.Faults = append(l.c.Faults, Fault{Kind: Clock, Role: Control, Target: "n3", Begin: l.at(50 * time.Second), End: l.at(50*time.Second + away), Step: time.Hour})
		if dues := Judge(l.c).Dues; (dues == usual) != must {
			t.Errorf("an hour's step that lasted %v: %d of %d due times must have a record", away, dues, usual)
		}
	}
}
