//go:build unix

package processtest

import (
	"net"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// natsServer is a NATS server of its own, as many have one already. It keeps its address when it is killed and
// started again.
type natsServer struct {
	t       *testing.T
	addr    string
	process *process
}

func newNATS(t *testing.T) *natsServer {
	t.Helper()
	n := &natsServer{t: t, addr: freeport.Address(t)}
	n.start()
	return n
}

func (n *natsServer) start() {
	n.t.Helper()
	path, err := natsProgram()
	if err != nil {
		n.t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(n.addr)
	if err != nil {
		n.t.Fatal(err)
	}
	n.process = start(n.t, "nats-server", path, nil, "-a", host, "-p", port)
	await(n.t, "nats-server is ready", func() bool {
		if n.process.over() {
			n.t.Fatalf("nats-server ended with %v:\n%s", n.process.err, n.process.out)
		}
		return n.process.out.has("Server is ready")
	})
}

// NATS is down for longer than a lease, with a hundred current runs. It only hints: no run is cancelled or begun
// again, and workers report runs that end meanwhile when it is back.
func TestOutageOfNATS(t *testing.T) {
	t.Parallel()
	tests.Long(t)
	outage := tests.Size(0, 17*time.Second, time.Minute) // a lease is 15 s
	n := newNATS(t)
	h := newFixture(t, n.addr)
	for _, name := range []string{"one", "two"} {
		h.hire(workerSpec{Name: name})
	}
	// Half of the runs end while workers cannot report, the others well after.
	tasks := make([]task, 100)
	for i := range tasks {
		tasks[i].Millis = int((outage / 2).Milliseconds())
		if i%2 == 1 {
			tasks[i].Millis = int((outage + 8*time.Second).Milliseconds())
		}
	}
	asking := time.Now()
	runs, err := plainJob.EnqueueAll(t.Context(), h.client, tasks)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "all runs have begun", func() bool { // and the first may have ended
		n := 0
		for _, l := range h.lines() {
			if l.What == began {
				n++
			}
		}
		return n == len(runs)
	})

	n.process.kill()
	time.Sleep(outage)
	n.start()
	back := time.Now()
	after := h.enqueue(plainJob, task{})
	begun := h.wrote(began, after.ID, 1)
	t.Logf("NATS was away for %v; a run began %v after it was back", outage, begun.At.Sub(back))
	h.quiet()

	y := h.history()
	y.once = true
	y.asked = []asked{{at: back, request: jobs.Request{ID: after.ID, Key: after.Key}, run: after.ID}}
	for _, r := range runs {
		y.asked = append(y.asked, asked{at: asking, request: jobs.Request{ID: r.ID, Key: r.Key}, run: r.ID})
	}
	y.check(t)
	for _, run := range y.runs {
		if run.State != jobs.Succeeded || run.Attempt != 1 {
			t.Errorf("run %s is %v in attempt %d", run.ID, run.State, run.Attempt)
		}
	}
}

// NATS is killed under load. It keeps nothing, and nothing depends on it: runs begin again, and every run comes to its
// end.
func TestKilledNATS(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	n := newNATS(t)
	h := newFixture(t, n.addr)
	for _, name := range []string{"one", "two"} {
		h.hire(workerSpec{Name: name, Slots: 64})
	}
	rate, kills := tests.Size(0, 50, 200), tests.Size(0, 1, 5)
	l := h.press(rate)
	for range kills {
		time.Sleep(2 * time.Second) // under load
		n.process.kill()
		time.Sleep(2 * time.Second) // no server runs
		n.start()
		back := time.Now()
		for range 10 { // one after the other
			at := time.Now()
			r := h.enqueue(plainJob, task{})
			l.add(asked{at: at, request: jobs.Request{ID: r.ID, Key: r.Key}, run: r.ID})
			begun := h.wrote(began, r.ID, 1)
			t.Logf("%v after NATS was back, a run began after %v", time.Since(back), begun.At.Sub(at))
		}
	}
	time.Sleep(time.Second) // under load
	l.stop()
	h.quiet()
	y := h.history()
	y.asked, y.once = l.results(), true
	y.check(t)
	y.count(t)
}
