package controlplane_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// Complaints of users of other schedulers, each by its thread, and that they do not apply here. Those about overlap and
// retries are in the tests of these.

// stubborn is an elector that takes the lead again and again, even from another leader.
type stubborn struct {
	controlplane.Always
	every time.Duration
}

func (s stubborn) Lead(ctx context.Context, lead func(context.Context, uint64) error) error {
	for ctx.Err() == nil {
		turn, over := context.WithTimeout(ctx, s.every)
		_ = s.Always.Lead(turn, lead)
		<-turn.Done()
		over()
	}
	return ctx.Err()
}

// rival begins one more control plane over its store, which believes that it leads, by a clock of its own. The
// first one still believes it, too.
func (h *fixture) rival(name string, every, ahead time.Duration) {
	h.t.Helper()
	cp, err := controlplane.New(controlplane.Config{Node: name, Store: h.full, Elector: stubborn{controlplane.Always{Store: h.full}, every},
		Clock: &metastore.Clock{Wall: func() time.Time { return time.Now().Add(ahead) }},
		Bus:   h.hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: name})})
	if err != nil {
		h.t.Fatal(err)
	}
	h.spawn(cp.Run)
	synctest.Wait()
}

// calls counts how often handlers were called for each due time, outside of the system.
type calls struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *calls) job(o jobs.Options) jobs.Job {
	return jobs.NewRecurring(jobs.RecurringFunc(func(ctx context.Context) error {
		at := jobs.Attempt(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.n == nil {
			c.n = map[string]int{}
		}
		c.n[fmt.Sprint(at.Key, " ", at.Due.UTC().Format(time.RFC3339))]++
		return nil
	}), o)
}

// once checks that handlers were called for so many due times, and once for each.
func (c *calls) once(t *testing.T, due int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.n) != due {
		t.Errorf("handlers were called for %d due times, want %d", len(c.n), due)
	}
	for what, n := range c.n {
		if n != 1 {
			t.Errorf("%s: the handler was called %d times", what, n)
		}
	}
}

// After an election no job ran any more. Here a hundred leaders follow each other, some of them in the midst of a
// minute's work, and each due time has its run.
func TestDkron998(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var c calls
		first := time.Now().Add(10 * time.Second)
		h.worker(worker.Config{}, c.job(jobs.Options{Key: "tick", Cron: "*/10 * * * * *"}))
		rnd := rand.New(rand.NewPCG(998, 1))
		for range 100 {
			time.Sleep(time.Duration(rnd.IntN(20_000)) * time.Millisecond)
			h.stop()
			h.start()
		}
		time.Sleep(time.Minute)
		if runs, missed := h.covered("tick", first, time.Now(), 10*time.Second); missed != 0 {
			t.Errorf("%d runs, and %d due times were missed", runs, missed)
		} else {
			c.once(t, runs)
		}
		h.all("tick", len(h.runs("tick")), jobs.Succeeded)
	})
}

// When the leader was killed, what was due until there was another one did not run. Here the next one makes up for it.
func TestDkron1210(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var c calls
		first := time.Now().Add(time.Second)
		h.worker(worker.Config{}, c.job(jobs.Options{Key: "tick", Cron: "* * * * * *", MaxConcurrency: jobs.None}))
		for range 5 {
			time.Sleep(7*time.Second + 300*time.Millisecond)
			h.stop()
			time.Sleep(9 * time.Second) // no node leads
			h.start()
		}
		time.Sleep(5 * time.Second)
		if runs, missed := h.covered("tick", first, time.Now(), time.Second); missed != 0 {
			t.Errorf("%d runs, and %d due times were missed", runs, missed)
		} else {
			c.once(t, runs)
		}
	})
}

// Fifty-nine jobs that are due at midnight ran twice in one night: two nodes fired them. Here two nodes believe that
// they lead at midnight, and a clock is set back over it.
func TestDkron541(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		h.calm()
		h.stop()
		time.Sleep(23*time.Hour + 58*time.Minute)
		h.start()
		var c calls
		var list []jobs.Job
		for i := range 59 {
			list = append(list, c.job(jobs.Options{Key: jobs.Key(fmt.Sprint("night", i)), Cron: "@midnight"}))
		}
		h.worker(worker.Config{Slots: 100}, list...)
		h.rival("n2", 7*time.Second, 0)
		time.Sleep(2*time.Minute + 2*time.Second)
		h.ahead.Store(int64(-time.Minute)) // it strikes again
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		c.once(t, 59)
		for i := range 59 {
			h.fate(jobs.Key(fmt.Sprint("night", i)), "Succeeded")
		}
	})
}

// With two schedulers everything ran twice. Here three believe that they lead, take the lead from each other and fire
// due times; there is one run for each due time.
func TestAsynq653(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var c calls
		first := time.Now().Add(3 * time.Second)
		h.worker(worker.Config{Slots: 100}, c.job(jobs.Options{Key: "tick", Cron: "*/3 * * * * *", MaxConcurrency: jobs.None}))
		h.rival("n2", 1700*time.Millisecond, 0)
		h.rival("n3", 1300*time.Millisecond, 0)
		time.Sleep(2*time.Minute + 2500*time.Millisecond)
		synctest.Wait()
		if s, _ := h.full.State(h.ctx); s.Term < 20 {
			t.Errorf("only %d terms: they do not quarrel", s.Term)
		}
		runs, missed := h.covered("tick", first, time.Now(), 3*time.Second)
		if missed != 0 {
			t.Errorf("%d runs and %d due times missed", runs, missed)
		}
		c.once(t, runs)
	})
}

// A lock did not keep two schedulers whose clocks differ from running a job twice, and the next run was in the past.
// Here a run belongs to its due time, whichever node fires it and when.
func TestGocron841(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var c calls
		first := time.Now().Add(3 * time.Second)
		h.worker(worker.Config{Slots: 100}, c.job(jobs.Options{Key: "tick", Cron: "*/3 * * * * *", MaxConcurrency: jobs.None}))
		h.rival("n2", 1700*time.Millisecond, 400*time.Millisecond)
		h.rival("n3", 1300*time.Millisecond, -300*time.Millisecond)
		verbs := ops.New(ops.Config{Store: h.store})
		for range 63 {
			time.Sleep(970 * time.Millisecond)
			j, err := verbs.Job(h.ctx, ops.Who{}, "tick", 1)
			if err != nil || len(j.Next) != 1 || !j.Next[0].After(time.Now()) {
				t.Errorf("at %v it is due next at %v, %v", time.Now(), j.Next, err)
			}
		}
		time.Sleep(1300 * time.Millisecond) // another node has taken the lead since the last due time
		synctest.Wait()
		runs, missed := h.covered("tick", first, time.Now(), 3*time.Second)
		if missed != 0 {
			t.Errorf("%d runs and %d due times missed", runs, missed)
		}
		c.once(t, runs)
	})
}

// The next due time was written before the run was made: a restart lost five seconds of runs, and a store that was too
// slow a third of them. Here both are one commit, which either is there after a restart or is not.
func TestXXL3447(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		h.stop()
		h.full = slow{h.full}
		h.start()
		var c calls
		var list []jobs.Job
		for i := range 20 {
			list = append(list, c.job(jobs.Options{Key: jobs.Key(fmt.Sprint("tick", i)), Cron: "* * * * * *", MaxConcurrency: jobs.None}))
		}
		h.worker(worker.Config{Slots: 200}, list...)
		first := time.Now().Truncate(time.Second).Add(time.Second)
		rnd := rand.New(rand.NewPCG(3447, 1))
		for range 30 { // a restart in the midst of a second's commits
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + time.Duration(rnd.IntN(15))*time.Millisecond)))
			h.stop()
			h.start()
		}
		time.Sleep(3*time.Second + 500*time.Millisecond)
		synctest.Wait()
		last := time.Now()
		total := 0
		for i := range 20 {
			runs, missed := h.covered(jobs.Key(fmt.Sprint("tick", i)), first, last, time.Second)
			if total += runs; missed != 0 {
				t.Errorf("%d runs, and %d due times were missed", runs, missed)
			}
		}
		c.once(t, total)
	})
}

// An executor that came back within ten minutes left what it had run before "running" for ever, because its address was
// known again. Here a lease belongs to one start of a process, not to its name.
func TestXXL2841(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var j journal
		o := jobs.Options{MaxConcurrency: 1, Overlap: jobs.OverlapQueue}
		old := h.cabled(worker.Config{Name: "till", Slots: 4}, j.work("charge", 5*time.Minute, true, o))
		id, next := h.enqueue("charge"), h.enqueue("charge")
		time.Sleep(10 * time.Second)
		old.cut.Store(true) // its process is gone
		h.worker(worker.Config{Name: "till", Slots: 4}, j.work("charge", time.Minute, true, o))
		time.Sleep(40 * time.Second)
		if run := h.run(id); run.State != jobs.Processing || run.Attempt != 2 {
			t.Errorf("40 s after its worker was started anew, the run is %s, attempt %d", run.State, run.Attempt)
		}
		time.Sleep(5 * time.Minute)
		for _, id := range []jobs.ID{id, next} {
			if run := h.run(id); run.State != jobs.Succeeded {
				t.Errorf("run %s is %s", id, run.State)
			}
		}
		time.Sleep(2 * time.Minute) // the handler of before
	})
}

// A job that is due once in ten minutes never ran, because the process that kept its schedule was started anew more
// often than that. Here the store keeps it.
func TestRiver791(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		h.calm()
		var c calls
		first := time.Now().Add(10 * time.Minute)
		cron := c.job(jobs.Options{Key: "cron", Cron: "0 */10 * * * *"})
		every := c.job(jobs.Options{Key: "every", Every: 9 * time.Minute})
		begin := time.Now()
		for i := range 60 {
			// Programs differ in the jobs they have; what one registers is not taken away by another.
			stop := h.worker(worker.Config{Name: "w"}, []jobs.Job{cron, every}[i%2])
			other := h.worker(worker.Config{Name: "v"}, []jobs.Job{every, cron}[i%2])
			time.Sleep(73 * time.Second)
			stop()
			other()
			h.stop()
			time.Sleep(10 * time.Second)
			h.start()
		}
		h.worker(worker.Config{Name: "w"}, cron, every)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		a, missed := h.covered("cron", first, time.Now(), 10*time.Minute)
		b, gone := h.covered("every", begin.Add(9*time.Minute), time.Now(), 9*time.Minute)
		if missed+gone != 0 {
			t.Errorf("%d and %d due times were missed", missed, gone)
		}
		c.once(t, a+b)
	})
}
