package sabotage

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/chaos/judge"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Four workers have so many slots each, and are asked for so much at once that no three of them can take it all.
const (
	slots = 12
	most  = 42
)

// story is four minutes of bad luck, each piece of which one of the mechanisms is there for.
func story(t *testing.T) (c *judge.Case) {
	synctest.Test(t, func(t *testing.T) {
		h, tearDown := newFixture(t)
		defer tearDown()
		h.c.Setup = judge.Setup{Name: "four minutes of bad luck", Store: "memory", Began: h.now(), Faults: 7, Stamps: judge.Rows}
		h.c.Specs = specs

		n1 := h.node("n1", 0)
		depose := h.lead(n1)
		all := []*hired{h.hire(slots), h.hire(slots), h.hire(slots), h.hire(slots)}
		ask := h.client()
		h.until(time.Second)
		for i := range specs {
			h.c.History = append(h.c.History, judge.Op{What: judge.Define, Key: specs[i].Key, Invoked: h.c.Setup.Began, Returned: h.now(), Outcome: judge.OK})
		}
		h.all.Go(func() { h.load() })

		// A worker dies at work.
		h.until(19 * time.Second)
		for range most {
			ask.ask("plain", task{Millis: 8000}, 0)
		}
		h.until(20 * time.Second)
		h.kill(all[0])
		h.hire(slots)

		// Another one is cut off. What it is at goes on, and comes to its end; by then others are at it.
		h.until(28 * time.Second)
		for range most {
			ask.ask("plain", task{Sleeper: 20_000, Millis: 20_000}, 0)
		}
		h.until(33 * time.Second) // a worker that has not answered a push gets the next one after its heartbeat
		healed := h.fault(judge.Fault{Kind: judge.Cut, Role: judge.Worker, Target: "w2", PID: all[1].number})
		close(all[1].bus.cut)
		h.until(60 * time.Second)
		close(all[1].bus.heal)
		healed()

		// No node leads for longer than MisfireAfter. Then a node with a clock ahead leads.
		h.until(72500 * time.Millisecond)
		restarted := h.fault(judge.Fault{Kind: judge.Kill, Role: judge.Control, Target: "n1"})
		depose()
		n1.stop()
		h.until(117500 * time.Millisecond)
		const ahead = 2 * time.Second
		wrong := h.fault(judge.Fault{Kind: judge.Clock, Role: judge.Control, Target: "n1", Step: ahead})
		n1 = h.node("n1", ahead)
		depose = h.lead(n1)
		restarted()
		h.until(130 * time.Second)
		h.read()

		// What is sent to a worker while it is cut off comes when it is there again, and the runs have gone to others.
		last := h.hire(slots)
		h.until(133 * time.Second)
		healed = h.fault(judge.Fault{Kind: judge.Cut, Role: judge.Worker, Target: fmt.Sprint("w", last.number), PID: last.number})
		close(last.bus.cut)
		n1.bus.calm.Store(true)
		for range most {
			ask.ask("plain", task{Millis: 100}, 0)
		}
		h.until(134 * time.Second)
		n1.bus.calm.Store(false)
		h.until(155 * time.Second)
		close(last.bus.heal)
		healed()
		h.until(160 * time.Second)

		// Its clock is set on, and it is cut off from all but the rows, so that it does not learn that another one
		// leads. That one's clock is a little behind.
		wrong()
		wrong = h.fault(judge.Fault{Kind: judge.Clock, Role: judge.Control, Target: "n1", Step: ahead + 40*time.Second})
		n1.ahead.Store(int64(ahead + 40*time.Second))
		n2 := h.node("n2", -time.Second)
		behind := h.fault(judge.Fault{Kind: judge.Clock, Role: judge.Control, Target: "n2", Step: -time.Second})
		h.until(177 * time.Second)
		healed = h.fault(judge.Fault{Kind: judge.Cut, Role: judge.Control, Target: "n1"})
		close(n1.bus.cut)
		h.until(178 * time.Second)
		h.lead(n2)
		h.until(187 * time.Second)
		depose()
		n1.stop()
		healed()
		wrong()
		n2.ahead.Store(0)
		behind()
		h.c.Setup.Healed = h.now()

		// A worker is about to leave while runs are on their way to it: it has some, and slots for more.
		h.until(194500 * time.Millisecond)
		n2.bus.calm.Store(true)
		for range most / 2 {
			ask.ask("plain", task{Millis: 1200}, 0)
		}
		h.until(195 * time.Second)
		last.bus.slow.Store(true)
		for range most {
			ask.ask("plain", task{Millis: 100}, 0)
		}
		h.until(195*time.Second + 100*time.Millisecond)
		last.leave()
		n2.bus.calm.Store(false)

		h.until(212*time.Second + 500*time.Millisecond)
		for i := range specs {
			if key := specs[i].Key; specs[i].Schedule != "" {
				h.person(judge.Op{What: judge.Pause, Key: key}, kernel.Pause{Key: jobs.Key(key)})
			}
		}
		h.until(290 * time.Second)
		h.read()
		c = &h.c
	})
	return c
}

// load sends requests of all kinds until a while after the last fault, from a client that waits for each response.
func (h *fixture) load() {
	dice := rand.New(rand.NewPCG(1, 2))
	ask := h.client()
	ask.n = 1 << 20 // its idempotency keys are its own
	for time.Since(h.begin) < 210*time.Second {
		time.Sleep(time.Duration(100+dice.IntN(100)) * time.Millisecond)
		key := "plain" // mostly: a push that is lost holds a slot for a while
		if n := dice.IntN(12); n < 3 {
			key = []string{"one", "left", "right"}[n]
		}
		a := task{Millis: 10 + dice.IntN(400), Fails: dice.IntN(10) == 0}
		in := time.Duration(0)
		if dice.IntN(6) == 0 {
			in = time.Duration(dice.IntN(5000)) * time.Millisecond
		}
		ask.ask(key, a, in)
	}
}

// report logs a verdict.
func report(t *testing.T, v *judge.Verdict) {
	t.Helper()
	v.Print(t.Output())
	fmt.Fprintln(t.Output())
}
