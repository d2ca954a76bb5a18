package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

// written is a schedule as it was from one edit to the next.
type written struct {
	def         *kernel.Definition
	from, until time.Time // due times in (from, until] are its own
}

// records counts what became of each due time of a job: its runs, and the ranges of the ledger it lies in.
func (h *fixture) records(key jobs.Key) (runs map[time.Time]*kernel.Run, ranges []*kernel.Missed) {
	runs = map[time.Time]*kernel.Run{}
	for _, run := range h.runs(key) {
		if runs[run.Due] != nil {
			h.t.Errorf("two runs are due at %v", run.Due)
		}
		runs[run.Due] = run
	}
	d, err := h.store.Definition(h.ctx, jobs.DefaultTenant, key)
	if err != nil {
		h.t.Fatal(err)
	}
	ranges, err = h.store.Ledger(h.ctx, jobs.DefaultTenant, d.UID, 1000)
	if err != nil {
		h.t.Fatal(err)
	}
	return runs, ranges
}

// theory checks that each due time of each schedule has one record, by the revision in force, and that there are no
// others.
func (h *fixture) theory(key jobs.Key, history []written) (fired, edited int) {
	h.t.Helper()
	runs, ranges := h.records(key)
	inRanges := 0
	for _, w := range history {
		s, err := timetable.Schedule(w.def)
		if err != nil {
			h.t.Fatal(err)
		}
		for due, ok := s.Next(w.from); ok && !due.After(w.until); due, ok = s.Next(due) {
			run, covered := runs[due], 0
			for _, m := range ranges {
				if !due.Before(m.From) && !due.After(m.To) {
					covered++
				}
			}
			switch {
			case run == nil && covered != 1, run != nil && covered != 0:
				h.t.Errorf("%s of revision %d: run %v and %d ranges", due.Format(time.StampMilli), w.def.Revision, run != nil, covered)
			case run != nil && run.Revision != w.def.Revision:
				h.t.Errorf("%s is due by revision %d and was fired by %d", due.Format(time.StampMilli), w.def.Revision, run.Revision)
			case run != nil && (run.Created.Before(due) || run.Created.After(w.until)):
				h.t.Errorf("%s of revision %d, which held until %s, was fired at %s", due.Format(time.StampMilli), w.def.Revision, w.until.Format(time.StampMilli), run.Created.Format(time.StampMilli))
			}
			inRanges += covered
			delete(runs, due)
			if run != nil {
				fired++
			}
		}
	}
	for due := range runs {
		h.t.Errorf("%s was fired, and is due by no schedule that held", due.Format(time.StampMilli))
	}
	total := 0
	for _, m := range ranges {
		total += int(m.Count)
		if m.Reason == kernel.MissedEdited {
			edited += int(m.Count)
		}
	}
	if total != inRanges {
		h.t.Errorf("the ledger counts %d due times, %d lie in it", total, inRanges)
	}
	return fired, edited
}

// slow is a store that delays fires, in every other second so much that an edit can come before the fire is committed.
type slow struct{ metastore.Full }

func (s slow) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	if len(batch) > 0 && batch[0].Command.Verb() == kernel.VerbFire {
		time.Sleep(time.Duration(4+8*(time.Now().Unix()%2)) * time.Millisecond)
	}
	return s.Full.Apply(ctx, batch)
}

// A schedule that is edited a hundred times a second, for five seconds, is obeyed exactly: each due time of each
// revision is fired while that revision is in force, or is in the ledger. Some edits come with the due time itself.
func TestAHundredEditsASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		h.stop()
		h.full = slow{h.full}
		h.start()
		var n atomic.Int64
		h.worker(worker.Config{Slots: 100}, job("tick", jobs.Options{Cron: "* * * * * *", MaxConcurrency: jobs.None}, &n))
		held, err := h.store.Definition(h.ctx, jobs.DefaultTenant, "tick")
		if err != nil {
			t.Fatal(err)
		}
		from := held.SetAt
		var history []written
		time.Sleep(2 * time.Second)
		for i := range 500 {
			// Intervals count from the edit, so that due times fall everywhere; cron's are on whole seconds.
			expr := []string{"* * * * * *", "*/2 * * * * *", "@every 1s", "PT1S", ""}[(i+1)%5]
			d := h.must(kernel.Edit{Key: "tick", Set: kernel.Settings{Schedule: &expr}}).Definition()
			if held.Policy.Schedule != "" {
				history = append(history, written{held, from, d.Edited})
			}
			held, from = d, d.Edited
			time.Sleep(10 * time.Millisecond)
			if i%97 == 0 {
				time.Sleep(time.Second) // and now and then one holds for a while
			}
		}
		every := "* * * * * *"
		held = h.must(kernel.Edit{Key: "tick", Set: kernel.Settings{Schedule: &every}}).Definition()
		time.Sleep(5*time.Second + 500*time.Millisecond)
		synctest.Wait()
		history = append(history, written{held, held.Edited, time.Now()})
		fired, edited := h.theory("tick", history)
		if fired < 10 || edited == 0 {
			t.Errorf("%d were fired and %d were edited away: the test tests little", fired, edited)
		}
		if int(n.Load()) != fired {
			t.Errorf("the handler ran %d times for %d runs", n.Load(), fired)
		}
		if d, _ := h.store.Definition(h.ctx, jobs.DefaultTenant, "tick"); len(d.Undecided) > 0 || !d.Cursor.Equal(time.Now().Truncate(time.Second)) {
			t.Errorf("the cursor is at %v, with %d schedules undecided", d.Cursor, len(d.Undecided))
		}
	})
}

// While no node leads, a schedule is edited, cleared, paused and edited again. All that was due is in the ledger once
// there is a leader.
func TestEditsWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t)
		defer h.close()
		var n atomic.Int64
		h.worker(worker.Config{}, job("tick", jobs.Options{Cron: "0 * * * * *", MaxConcurrency: jobs.None}, &n))
		held, err := h.store.Definition(h.ctx, jobs.DefaultTenant, "tick")
		if err != nil {
			t.Fatal(err)
		}
		from := held.SetAt
		time.Sleep(10*time.Minute + time.Second)
		h.stop()
		edit := func(expr string) error {
			r := h.full.Apply(h.ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "person:ann",
				Command: kernel.Edit{Key: "tick", Set: kernel.Settings{Schedule: &expr}}}})
			return r[0].Err
		}
		var history []written
		for _, expr := range []string{"*/10 * * * * *", "@every 7s", "", "0 0 0 1 1 *", "0 */2 * * * *"} {
			time.Sleep(5 * time.Minute)
			if err := edit(expr); err != nil {
				t.Fatal(err)
			}
			d, _ := h.full.Definition(h.ctx, jobs.DefaultTenant, "tick")
			if held.Policy.Schedule != "" {
				history = append(history, written{held, from, d.Edited})
			}
			held, from = d, d.Edited
		}
		time.Sleep(time.Minute)
		h.start()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		history = append(history, written{held, from, time.Now()})
		fired, edited := h.theory("tick", history)
		if want := 10 + 6; fired != want || int(n.Load()) != fired {
			t.Errorf("%d were fired and ran %d times, want %d", fired, n.Load(), want)
		}
		if want := 5 + 30 + 42; edited != want {
			t.Errorf("%d were edited away, want %d", edited, want)
		}

		h.stop()
		for i := range kernel.MaxUndecided {
			time.Sleep(time.Second)
			if err := edit(fmt.Sprintf("@every %ds", i+1)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if err := edit("@daily"); !errors.Is(err, jobs.Conflict) {
			t.Errorf("one edit more than a definition remembers: %v", err)
		}
		h.start()
		if err := edit("@daily"); err != nil {
			t.Errorf("after a leader has looked: %v", err)
		}
	})
}
