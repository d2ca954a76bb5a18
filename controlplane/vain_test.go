package controlplane_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

// counting is a store that counts what is committed, and refuses the commands of one kind.
type counting struct {
	metastore.Full
	mu       sync.Mutex
	commands map[kernel.Verb]int
	refuse   kernel.Verb
	code     jobs.Code
}

func (s *counting) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	s.mu.Lock()
	refuse := false
	for i := range batch {
		s.commands[batch[i].Command.Verb()]++
		refuse = refuse || batch[i].Command.Verb() == s.refuse
	}
	code := s.code
	s.mu.Unlock()
	if refuse {
		all := make([]metastore.Result, len(batch))
		for i := range all {
			all[i].Err = kernel.Refuse(code, "refused, and for good")
		}
		return all
	}
	return s.Full.Apply(ctx, batch)
}

// set begins to count anew, and to refuse a kind of command.
func (s *counting) set(refuse kernel.Verb, code jobs.Code) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands, s.refuse, s.code = map[kernel.Verb]int{}, refuse, code
}

// total returns how many commands there were, of all kinds or of one.
func (s *counting) total(of ...kernel.Verb) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for verb, times := range s.commands {
		if len(of) == 0 || slices.Contains(of, verb) {
			n += times
		}
	}
	return n
}

func (h *fixture) counting() *counting {
	h.stop()
	s := &counting{Full: h.full, commands: map[kernel.Verb]int{}}
	h.full = s
	h.start()
	return s
}

// A job that is due after the end of its run has no due time while that run is not final. Whatever changes its schedule
// meanwhile, the server is idle until the run ends, and the next due time counts from then.
func TestAnEditWhileARunIsAwaitedLeavesTheServerIdle(t *testing.T) {
	edit := func(set kernel.Settings) func(*fixture) {
		return func(h *fixture) { h.must(kernel.Edit{Key: "after", Set: set}) }
	}
	changes := []struct {
		name  string
		do    func(*fixture)
		every time.Duration // after the change
	}{
		{"schedule", edit(kernel.Settings{Schedule: new("7s after end")}), 7 * time.Second},
		{"start", edit(kernel.Settings{Start: new(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))}), 5 * time.Second},
		{"end", edit(kernel.Settings{End: new(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))}), 5 * time.Second},
		{"ttl", edit(kernel.Settings{TTL: new(1000 * time.Hour)}), 5 * time.Second},
		{"calendars", edit(kernel.Settings{Calendars: &[]string{"none"}}), 5 * time.Second},
		{"zone", edit(kernel.Settings{Zone: new("Asia/Tokyo")}), 5 * time.Second},
		{"restart", func(h *fixture) { h.must(kernel.Edit{Key: "after", Restart: true}) }, 5 * time.Second},
		{"default zone", func(h *fixture) {
			h.must(kernel.Configure{Defaults: &kernel.Settings{Zone: new("Asia/Tokyo")}})
		}, 5 * time.Second},
		{"deploy", func(h *fixture) {
			d, _ := h.store.Definition(h.ctx, jobs.DefaultTenant, "after")
			code := d.Code
			code.Schedule = new("9s after end")
			h.must(kernel.Register{App: d.App, Worker: "w1", Start: true, Job: kernel.Declaration{Key: d.Key, Kind: d.Kind, Version: 2, Code: code}})
		}, 9 * time.Second},
		{"away and back", func(h *fixture) {
			edit(kernel.Settings{Schedule: new("@every 1s")})(h)
			edit(kernel.Settings{Schedule: new("6s after end")})(h)
		}, 6 * time.Second},
	}
	// Each situation keeps the first run from ending for two minutes after its due time.
	const until = 2 * time.Minute
	situations := []struct {
		name string
		o    jobs.Options
		run  func(ctx context.Context, attempt int) error
		late bool // the worker begins late
	}{
		{"works", jobs.Options{}, func(ctx context.Context, _ int) error { time.Sleep(until); return nil }, false},
		{"retries", jobs.Options{Retries: 1, RetryDelay: 2 * until, RetryJitter: jobs.JitterHalf}, func(_ context.Context, attempt int) error {
			if attempt == 1 {
				return errors.New("not yet")
			}
			return nil
		}, false},
		{"snoozes", jobs.Options{}, func(ctx context.Context, attempt int) error {
			if jobs.Attempt(ctx).Number == 1 {
				return jobs.Snooze(until)
			}
			return nil
		}, false},
		{"waits for a worker", jobs.Options{}, func(context.Context, int) error { return nil }, true},
	}
	for _, s := range situations {
		for _, c := range changes {
			t.Run(s.name+"/"+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newFixture(t)
					defer h.close()
					count := h.counting()
					o := s.o
					o.Key, o.Every, o.AfterEnd, o.Timeout = "after", 5*time.Second, true, time.Hour
					attempts := 0
					var first atomic.Bool // it has ended
					after := jobs.NewRecurring(jobs.RecurringFunc(func(ctx context.Context) error {
						if first.Load() {
							return nil
						}
						attempts++
						err := s.run(ctx, attempts)
						if err == nil {
							first.Store(true)
						}
						return err
					}), o)
					stop := h.worker(worker.Config{Slots: 1}, after)
					if s.late {
						stop()
					}
					time.Sleep(10 * time.Second) // its run is not final from now on
					c.do(h)
					time.Sleep(5 * time.Second)
					count.set(0, "")
					time.Sleep(time.Minute)
					if n := count.total(); n > 2 {
						t.Errorf("%d commands in a minute in which nothing happens", n)
					}
					if s.late {
						h.worker(worker.Config{Slots: 1}, after)
					}
					for !first.Load() {
						time.Sleep(time.Second)
					}
					time.Sleep(2*c.every + 2*time.Second)
					runs := h.runs("after")
					if len(runs) != 3 || !runs[1].Due.Equal(runs[2].Ended.Add(c.every)) {
						t.Errorf("%d runs", len(runs))
						for _, run := range runs {
							t.Errorf("a run due at %s ended at %s", run.Due, run.Ended)
						}
					}
					if edited := h.ledger("after"); len(edited) > 0 && c.name != "away and back" {
						t.Errorf("the ledger has due times that never were: %+v", *edited[0])
					}
				})
			})
		}
	}
}

// A command that is refused, and will be again, is repeated less and less often, and the log reports it. Once the
// refusal is gone, its duty continues.
func TestARefusalThatDoesNotGoAway(t *testing.T) {
	tick := jobs.Options{Key: "tick", Cron: "* * * * * *", MaxConcurrency: jobs.None}
	for _, c := range []struct {
		verb  kernel.Verb
		code  jobs.Code
		most  int    // commands in two minutes
		says  string // in the log
		begin func(*fixture)
	}{
		{kernel.VerbFire, jobs.Stale, 60, "the due times of a job cannot be decided", nil},
		{kernel.VerbFire, jobs.NotFound, 60, "the due times of a job cannot be decided", nil},
		{kernel.VerbFire, jobs.Conflict, 60, "the store is behind the clock of this node", nil},
		{kernel.VerbFire, jobs.Exhausted, 60, "due times could not be fired", nil},
	} {
		t.Run(c.verb.String()+"/"+string(c.code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newFixture(t)
				defer h.close()
				count := h.counting()
				var ran atomic.Int64
				h.worker(worker.Config{}, jobs.NewRecurring(jobs.RecurringFunc(func(context.Context) error { ran.Add(1); return nil }), tick))
				time.Sleep(3 * time.Second)
				if c.begin != nil {
					c.begin(h)
				}
				count.set(c.verb, c.code)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if n := count.total(c.verb); n > c.most || n < 3 {
					t.Errorf("refused %d times in two minutes, want some, and %d at most", n, c.most)
				}
				if h.logged.count(c.says) == 0 {
					t.Errorf("the log does not say %q", c.says)
				}
				count.set(0, "")
				before := ran.Load()
				if time.Sleep(15 * time.Second); ran.Load() < before+3 {
					t.Errorf("a quarter of a minute later, %d runs", ran.Load()-before)
				}
			})
		})
	}
}
