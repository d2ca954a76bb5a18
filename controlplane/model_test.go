package controlplane_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// world is a cluster in which jobs of all policies live for some hours, while people edit them and their calendars,
// pause and resume them, and leaders follow each other. The fate of each due time follows from what is recorded here,
// in the plainest way.
type world struct {
	*fixture
	rnd       *rand.Rand
	seed      uint64
	list      []*citizen
	calendars map[string][]closing
	mu        sync.Mutex
	ran       map[jobs.ID][]string // the workers that ran it
	under     map[jobs.Key]int
	peak      map[jobs.Key]int
}

// citizen is a job with all that it has been.
type citizen struct {
	key     jobs.Key
	held    *kernel.Definition
	from    time.Time
	history []written
}

// closing is a calendar's rule from a time on: minutes of the day, [from, to).
type closing struct {
	since time.Time
	spans [][2]int
}

func (w *world) job(i int) jobs.Job {
	key := jobs.Key(fmt.Sprint("job-", i))
	o := jobs.Options{Key: key, Misfire: jobs.MisfireAll, MaxConcurrency: jobs.None, Timeout: jobs.None, Route: kernel.Routes()[w.rnd.IntN(5)]}
	if o.Cron = w.schedule(); w.rnd.IntN(3) == 0 {
		o.MaxConcurrency, o.Overlap = 1, jobs.OverlapSkip
	}
	switch w.rnd.IntN(4) {
	case 0:
		o.Jitter = time.Duration(1+w.rnd.IntN(90)) * time.Second
	case 1:
		o.Early = time.Duration(1+w.rnd.IntN(20)) * time.Second
	case 2:
		o.Jitter, o.Early = 40*time.Second, 15*time.Second
	}
	if w.rnd.IntN(2) == 0 {
		o.Calendars = []string{"a", "b"}[:1+w.rnd.IntN(2)]
	}
	if w.rnd.IntN(4) == 0 {
		o.Needs = []string{"gpu"}
	}
	takes := time.Duration(w.rnd.IntN(240)) * time.Second
	return jobs.NewRecurring(jobs.RecurringFunc(func(ctx context.Context) error {
		at := jobs.Attempt(ctx)
		name, _, _ := strings.Cut(at.Worker, "-")
		w.mu.Lock()
		w.ran[at.Run] = append(w.ran[at.Run], name)
		w.under[key]++
		w.peak[key] = max(w.peak[key], w.under[key])
		w.mu.Unlock()
		defer func() {
			w.mu.Lock()
			w.under[key]--
			w.mu.Unlock()
		}()
		select {
		case <-time.After(takes):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}), o)
}

func (w *world) schedule() string {
	return []string{"0 * * * * *", "0 */3 * * * *", "30 */5 * * * *", "0 1-59/7 * * * *", "@every 150s", "PT4M", "R20/PT2M", "@every 11m"}[w.rnd.IntN(8)]
}

// write changes a calendar, or makes it.
func (w *world) write(name string) {
	c := closing{}
	var rules []string
	for range w.rnd.IntN(3) {
		from := w.rnd.IntN(240)
		to := from + 1 + w.rnd.IntN(20)
		c.spans = append(c.spans, [2]int{from, to})
		rules = append(rules, fmt.Sprintf("%02d:%02d-%02d:%02d", from/60, from%60, to/60, to%60))
	}
	w.must(kernel.SetCalendar{Name: name, Rules: rules})
	c.since = time.Now()
	w.calendars[name] = append(w.calendars[name], c)
}

// excludes reports whether a calendar, as it was at a moment, excludes a time.
func (w *world) excludes(name string, as, due time.Time) bool {
	var last closing
	for _, c := range w.calendars[name] {
		if c.since.Before(as) {
			last = c
		}
	}
	minute := due.Hour()*60 + due.Minute()
	return slices.ContainsFunc(last.spans, func(s [2]int) bool { return s[0] <= minute && minute < s[1] })
}

// became records that a job has changed.
func (c *citizen) became(d *kernel.Definition) {
	now := time.Now()
	c.history = append(c.history, written{c.held, c.from, now})
	c.held, c.from = d, now
}

// calm waits for a moment at which nothing is due, and no window of an early job is open: decisions ahead of a due time
// depend on the state at that time.
func (w *world) calm() {
	for open := true; open; {
		open = false
		for _, c := range w.list {
			if s, err := timetable.Schedule(c.held); err == nil && s != nil {
				if due, ok := s.Next(time.Now().Add(-time.Second)); ok && time.Until(due) <= c.held.Policy.Early+time.Second {
					open = true
				}
			}
		}
		if open {
			time.Sleep(time.Second)
		}
	}
}

// act does something that people do.
func (w *world) act() {
	c := w.list[w.rnd.IntN(len(w.list))]
	var k kernel.Command
	switch w.rnd.IntN(8) {
	case 0, 1:
		if k = kernel.Pause(kernel.Pause{Key: c.key}); c.held.Paused != nil {
			k = kernel.Resume{Key: c.key}
		}
	case 2:
		k = kernel.Edit{Key: c.key, Set: kernel.Settings{Disabled: new(!c.held.Policy.Disabled)}}
	case 3:
		k = kernel.Edit{Key: c.key, Set: kernel.Settings{Schedule: new(w.schedule())}}
	case 4:
		k = kernel.Edit{Key: c.key, Set: kernel.Settings{Calendars: new([][]string{{}, {"a"}, {"b"}, {"b", "a"}}[w.rnd.IntN(4)])}}
	case 5:
		k = kernel.Edit{Key: c.key, Set: kernel.Settings{Jitter: new(time.Duration(w.rnd.IntN(60)) * time.Second)}}
	case 6:
		w.write([]string{"a", "b"}[w.rnd.IntN(2)])
		return
	default:
		w.stop()
		time.Sleep(time.Duration(1+w.rnd.IntN(20)) * time.Second)
		w.start()
		time.Sleep(3 * time.Second) // it knows the workers, and has decided what came due
		return
	}
	c.became(w.must(k).Definition())
}

// was reports whether the job had a property at a time between two.
func (c *citizen) was(has func(*kernel.Definition) bool, after, before time.Time) bool {
	return slices.ContainsFunc(append(c.history, written{c.held, c.from, time.Now()}), func(h written) bool {
		return has(h.def) && h.from.Before(before) && !h.until.Before(after)
	})
}

// judge compares what is in the store with what must be.
func (w *world) judge(c *citizen) (fired, silent int) {
	runs, ranges := w.records(c.key)
	complain := func(due time.Time, format string, args ...any) {
		w.t.Errorf("world %d, %s, due %s: %s", w.seed, c.key, due.Format(time.TimeOnly), fmt.Sprintf(format, args...))
	}
	total := 0
	for _, h := range append(c.history, written{c.held, c.from, time.Now()}) {
		s, err := timetable.Schedule(h.def)
		if err != nil {
			w.t.Fatal(err)
		}
		p := &h.def.Policy
		for due, ok := s.Next(h.from); ok && !due.After(h.until); due, ok = s.Next(due) {
			var why []kernel.Reason
			if h.def.Paused != nil {
				why = append(why, kernel.MissedPaused)
			}
			if p.Disabled {
				why = append(why, kernel.MissedDisabled)
			}
			for _, name := range p.Calendars {
				if w.excludes(name, due, due) {
					why = append(why, kernel.MissedCalendar)
				}
			}
			var in []*kernel.Missed
			for _, m := range ranges {
				if !due.Before(m.From) && !due.After(m.To) {
					in = append(in, m)
				}
			}
			run := runs[due]
			delete(runs, due)
			switch {
			case run == nil && len(in) != 1, run != nil && len(in) != 0:
				complain(due, "a run is %v, and %d ranges", run != nil, len(in))
			case len(why) > 0 && (run != nil || !slices.Contains(why, in[0].Reason)):
				complain(due, "it must not run, because of %v: a run is %v, and it lies in %v", why, run != nil, in)
			case len(why) == 0 && run == nil:
				complain(due, "there is no run: %s", in[0].Reason)
			}
			if run == nil {
				total++
				silent++
				continue
			}
			fired++
			w.started(c, run, p, h.def.Starts(due), complain)
		}
	}
	for due := range runs {
		complain(due, "it ran, and was not due")
	}
	for _, m := range ranges {
		total -= int(m.Count)
	}
	if total != 0 {
		w.t.Errorf("world %d, %s: the ledger's counts differ by %d", w.seed, c.key, -total)
	}
	if p := w.peak[c.key]; c.held.Policy.MaxConcurrency > 0 && p > c.held.Policy.MaxConcurrency {
		w.t.Errorf("world %d, %s: %d ran at a time", w.seed, c.key, p)
	}
	return fired, silent
}

// late is how long a start may take: as long as no node leads, and what a new leader needs.
const late = 20*time.Second + 5*time.Second

// started reports whether a run began when and where it had to, or was skipped with reason.
func (w *world) started(c *citizen, run *kernel.Run, p *kernel.Policy, start time.Time, complain func(time.Time, string, ...any)) {
	ran := w.ran[run.ID]
	switch {
	case run.State == jobs.Skipped && run.Cause == kernel.ByOverlap && p.MaxConcurrency > 0:
		if len(ran) > 0 {
			complain(run.Due, "it was skipped, and ran %d times", len(ran))
		}
		busy := slices.ContainsFunc(w.runs(run.Key), func(o *kernel.Run) bool {
			return o.ID != run.ID && o.State != jobs.Skipped && !o.Created.After(run.Ended) && (o.Ended.IsZero() || !o.Ended.Before(run.Ended))
		})
		if !busy {
			complain(run.Due, "it was skipped, and no other run was under way")
		}
	case run.State == jobs.Skipped && run.Cause == kernel.ByDisabled && len(ran) == 0: // between its due time and its start
		if !c.was(func(d *kernel.Definition) bool { return d.Policy.Disabled }, run.Due, run.Ended) {
			complain(run.Due, "it was skipped as disabled at %s, and the job was not", run.Ended.Format(time.TimeOnly))
		}
	case run.Cause == kernel.ByPause && len(ran) == 0: // alike; nothing releases what a resumed job holds
		if !c.was(func(d *kernel.Definition) bool { return d.Paused != nil }, run.Due, start.Add(late)) {
			complain(run.Due, "it is held, and the job was not paused")
		}
	case run.State == jobs.Scheduled && run.Cause == kernel.ByJitter && start.After(time.Now()):
	case len(ran) != 1 || run.Attempt != 1 || run.State != jobs.Succeeded && run.State != jobs.Processing:
		complain(run.Due, "it is %s by %q after %d attempts, and ran on %v", run.State, run.Cause, run.Attempt, ran)
	case run.Started.Before(start) || run.Started.Sub(start) > late:
		complain(run.Due, "it began at %s, and must have at %s", run.Started.Format(time.StampMilli), start.Format(time.StampMilli))
	case len(p.Needs) > 0 && ran[0] != "gpu":
		complain(run.Due, "it needs %v and ran on %s", p.Needs, ran[0])
	}
}

// Random schedules, calendars, jitter, early starts, limits, routes and needs; random edits, pauses and leaders: each
// due time has the one record that it must have, and each run begins when and where it must.
func TestSchedulesAgainstModel(t *testing.T) {
	fired, silent := 0, 0
	for seed := range uint64(tests.Size(3, 10, 500)) {
		synctest.Test(t, func(t *testing.T) {
			h := newFixture(t)
			defer h.close()
			h.calm()
			w := &world{fixture: h, rnd: rand.New(rand.NewPCG(seed, 77)), seed: seed, calendars: map[string][]closing{},
				ran: map[jobs.ID][]string{}, under: map[jobs.Key]int{}, peak: map[jobs.Key]int{}}
			time.Sleep(500 * time.Millisecond) // people act between seconds
			w.write("a")
			w.write("b")
			time.Sleep(time.Millisecond)
			var list []jobs.Job
			for i := range 8 {
				list = append(list, w.job(i))
			}
			h.worker(worker.Config{Name: "gpu", Slots: 100, Tags: []string{"gpu"}}, list...)
			h.worker(worker.Config{Name: "plain", Slots: 100}, list...)
			for i := range list {
				d, err := h.store.Definition(h.ctx, jobs.DefaultTenant, jobs.Key(fmt.Sprint("job-", i)))
				if err != nil {
					t.Fatal(err)
				}
				w.list = append(w.list, &citizen{key: d.Key, held: d, from: d.SetAt})
			}
			for range 30 {
				time.Sleep(time.Duration(w.rnd.IntN(300)) * time.Second)
				w.calm()
				w.act()
			}
			time.Sleep(10 * time.Minute)
			w.calm()
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			if n := h.logged.count("an attempt expired"); n > 0 {
				t.Errorf("world %d: %d attempts expired, and no worker was lost", seed, n)
			}
			for _, c := range w.list {
				f, s := w.judge(c)
				fired, silent = fired+f, silent+s
			}
		})
		if t.Failed() {
			return
		}
	}
	if fired < 50 || silent < 20 {
		t.Errorf("%d due times were fired and %d were not: the test tests little", fired, silent)
	}
}
