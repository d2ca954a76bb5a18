//go:build unix

package processtest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// storm is everything that can die, dying.
type storm struct {
	t       *testing.T
	fixture *fixture
	nats    *natsServer
	dice    *rand.Rand
	workers []*process
	hired   int
}

// Everything dies at random, one thing after the other and sometimes two at once, under load. What was acknowledged
// runs to its end all the same; attempts do not overlap, and limits hold, but for handlers that were frozen.
func TestStorm(t *testing.T) {
	t.Parallel()
	tests.Long(t)
	lasts, rate := tests.Size(0, 5*time.Second, 4*time.Minute), tests.Size(0, 50, 100)
	n := newNATS(t)
	s := &storm{t: t, fixture: newFixture(t, n.addr), nats: n, dice: tests.Random(t)}
	h := s.fixture
	for range 3 {
		s.hire()
	}
	h.known(s.workers[0])
	h.do(http.MethodPatch, "/api/v1/settings", `{"misfireAfter":"1s"}`)
	l := h.press(rate)
	for begin := time.Now(); time.Since(begin) < lasts; {
		time.Sleep(time.Duration(s.dice.IntN(1500)) * time.Millisecond) // it all goes well
		s.strike()
	}
	l.stop()
	h.quiet()
	h.pause(tickAllJob, tickOneJob)
	h.quiet()
	y := h.history(tickAllJob, tickOneJob)
	y.asked = l.results()
	y.check(t)
	y.count(t)
	again := 0
	for _, run := range y.runs {
		if run.Attempt > 1 {
			again++
		}
	}
	t.Logf("%d runs were taken over; %d requests had no response in half a minute", again, y.unknown())
}

// hire starts a worker and does not wait for it.
func (s *storm) hire() {
	s.hired++
	s.workers = append(s.workers, s.fixture.send(workerSpec{Name: fmt.Sprintf("w%d", s.hired), Slots: 16, Ticks: true}))
}

// strike kills a process, and starts it again.
func (s *storm) strike() {
	pause := func() { time.Sleep(time.Duration(s.dice.IntN(1500)) * time.Millisecond) }
	switch s.dice.IntN(6) {
	case 0, 1:
		s.fell(s.dice.IntN(len(s.workers)), false)
	case 2:
		s.fell(s.dice.IntN(len(s.workers)), true)
	case 3:
		s.fixture.server.kill()
		pause()
		s.fixture.serve()
	case 4:
		s.nats.process.kill()
		pause()
		s.nats.start()
	case 5: // a power cut: both, and a worker
		s.fixture.server.kill()
		s.nats.process.kill()
		s.workers[0].kill()
		s.fixture.frozen[s.workers[0].pid()] = time.Now()
		s.workers = s.workers[1:]
		pause()
		s.nats.start()
		s.fixture.serve()
		s.hire()
	}
}

// fell kills a worker, or freezes it for some time. Another takes its place; one that wakes up works on.
func (s *storm) fell(i int, freeze bool) {
	w := s.workers[i]
	s.workers = append(s.workers[:i:i], s.workers[i+1:]...)
	s.hire()
	if !freeze {
		w.kill()
		s.fixture.frozen[w.pid()] = time.Now()
		return
	}
	s.fixture.frozen[w.pid()] = time.Now()
	w.freeze(s.t)
	sleeps := time.Duration(s.dice.IntN(20)) * time.Second
	time.AfterFunc(sleeps, func() { _ = w.cmd.Process.Signal(syscall.SIGCONT) })
}
