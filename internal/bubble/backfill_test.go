package bubble_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/bubble"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// busy is a job that takes a while, and counts.
type busy struct {
	takes      time.Duration
	mu         sync.Mutex
	runs, most int // begun, and at most under way at once
	now        int
}

func (b *busy) Run(context.Context) error {
	b.begin(1)
	time.Sleep(b.takes)
	b.begin(-1)
	return nil
}

func (b *busy) begin(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs, b.now = b.runs+max(n, 0), b.now+n
	b.most = max(b.most, b.now)
}

// seen is how many runs have begun, and how many were under way at once at most.
func (b *busy) seen() (runs, most int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs, b.most
}

// day is a due time of the first days of the bubble's life.
func day(n int) time.Time { return time.Date(2000, 1, n, 0, 0, 0, 0, time.UTC) }

func dues(runs []*kernel.Run) (list []string) {
	for _, run := range runs {
		list = append(list, fmt.Sprintf("%s %s %s", run.Due.Format("02T15"), run.Origin, run.State))
	}
	return list
}

func ranges(list []*kernel.Missed) string {
	var text []string
	for _, m := range list {
		text = append(text, fmt.Sprintf("%s..%s %d %s", m.From.Format("02T15"), m.To.Format("02T15"), m.Count, m.Reason))
	}
	return strings.Join(text, ", ")
}

func nightly(b *busy, o jobs.Options) jobs.Job {
	o.Key, o.Cron = "nightly", "0 0 * * * *" // each hour
	return jobs.NewRecurring(b, o)
}

// A backfill makes the runs of missed due times, so many at once, and the ledger no longer has them as missed.
func TestBackfillOfWhatWasMissed(t *testing.T) {
	bubble.Run(t, func(t *testing.T, c *bubble.System) {
		b := &busy{takes: time.Minute}
		c.Start(worker.Config{}, nightly(b, jobs.Options{MaxConcurrency: 10}))
		o := opsOf(c)
		c.Pass(90 * time.Minute) // one run, at one o'clock
		c.Do(kernel.Pause{Key: "nightly", Reason: "holiday"})
		c.PassUntil(day(1).Add(10*time.Hour + 30*time.Minute)) // from two to ten, it is paused
		if got := ranges(c.Missed("nightly")); got != "01T02..01T10 9 paused" {
			t.Fatalf("the ledger is %q", got)
		}
		request := ops.Backfill{Key: "nightly", From: day(1).Add(time.Hour), To: day(1).Add(7 * time.Hour), Parallel: 2}
		would, err := o.PreviewBackfill(t.Context(), person, request)
		if err != nil || would.Due != 6 || would.Runs != 5 || would.Had != 1 || !would.First.Equal(day(1).Add(2*time.Hour)) || !would.Last.Equal(day(1).Add(6*time.Hour)) {
			t.Fatalf("it would make %+v (%v)", would, err)
		}
		if n := len(c.Runs("nightly")); n != 1 {
			t.Fatalf("a preview makes runs: there are %d", n)
		}
		did, err := o.Backfill(t.Context(), person, request)
		if err != nil || did.Runs != 5 || did.Had != 1 || did.ID.IsZero() {
			t.Fatalf("it made %+v (%v)", did, err)
		}
		c.Pass(time.Minute + time.Second)
		if runs, most := b.seen(); runs != 1+4 || most != 2 {
			t.Errorf("after a minute %d runs have begun, at most %d at once; want 4 beside the first, two at once", runs, most)
		}
		c.Pass(10 * time.Minute)
		want := []string{"01T01 cron Succeeded", "01T02 backfill Succeeded", "01T03 backfill Succeeded", "01T04 backfill Succeeded", "01T05 backfill Succeeded", "01T06 backfill Succeeded"}
		if got := dues(c.Runs("nightly")); !slices.Equal(got, want) {
			t.Errorf("the runs are %q", got)
		}
		if got := ranges(c.Missed("nightly")); got != "01T07..01T10 4 paused" {
			t.Errorf("the ledger is %q", got)
		}
		for _, run := range c.Runs("nightly")[1:] {
			if run.Parent != did.ID || run.Actor != person.Actor || run.Priority != -1 {
				t.Errorf("run of %s has parent %s, actor %s and priority %d", run.Due, run.Parent, run.Actor, run.Priority)
			}
		}
		// A repeated request changes nothing; a replay runs each once more, and a repeated replay request does so once.
		if again, err := o.Backfill(t.Context(), person, request); err != nil || again.Runs != 0 || again.Had != 6 {
			t.Errorf("the second time it made %+v (%v)", again, err)
		}
		request.Replay, request.Request = true, "r1"
		for range 2 {
			if did, err = o.Backfill(t.Context(), person, request); err != nil || did.Runs != 6 || did.Had != 0 {
				t.Errorf("a replay made %+v (%v)", did, err)
			}
			c.Pass(10 * time.Minute)
		}
		if called, _ := b.seen(); len(c.Runs("nightly")) != 12 || called != 12 {
			t.Errorf("%d runs, %d handlers called; want 12", len(c.Runs("nightly")), called)
		}
		gone, err := c.Store.Runs(t.Context(), metastore.RunQuery{Tenant: jobs.DefaultTenant, Parent: did.ID, Limit: 50})
		if err != nil || len(gone.Runs) != 6 {
			t.Errorf("%d runs belong to the replay (%v)", len(gone.Runs), err)
		}
		says, err := o.ExplainAt(t.Context(), person, "nightly", day(1).Add(3*time.Hour))
		if err != nil || says.Text[0] != "The run of 2000-01-01T03:00:00Z is Succeeded; ann requested it by a backfill at 2000-01-01T10:30:00Z." {
			t.Errorf("it is explained by %q (%v)", says.Text, err)
		}
	})
}

// Runs wait that the job's own limits allow only one at a time, and none of a backfill is skipped.
func TestBackfillKeepsToTheLimitsOfItsJob(t *testing.T) {
	bubble.Run(t, func(t *testing.T, c *bubble.System) {
		b := &busy{takes: time.Minute}
		c.Start(worker.Config{}, nightly(b, jobs.Options{StartWithin: time.Second})) // one at a time, overlap skip
		c.Do(kernel.Pause{Key: "nightly"})
		c.PassUntil(day(1).Add(5*time.Hour + time.Minute))
		o := opsOf(c)
		did, err := o.Backfill(t.Context(), person, ops.Backfill{Key: "nightly", From: day(1).Add(time.Hour), Parallel: 5})
		if err != nil || did.Runs != 5 {
			t.Fatalf("it made %+v (%v)", did, err)
		}
		c.Pass(time.Second)
		waits := ""
		for _, run := range c.Runs("nightly") {
			if run.Waits != "" {
				e, err := o.ExplainRun(t.Context(), person, run.ID)
				if err != nil {
					t.Fatal(err)
				}
				waits = e.Why
			}
		}
		if want := "It waits for a slot of its job: at most 1 may run at once. Its due time, 2000-01-01T05:00:00Z, is past: ann requested it by a backfill."; waits != want {
			t.Errorf("a run that waits is explained by %q, want %q", waits, want)
		}
		c.Pass(10 * time.Minute)
		if runs, most := b.seen(); runs != 5 || most != 1 {
			t.Errorf("%d runs, at most %d at once; want 5 and 1", runs, most)
		}
		for _, run := range c.Runs("nightly") {
			if run.State != jobs.Succeeded {
				t.Errorf("the run of %s is %s, %s", run.Due, run.State, run.Cause)
			}
		}
		if left := c.Missed("nightly"); len(left) != 0 {
			t.Errorf("the ledger is %q", ranges(left))
		}
	})
}

// A backfill that is impossible is refused, and nothing is made.
func TestBackfillsThatAreRefused(t *testing.T) {
	bubble.Run(t, func(t *testing.T, c *bubble.System) {
		nothing := jobs.TriggeredFunc[struct{}](func(context.Context, struct{}) error { return nil })
		c.Start(worker.Config{}, nightly(&busy{}, jobs.Options{}), jobs.NewTriggered(nothing, jobs.Options{Key: "triggered"}),
			jobs.NewRecurring(&busy{}, jobs.Options{Key: "often", Cron: "* * * * * *", Disabled: true}),
			jobs.NewRecurring(&busy{}, jobs.Options{Key: "after", Cron: "@every 1h after end"}))
		c.Pass(4 * time.Hour)
		c.Do(kernel.Edit{Key: "often", Set: kernel.Settings{Disabled: new(false)}})
		before := len(c.Runs("nightly"))
		from, o := day(1).Add(time.Hour), opsOf(c)
		for _, x := range []struct {
			request ops.Backfill
			code    jobs.Code
			text    string
		}{
			{ops.Backfill{Key: "none", From: from}, jobs.NotFound, "no job"},
			{ops.Backfill{Key: "triggered", From: from}, jobs.Conflict, "triggered"},
			{ops.Backfill{Key: "after", From: from}, jobs.Conflict, "after the end of its last run"},
			{ops.Backfill{Key: "nightly"}, jobs.BadInput, "from is missing"},
			{ops.Backfill{Key: "nightly", From: from, To: from}, jobs.BadInput, "not before"},
			{ops.Backfill{Key: "nightly", From: from, To: day(3)}, jobs.BadInput, "want a past time"},
			{ops.Backfill{Key: "nightly", From: from, Parallel: kernel.MaxParallel + 1}, jobs.BadInput, "parallel 1001"},
			{ops.Backfill{Key: "nightly", From: from, Priority: new(101)}, jobs.BadInput, "priority"},
			{ops.Backfill{Key: "often", From: from, Replay: true}, jobs.BadInput, "more than 10000 due times, the most of one backfill: end it before 2000-01-01T03:46:40Z"},
		} {
			did, err := o.Backfill(t.Context(), person, x.request)
			if !errors.Is(err, x.code) || !strings.Contains(err.Error(), x.text) || did.Runs != 0 {
				t.Errorf("backfill of %s from %s made %+v and returned %v", x.request.Key, x.request.From, did, err)
			}
		}
		if after := len(c.Runs("nightly")); after != before {
			t.Errorf("there were %d runs and are %d", before, after)
		}
	})
}

// A large backfill is several commands, and leaves the rest of a range that goes through all of them.
func TestLargeBackfill(t *testing.T) {
	bubble.Run(t, func(t *testing.T, c *bubble.System) {
		b := &busy{}
		c.Start(worker.Config{}, jobs.NewRecurring(b, jobs.Options{Key: "second", Cron: "* * * * * *", MaxConcurrency: 100}))
		c.Do(kernel.Pause{Key: "second"})
		c.Pass(time.Hour)
		did, err := opsOf(c).Backfill(t.Context(), person, ops.Backfill{Key: "second", From: day(1).Add(10 * time.Minute), To: day(1).Add(50 * time.Minute), Parallel: 100})
		if err != nil || did.Runs != 2400 {
			t.Fatalf("it made %+v (%v)", did, err)
		}
		c.Pass(time.Minute)
		if runs, _ := b.seen(); runs != 2400 {
			t.Errorf("%d runs", runs)
		}
		left := c.Missed("second")
		if len(left) != 2 || !left[0].To.Equal(day(1).Add(10*time.Minute-time.Second)) || !left[1].From.Equal(day(1).Add(50*time.Minute)) || left[0].Count != 599 || left[1].Count != 661 {
			t.Errorf("the ledger is %q", ranges(left))
		}
	})
}

// The end of a pause chooses which missed due times run: none, the newest, or all of them, as in a backfill.
func TestResumeSkipsRunsOnceOrReplays(t *testing.T) {
	tests.Long(t)
	for missed, want := range map[ops.Missed]struct {
		runs   []string
		ledger string
	}{
		"":               {nil, "01T02..01T05 4 paused"},
		ops.MissedSkip:   {nil, "01T02..01T05 4 paused"},
		ops.MissedOnce:   {[]string{"01T05 backfill Succeeded"}, "01T02..01T04 3 paused"},
		ops.MissedReplay: {[]string{"01T02 backfill Succeeded", "01T03 backfill Succeeded", "01T04 backfill Succeeded", "01T05 backfill Succeeded"}, ""},
	} {
		t.Run("missed "+string(missed), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T, c *bubble.System) {
				b := &busy{takes: time.Second}
				c.Start(worker.Config{}, nightly(b, jobs.Options{}))
				c.Pass(90 * time.Minute)
				c.Do(kernel.Pause{Key: "nightly"})
				c.PassUntil(day(1).Add(5*time.Hour + 30*time.Minute))
				for i := range 2 { // sent twice, it is done once
					job, let, err := opsOf(c).Resume(t.Context(), person, "nightly", ops.Resumption{Missed: missed})
					if err != nil || job.Paused != nil || i == 0 && let.Backfilled.Runs != len(want.runs) {
						t.Fatalf("resumed: %+v (%v)", let, err)
					}
					c.Pass(10 * time.Second)
				}
				c.Pass(time.Hour)
				runs := append([]string{"01T01 cron Succeeded"}, append(slices.Clone(want.runs), "01T06 cron Succeeded")...)
				if got := dues(c.Runs("nightly")); !slices.Equal(got, runs) {
					t.Errorf("the runs are %q", got)
				}
				if got := ranges(c.Missed("nightly")); got != want.ledger {
					t.Errorf("the ledger is %q", got)
				}
				if called, _ := b.seen(); called != len(runs) {
					t.Errorf("%d handlers were called", called)
				}
			})
		})
	}
}

// An edit does not affect the past: neither it, nor the end of a pause in which it was made, runs the due times of the
// new schedule, nor those of the old one.
func TestS0_19EditsNeverFireByThemselves(t *testing.T) {
	bubble.Run(t, func(t *testing.T, c *bubble.System) {
		c.Start(worker.Config{}, nightly(&busy{}, jobs.Options{}))
		o := opsOf(c)
		c.Pass(90 * time.Minute)
		if _, err := o.Edit(t.Context(), person, kernel.Edit{Key: "nightly", Set: kernel.Settings{Schedule: new("0 */5 * * * *")}}); err != nil {
			t.Fatal(err)
		}
		c.Pass(time.Minute)
		if got := dues(c.Runs("nightly")); !slices.Equal(got, []string{"01T01 cron Succeeded"}) {
			t.Fatalf("after an edit, the runs are %q", got)
		}
		c.Do(kernel.Pause{Key: "nightly"})
		c.PassUntil(day(1).Add(3*time.Hour + 2*time.Minute)) // 18 due times of every five minutes pass
		if _, err := o.Edit(t.Context(), person, kernel.Edit{Key: "nightly", Set: kernel.Settings{Schedule: new("0 30 * * * *")}}); err != nil {
			t.Fatal(err)
		}
		c.PassUntil(day(1).Add(5 * time.Hour)) // two of the newest schedule
		_, let, err := o.Resume(t.Context(), person, "nightly", ops.Resumption{Missed: ops.MissedReplay})
		if err != nil || let.Backfilled.Runs != 2 {
			t.Fatalf("resumed: %+v (%v)", let, err)
		}
		c.Pass(10 * time.Minute)
		want := []string{"01T01 cron Succeeded", "01T03 backfill Succeeded", "01T04 backfill Succeeded"}
		if got := dues(c.Runs("nightly")); !slices.Equal(got, want) {
			t.Errorf("the runs are %q", got)
		}
		if got := ranges(c.Missed("nightly")); got != "01T01..01T03 18 paused" {
			t.Errorf("the ledger is %q", got)
		}
	})
}

// forgetful is a store that keeps no run that has ended.
type forgetful struct{ metastore.Store }

func (forgetful) Run(context.Context, jobs.Tenant, jobs.ID) (*kernel.Run, error) {
	return nil, kernel.Refuse(jobs.NotFound, "it is not kept any more")
}

// A due time whose run was purged has had one, and is not made up for.
func TestBackfillLeavesOutWhatRanAndIsForgotten(t *testing.T) {
	bubble.Run(t, func(t *testing.T, c *bubble.System) {
		b := &busy{}
		c.Start(worker.Config{}, nightly(b, jobs.Options{}))
		c.Pass(3*time.Hour + 10*time.Minute)
		done, err := ops.New(ops.Config{Store: forgetful{c.Store}}).Backfill(t.Context(), person, ops.Backfill{Key: "nightly", From: day(1).Add(time.Hour)})
		if err != nil || done.Runs != 0 || done.Had != 3 {
			t.Errorf("it made %+v (%v)", done, err)
		}
		c.Pass(time.Minute)
		if runs, _ := b.seen(); runs != 3 {
			t.Errorf("%d runs", runs)
		}
	})
}
