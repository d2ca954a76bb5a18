package kernel

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// moves are all that can happen to a run, by name, with the state each of them leads to from where it is allowed.
var moves = []struct {
	name string
	do   func(Run) (Run, error)
	to   map[jobs.State]jobs.State
}{
	{"begin, due", func(run Run) (Run, error) { return run.Begin(noon, "", time.Time{}) },
		map[jobs.State]jobs.State{New: jobs.Enqueued, jobs.Scheduled: jobs.Enqueued}},
	{"begin, due ahead", func(run Run) (Run, error) { run.Due = noon.Add(1); return run.Begin(noon, "", time.Time{}) },
		map[jobs.State]jobs.State{New: jobs.Scheduled, jobs.Enqueued: jobs.Scheduled}},
	{"begin, held", func(run Run) (Run, error) { return run.Begin(noon, ByDebug, time.Time{}) },
		map[jobs.State]jobs.State{New: jobs.Scheduled, jobs.Enqueued: jobs.Scheduled}},
	{"hold", func(run Run) (Run, error) { return run.Hold(noon, ByPause, time.Time{}) },
		map[jobs.State]jobs.State{New: jobs.Scheduled, jobs.Enqueued: jobs.Scheduled}},
	{"enqueue", func(run Run) (Run, error) { return run.Enqueue(noon) },
		map[jobs.State]jobs.State{New: jobs.Enqueued, jobs.Scheduled: jobs.Enqueued}},
	{"skip", func(run Run) (Run, error) { return run.Skip(noon, ByOverlap, "") },
		map[jobs.State]jobs.State{jobs.Enqueued: jobs.Skipped}},
	{"start", func(run Run) (Run, error) { return run.Start(noon, "w") },
		map[jobs.State]jobs.State{jobs.Enqueued: jobs.Processing, jobs.Failed: jobs.Processing}},
	{"succeed", func(run Run) (Run, error) { return run.Succeed(noon, nil) },
		map[jobs.State]jobs.State{jobs.Processing: jobs.Succeeded}},
	{"fail, a retry left", func(run Run) (Run, error) {
		run.Terms.Retries = 1
		return run.Fail(noon, ByError, "", "no", 0, true)
	}, map[jobs.State]jobs.State{jobs.Processing: jobs.Failed}},
	{"fail, no retry left", func(run Run) (Run, error) { return run.Fail(noon, ByError, "", "no", 0, true) },
		map[jobs.State]jobs.State{jobs.Processing: jobs.Terminated}},
	{"time out, no retry left", func(run Run) (Run, error) { return run.Fail(noon, ByTimeout, "", "slow", 0, true) },
		map[jobs.State]jobs.State{jobs.Processing: jobs.Terminated}},
	{"fail for good", func(run Run) (Run, error) {
		run.Terms.Retries = 9
		return run.Fail(noon, ByError, "", "no", 0, false)
	}, map[jobs.State]jobs.State{jobs.Processing: jobs.Terminated}},
	{"lose", func(run Run) (Run, error) { return run.Fail(noon, ByLoss, "", "gone", 0, true) },
		map[jobs.State]jobs.State{jobs.Processing: jobs.Failed}},
	{"lose, on lost fail", func(run Run) (Run, error) {
		run.Terms.OnLost = jobs.LostFail
		return run.Fail(noon, ByLoss, "", "gone", 0, true)
	}, map[jobs.State]jobs.State{jobs.Processing: jobs.Terminated}},
	{"hand back", func(run Run) (Run, error) { return run.Fail(noon, ByHandback, "", "", 0, true) },
		map[jobs.State]jobs.State{jobs.Processing: jobs.Failed}},
	{"snooze", func(run Run) (Run, error) { return run.Fail(noon, BySnooze, "", "", time.Hour, true) },
		map[jobs.State]jobs.State{jobs.Processing: jobs.Failed}},
	{"cancel", func(run Run) (Run, error) { return run.Cancel(noon, "ann", "") },
		map[jobs.State]jobs.State{jobs.Scheduled: jobs.Cancelled, jobs.Enqueued: jobs.Cancelled, jobs.Processing: jobs.Cancelled, jobs.Failed: jobs.Cancelled}},
}

// Every pair of a state and a move leads where the table says, or is refused and changes nothing.
func TestEveryMoveFromEveryState(t *testing.T) {
	for _, from := range append([]jobs.State{New}, States()...) {
		for _, m := range moves {
			t.Run(fmt.Sprintf("%s/%s", from, m.name), func(t *testing.T) {
				before := Run{ID: jobs.ID{1}, State: from, Due: noon, Actor: "leader", Worker: "w0", Attempt: 1}
				after, err := m.do(before)
				want, allowed := m.to[from]
				if !allowed {
					if !errors.Is(err, jobs.Conflict) || !strings.Contains(err.Error(), from.String()) {
						t.Fatalf("got %v to %s, want a conflict that names %s", err, after.State, from)
					}
					if after.State != from || len(after.Moves) != 0 {
						t.Fatalf("a refused move left %s with %d moves", after.State, len(after.Moves))
					}
					return
				}
				if err != nil || after.State != want {
					t.Fatalf("got %s, %v; want %s", after.State, err, want)
				}
				last := after.Moves[len(after.Moves)-1]
				if last.State != want || last.Cause != after.Cause || !last.At.Equal(noon) {
					t.Errorf("the history ends with %+v", last)
				}
				if after.Ended.IsZero() == after.State.Final() {
					t.Errorf("%s ended at %v", after.State, after.Ended)
				}
				for i, step := range after.Moves {
					at := from
					if i > 0 {
						at = after.Moves[i-1].State
					}
					if !May(at, step.State) {
						t.Errorf("the history goes from %s to %s", at, step.State)
					}
				}
			})
		}
	}
}

// A move is a new value: two moves from one row do not see each other, not even in the history behind them.
func TestMovesAreValues(t *testing.T) {
	run := Run{ID: jobs.ID{1}, Due: noon.Add(time.Hour), Actor: "leader"}
	var err error
	for _, step := range []func(Run) (Run, error){
		func(run Run) (Run, error) { return run.Begin(noon, "", time.Time{}) },
		func(run Run) (Run, error) { return run.Enqueue(noon) },
		func(run Run) (Run, error) { return run.Start(noon, "w0") },
		func(run Run) (Run, error) {
			run.Terms.Retries = 9
			return run.Fail(noon, ByError, "", "no", 0, true)
		},
	} {
		if run, err = step(run); err != nil {
			t.Fatal(err)
		}
		before := run
		before.Moves = slices.Clone(run.Moves)
		one, err1 := run.Cancel(noon, "ann", "one")
		other, err2 := run.Cancel(noon, "bob", "other")
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if by := one.Moves[len(one.Moves)-1].By; by != "ann" {
			t.Errorf("from %s: the second move overwrote the first: by %s", run.State, by)
		}
		if by := other.Moves[len(other.Moves)-1].By; by != "bob" {
			t.Errorf("from %s: by %s", run.State, by)
		}
		if !reflect.DeepEqual(run, before) {
			t.Errorf("from %s: the row itself was changed", run.State)
		}
	}
}

// Errors and timeouts use up retries, losses their own budget, handback and snooze nothing.
func TestBudgets(t *testing.T) {
	run := func(retries int, causes ...Cause) Run {
		r := Run{ID: jobs.ID{1}, State: jobs.Enqueued, Terms: Terms{Retries: retries, OnLost: jobs.LostRetry}}
		for _, c := range causes {
			r, _ = r.Start(noon, "w")
			r, _ = r.Fail(noon, c, "", string(c), 0, true)
		}
		return r
	}
	for _, c := range []struct {
		retries int
		causes  []Cause
		state   jobs.State
		cause   Cause
	}{
		{0, []Cause{ByError}, jobs.Terminated, ByError},
		{0, []Cause{ByTimeout}, jobs.Terminated, ByTimeout},
		{2, []Cause{ByError, ByTimeout}, jobs.Failed, ByTimeout},
		{2, []Cause{ByError, ByTimeout, ByError}, jobs.Terminated, ByError},
		{0, []Cause{ByLoss, ByLoss, ByLoss}, jobs.Failed, ByLoss},
		{9, []Cause{ByLoss, ByLoss, ByLoss, ByLoss}, jobs.Terminated, ByPoison},
		{0, []Cause{ByHandback, BySnooze, ByHandback, BySnooze, ByHandback}, jobs.Failed, ByHandback},
		{1, []Cause{ByLoss, ByError, ByLoss, ByHandback, ByLoss}, jobs.Failed, ByLoss},
		{1, []Cause{ByLoss, ByError, ByHandback, ByError}, jobs.Terminated, ByError},
	} {
		r := run(c.retries, c.causes...)
		if r.State != c.state || r.Cause != c.cause {
			t.Errorf("%d retries, %v: %s (%s), want %s (%s)", c.retries, c.causes, r.State, r.Cause, c.state, c.cause)
		}
		if int(r.Attempt) != len(c.causes) {
			t.Errorf("%v: attempt %d", c.causes, r.Attempt)
		}
	}
}

// When a failed run is called again: a failure of the handler by its terms, everything else at once, and what
// was asked for explicitly before either.
func TestRetryTime(t *testing.T) {
	begun := Run{ID: jobs.ID{1}, State: jobs.Processing, Attempt: 1, Terms: Terms{Retries: 3, RetryDelay: time.Minute}}
	for _, c := range []struct {
		cause  Cause
		delay  time.Duration
		lo, hi time.Duration
	}{
		{ByError, 0, 30 * time.Second, time.Minute},
		{ByTimeout, 0, 30 * time.Second, time.Minute},
		{ByError, time.Hour, time.Hour, time.Hour},
		{ByLoss, 0, 0, 0},
		{ByHandback, 0, 0, 0},
		{BySnooze, 5 * time.Second, 5 * time.Second, 5 * time.Second},
	} {
		run, err := begun.Fail(noon, c.cause, "", "", c.delay, true)
		if err != nil {
			t.Fatal(err)
		}
		if c.hi == 0 {
			if !run.RetryAt.IsZero() || !run.Ready() {
				t.Errorf("%s: retry at %v, want at once", c.cause, run.RetryAt)
			}
			continue
		}
		if d := run.RetryAt.Sub(noon); d < c.lo || d > c.hi {
			t.Errorf("%s: retry after %v, want %v to %v", c.cause, d, c.lo, c.hi)
		}
		if run.Ready() || !run.Wake().Equal(run.RetryAt) {
			t.Errorf("%s: offerable before its retry is due, wakes at %v", c.cause, run.Wake())
		}
		if again := run.Retry(); !again.Ready() || !again.First || !again.Wake().IsZero() {
			t.Errorf("%s: not offerable once its retry is due", c.cause)
		}
	}
}

// A cancelled attempt lingers until its handler has returned; one that never began does not.
func TestLingering(t *testing.T) {
	for _, from := range []jobs.State{jobs.Scheduled, jobs.Enqueued, jobs.Processing, jobs.Failed} {
		run, err := (Run{State: from}).Cancel(noon, "ann", "")
		if err != nil {
			t.Fatal(err)
		}
		if run.Lingering != (from == jobs.Processing) || run.Settled() == run.Lingering {
			t.Errorf("cancelled from %s: lingering %v, settled %v", from, run.Lingering, run.Settled())
		}
	}
	stuck, err := (Run{State: jobs.Failed, Lingering: true, RetryAt: noon}).Cancel(noon, "ann", "")
	if err != nil || !stuck.Lingering {
		t.Errorf("a stuck handler was forgotten when its run was cancelled: %v", err)
	}
	if (&Run{State: jobs.Failed, Lingering: true}).Ready() {
		t.Error("a retry is offered beside the handler that has not returned")
	}
	if !(&Run{State: jobs.Failed, Lingering: true, RetryAt: noon}).Wake().IsZero() {
		t.Error("a retry wakes beside the handler that has not returned")
	}
}

func TestWake(t *testing.T) {
	for _, c := range []struct {
		in   Run
		want time.Time
	}{
		{Run{State: jobs.Scheduled, Due: noon}, noon},
		{Run{State: jobs.Scheduled, Due: noon, Cause: ByDebug}, time.Time{}},
		{Run{State: jobs.Enqueued, Due: noon}, time.Time{}},
		{Run{State: jobs.Failed, Due: noon}, time.Time{}},
		{Run{State: jobs.Failed, RetryAt: noon}, noon},
		{Run{State: jobs.Failed, RetryAt: noon, Waits: "job/x"}, time.Time{}},
		{Run{State: jobs.Succeeded, Due: noon}, time.Time{}},
	} {
		if got := c.in.Wake(); !got.Equal(c.want) {
			t.Errorf("%s (%s): wakes at %v, want %v", c.in.State, c.in.Cause, got, c.want)
		}
	}
}

// A history is bounded: it keeps how the run began and how it goes now.
func TestHistoryIsBounded(t *testing.T) {
	run := Run{ID: jobs.ID{1}, Actor: "leader", Due: noon}
	run, err := run.Begin(noon, "", time.Time{})
	for i := 0; err == nil && i < 10_000; i++ {
		if run, err = run.Start(noon.Add(time.Duration(i)), "w"); err == nil {
			run, err = run.Fail(noon, ByHandback, "", strings.Repeat("é", 2000), 0, true)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(run.Moves) > maxMoves {
		t.Errorf("%d lines", len(run.Moves))
	}
	if run.Moves[0].State != jobs.Enqueued {
		t.Errorf("the first line is %+v", run.Moves[0])
	}
	last := run.Moves[len(run.Moves)-1]
	if last.Attempt != 10_000 || len(last.Text) > 1024 || !utf8.ValidString(last.Text) {
		t.Errorf("the last line is of attempt %d with %d bytes", last.Attempt, len(last.Text))
	}
}

func TestCutTextKeepsRunes(t *testing.T) {
	for n := range 20 {
		if got := plain.Cut("a€🔔é€", n); len(got) > n || !utf8.ValidString(got) {
			t.Errorf("cut to %d: %q", n, got)
		}
	}
}

// A start that is taken back leaves the run as it was, but for the number of the attempt.
func TestUnstartIsAsBefore(t *testing.T) {
	run := Run{ID: jobs.ID{1}, Due: noon, Actor: "leader", Terms: Terms{Retries: 2, Timeout: time.Minute}, Turn: 4}
	run, _ = run.Begin(noon, "", time.Time{})
	for range 2 {
		before := run
		begun, err := run.Start(noon.Add(time.Second), "w1")
		if err != nil {
			t.Fatal(err)
		}
		back, err := begun.Unstart()
		if err != nil {
			t.Fatal(err)
		}
		want := before
		want.Attempt++
		if !reflect.DeepEqual(back, want) {
			t.Errorf("a start that was taken back left\n%+v, want\n%+v", back, want)
		}
		if run, err = back.Start(noon.Add(time.Minute), "w2"); err != nil || run.Attempt != before.Attempt+2 {
			t.Fatalf("the next start: %+v, %v", run, err)
		}
		if last := begun.Moves[len(begun.Moves)-1]; last.By != "w1" {
			t.Errorf("the next start changed the history of the one that was taken back: %+v", last)
		}
		if run, err = run.Fail(noon.Add(time.Hour), ByError, "", "no", 0, true); err != nil {
			t.Fatal(err)
		}
	}
}

// Lost attempts that never reported to have begun cost nothing, but for a run that does this again and again.
func TestLossesOfAttemptsThatNeverBegan(t *testing.T) {
	run := Run{ID: jobs.ID{1}, Due: noon, Actor: "leader"}
	run, _ = run.Begin(noon, "", time.Time{})
	for i := range freeUnbegun + MaxLosses + 1 {
		var err error
		if run, err = run.Start(noon, "w"); err != nil {
			t.Fatal(err)
		}
		if run, err = run.Lose(noon, true); err != nil {
			t.Fatal(err)
		}
		if want := uint32(max(0, i+1-freeUnbegun)); run.Losses != want {
			t.Errorf("after %d such losses, %d count: want %d", i+1, run.Losses, want)
		}
	}
	if run.State != jobs.Terminated || run.Cause != ByPoison {
		t.Errorf("the run is %s, %s: want Terminated as poison", run.State, run.Cause)
	}

	once := Run{ID: jobs.ID{1}, Due: noon, Actor: "leader", Terms: Terms{OnLost: jobs.LostFail}}
	once, _ = once.Begin(noon, "", time.Time{})
	once, _ = once.Start(noon, "w")
	if once, _ = once.Lose(noon, true); once.State != jobs.Terminated {
		t.Errorf("a run that may begin once is %s after an attempt that may have begun", once.State)
	}
}
