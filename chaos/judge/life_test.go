package judge

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// life makes up cases of a system that keeps all its promises.
type life struct {
	dice  *rand.Rand
	begin time.Time
	c     *Case
	ids   int
}

const (
	tickJob  = "tick"  // each second, all missed due times fire
	onceJob  = "once"  // each third second, one of the missed due times fires
	pairJob  = "pair"  // two at a time, the others wait; three retries
	looseJob = "loose" // no limit
	leftJob  = "left"  // shares a limit of three
	rightJob = "right"
)

// lived is a case of a system that has lived well for two minutes, with a worker that was killed, one that was frozen,
// a leader that died, a pause and an edit.
func lived(seed uint64) *life {
	l := &life{dice: rand.New(rand.NewPCG(seed, 9)), begin: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	shared := []Limit{{"shared", 3}}
	l.c = &Case{
		Setup: Setup{Name: fmt.Sprint("life ", seed), Store: "none", Began: l.at(0), Healed: l.at(90 * time.Second), Faults: 4},
		Specs: []Spec{
			{Key: tickJob, Schedule: "* * * * * *", Misfire: "fire_all", End: l.begin.Add(100 * time.Second)},
			{Key: onceJob, Schedule: "*/3 * * * * *", Misfire: "fire_once", End: l.begin.Add(100 * time.Second)},
			{Key: pairJob, MaxConcurrency: 2, Overlap: "queue", Retries: 3, OnLost: "retry"},
			{Key: looseJob, Overlap: "queue"},
			{Key: leftJob, Limits: shared, Overlap: "queue"}, {Key: rightJob, Limits: shared, Overlap: "queue"},
		},
		Faults: []Fault{
			{Kind: Kill, Role: Worker, Target: "w1", PID: 1, Begin: l.at(20 * time.Second), End: l.at(20 * time.Second)},
			{Kind: Freeze, Role: Worker, Target: "w2", PID: 2, Begin: l.at(30 * time.Second), End: l.at(60 * time.Second)},
			{Kind: Kill, Role: Control, Target: "n1", PID: 9, Begin: l.at(40 * time.Second), End: l.at(45 * time.Second)},
			{Kind: Freeze, Role: Control, Target: "n2", PID: 8, Begin: l.at(45 * time.Second), End: l.at(85 * time.Second)},
		},
		Stores: []Store{{At: l.at(50 * time.Second)}, {At: l.at(2 * time.Minute)}},
	}
	for _, s := range l.c.Specs {
		spec := s
		l.c.History = append(l.c.History, Op{What: Define, Key: s.Key, Invoked: l.at(0), Returned: l.at(500 * time.Millisecond), Outcome: OK, Spec: &spec})
	}
	l.ticks()
	l.triggered()
	for _, r := range l.end().Runs {
		if !r.Ended.IsZero() && r.Ended.Before(l.begin.Add(50*time.Second)) {
			l.c.Stores[0].Runs = append(l.c.Stores[0].Runs, r)
		}
	}
	return l
}

func (l *life) at(d time.Duration) Moment {
	return Moment{Wall: l.begin.Add(d).UnixNano(), Mono: int64(time.Hour + d)}
}

func (l *life) end() *Store { return &l.c.Stores[len(l.c.Stores)-1] }

func (l *life) id() string { l.ids++; return fmt.Sprintf("run-%04d", l.ids) }

// some is a random time below d.
func (l *life) some(d time.Duration) time.Duration { return time.Duration(l.dice.Int64N(int64(d))) }

// ticks: due times are fired at once, by the next leader, or put into a range.
func (l *life) ticks() {
	l.c.History = append(l.c.History,
		Op{What: Pause, Key: tickJob, Invoked: l.at(10200 * time.Millisecond), Returned: l.at(10300 * time.Millisecond), Outcome: OK},
		Op{What: Resume, Key: tickJob, Invoked: l.at(15200 * time.Millisecond), Returned: l.at(15300 * time.Millisecond), Outcome: OK})
	l.end().Missed = append(l.end().Missed, Missed{Key: tickJob, From: l.begin.Add(11 * time.Second), To: l.begin.Add(15 * time.Second), Count: 5, Reason: "paused"})
	// No node led between 41 and 84: of the late due times until 54, one fires.
	l.end().Missed = append(l.end().Missed, Missed{Key: onceJob, From: l.begin.Add(42 * time.Second), To: l.begin.Add(51 * time.Second), Count: 4, Reason: "missed"})
	for s := 1; s <= 100; s++ {
		due := time.Duration(s) * time.Second
		fired := due
		if s >= 41 && s < 84 {
			fired = 84 * time.Second
		}
		fired += l.some(20 * time.Millisecond)
		if s < 11 || s > 15 {
			l.run(tickJob, "cron", due, fired, fired, 200*time.Millisecond)
		}
		if s%3 == 0 && (s < 42 || s > 51) {
			l.run(onceJob, "cron", due, fired, fired, 200*time.Millisecond)
		}
	}
}

// triggered: requests of clients, through gates, on workers that die.
func (l *life) triggered() {
	gates := map[string][]time.Duration{pairJob: make([]time.Duration, 2), "shared": make([]time.Duration, 3)}
	for n := range 120 {
		key := []string{pairJob, looseJob, leftJob, rightJob}[l.dice.IntN(4)]
		asked := time.Second + time.Duration(n)*300*time.Millisecond
		o := Op{What: Create, Key: key, Invoked: l.at(asked), Returned: l.at(asked + 20*time.Millisecond), Outcome: OK, Idempotency: fmt.Sprint("request ", n)}
		made := asked + 10*time.Millisecond
		slots := gates[key]
		if key == leftJob || key == rightJob {
			slots = gates["shared"]
		}
		free, slot := made, -1
		if slots != nil {
			slot = 0
			for i := range slots {
				if slots[i] < slots[slot] {
					slot = i
				}
			}
			free = max(made, slots[slot])
		}
		r, over := l.run(key, "code", made, made, free, 100*time.Millisecond+l.some(2*time.Second))
		if slot >= 0 {
			slots[slot] = over
		}
		o.Run = r.ID
		if l.dice.IntN(5) == 0 { // no answer: the client asks again
			lost := o
			lost.Outcome, lost.Run, lost.Text = Unknown, "", "no answer"
			o.Invoked, o.Returned, o.Duplicate = l.at(asked+time.Second), l.at(asked+1100*time.Millisecond), true
			l.c.History = append(l.c.History, lost)
		}
		l.c.History = append(l.c.History, o)
		if l.dice.IntN(4) == 0 {
			l.c.History = append(l.c.History, Op{What: Look, Key: key, Run: r.ID, State: r.State, Attempt: r.Attempt, Invoked: l.at(over + time.Second), Returned: l.at(over + time.Second), Outcome: OK})
		}
	}
	// And one that was cancelled while it was at work: its handler heeds that.
	r, _ := l.run(looseJob, "code", 95*time.Second, 95*time.Second, 95*time.Second, time.Second)
	last := &l.end().Runs[len(l.end().Runs)-1]
	last.State, last.Result, last.Ended = "Cancelled", nil, l.begin.Add(95500*time.Millisecond)
	last.Moves[len(last.Moves)-1] = Move{State: "Cancelled", Cause: "request", At: last.Ended, Attempt: 1, By: "person:ann"}
	l.c.Journal[len(l.c.Journal)-1].Outcome = "cancelled"
	l.c.History = append(l.c.History,
		Op{What: Create, Key: looseJob, Run: r.ID, Invoked: l.at(95*time.Second - time.Millisecond), Returned: l.at(95 * time.Second), Outcome: OK},
		Op{What: Cancel, Key: looseJob, Run: r.ID, Invoked: l.at(95490 * time.Millisecond), Returned: l.at(95510 * time.Millisecond), Outcome: OK})
}

// run is the life of one run that takes its slot at free and works for so long. It answers with when its slot is free.
func (l *life) run(key, origin string, due, made, free, takes time.Duration) (Run, time.Duration) {
	r := Run{ID: l.id(), Key: key, Origin: origin, Due: l.begin.Add(due), Created: l.begin.Add(made), State: "Enqueued"}
	move := func(at time.Duration, state, cause, by string) {
		r.State, r.Cause = state, cause
		r.Moves = append(r.Moves, Move{State: state, Cause: cause, At: l.begin.Add(at), Attempt: r.Attempt, By: by})
	}
	move(made, "Enqueued", "", "")
	now := free
	for {
		pid := 3
		switch {
		case now < 19*time.Second:
			pid = 1 + l.dice.IntN(3)
		case now < 29*time.Second:
			pid = 2 + l.dice.IntN(2)
		}
		if key != pairJob && key != looseJob {
			pid = 3 // what is not tried again goes to a worker that nothing happens to
		}
		name := fmt.Sprint("w", pid)
		now += time.Millisecond
		r.Attempt, r.Worker, r.Started = r.Attempt+1, name, l.begin.Add(now)
		move(now, "Processing", "", name)
		now += time.Millisecond
		line := Line{What: Start, Key: key, Run: r.ID, Due: r.Due.UnixNano(), Attempt: r.Attempt, Worker: name, PID: pid, At: l.at(now)}
		l.c.Journal = append(l.c.Journal, line)
		done := now + takes
		back := func(at time.Duration, outcome string) {
			line.What, line.At, line.Outcome = End, l.at(at), outcome
			l.c.Journal = append(l.c.Journal, line)
		}
		if pid == 1 && done > 20*time.Second || pid == 2 && done > 30*time.Second {
			lapse := time.Duration(pid+1)*10*time.Second + 12*time.Second + l.some(3*time.Second)
			if pid == 2 {
				back(60*time.Second+l.some(time.Second), "ok") // it wakes, and its report is refused
			}
			now = lapse
			move(now, "Failed", "lost", "")
			continue
		}
		if key == pairJob && r.Attempt < 4 && l.dice.IntN(5) == 0 {
			back(done, "error")
			now = done + time.Millisecond
			move(now, "Failed", "error", name)
			continue
		}
		back(done, "ok")
		now = done + time.Millisecond
		r.Result, _ = json.Marshal(Token{Attempt: r.Attempt, PID: pid})
		move(now, "Succeeded", "", name)
		r.Ended = l.begin.Add(now)
		l.end().Runs = append(l.end().Runs, r)
		return r, now
	}
}

// any is one of the runs in the end of which something is so.
func (l *life) any(so func(*Run) bool) *Run {
	runs := l.end().Runs
	from := l.dice.IntN(len(runs))
	for i := range runs {
		if r := &runs[(from+i)%len(runs)]; so(r) {
			return r
		}
	}
	panic("there is no such run")
}

// drop takes a run away from the store, in all its readings.
func (l *life) drop(id string) {
	for i := range l.c.Stores {
		l.c.Stores[i].Runs = slices.DeleteFunc(l.c.Stores[i].Runs, func(r Run) bool { return r.ID == id })
	}
}

// hush removes all readings but the last one, so that only one witness shows a violation.
func (l *life) hush() { l.c.Stores = l.c.Stores[len(l.c.Stores)-1:] }

// lines are those of a run.
func (l *life) lines(id string) (lines []*Line) {
	for i := range l.c.Journal {
		if l.c.Journal[i].Run == id {
			lines = append(lines, &l.c.Journal[i])
		}
	}
	return lines
}

// unwrite takes lines away.
func (l *life) unwrite(so func(*Line) bool) {
	l.c.Journal = slices.DeleteFunc(l.c.Journal, func(line Line) bool { return so(&line) })
}
