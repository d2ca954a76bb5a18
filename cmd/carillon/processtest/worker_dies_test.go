//go:build unix

package processtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
)

// A worker is killed in the middle of a run: another begins it again.
func TestKilledWorker(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	h := newFixture(t, "")
	workers := h.hireTwo()
	over := filepath.Join(t.TempDir(), "over")
	run := h.enqueue(threeJob, task{Until: over})
	first := h.wrote(began, run.ID, 1)

	died := time.Now()
	workers[first.PID].kill()
	h.frozen[first.PID] = died
	second := h.wrote(began, run.ID, 2)
	t.Logf("the run was taken up %v after its worker had died", second.At.Sub(died))
	if second.PID == first.PID {
		t.Error("by the worker that had died")
	}
	create(t, over)
	r := h.wait(run.ID)
	if r.State != jobs.Succeeded || r.Attempt != 2 || r.Losses != 1 || r.Failures != 0 {
		t.Errorf("the run is %v in attempt %d, with %d losses and %d failures", r.State, r.Attempt, r.Losses, r.Failures)
	}
	y := h.history()
	y.asked = []asked{{at: run.Due, request: jobs.Request{ID: run.ID, Key: run.Key}, run: run.ID}}
	y.check(t)
}

// A worker freezes for longer than its lease, like a laptop, and continues. Its runs have moved to another worker. The
// context of its handler ends with ErrLeaseLost; the store refuses the result of a handler that ignores its context.
func TestFrozenWorker(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	h := newFixture(t, "")
	one := h.hire(workerSpec{Name: "one", Slots: 4})
	over := filepath.Join(t.TempDir(), "over")
	heeding := h.enqueue(plainJob, task{Until: over})
	awake := filepath.Join(t.TempDir(), "awake")
	late := h.enqueue(plainJob, task{First: awake, Until: over})
	h.wrote(began, heeding.ID, 1)
	h.wrote(began, late.ID, 1)
	holder := h.get(late.ID).Worker
	one.freeze(t)
	froze := time.Now()
	h.frozen[one.pid()] = froze
	two := h.hire(workerSpec{Name: "two", Slots: 4})
	for _, r := range []jobs.Receipt{heeding, late} {
		l := h.wrote(began, r.ID, 2)
		t.Logf("a run was taken up %v after its worker had frozen", l.At.Sub(froze))
		if l.PID != two.pid() {
			t.Errorf("attempt 2 is at process %d", l.PID)
		}
	}

	// The leader usually notifies a worker that wakes before it sends anything. The store does not rely on that.
	for _, command := range []kernel.Command{
		kernel.Finish{ID: late.ID, Worker: holder, Attempt: 1, Outcome: kernel.OutcomeSuccess, Result: []byte(`{"attempt":1}`)},
		kernel.Finish{ID: late.ID, Worker: holder, Attempt: 1, Outcome: kernel.OutcomeFatal, Error: "late"},
		kernel.Checkpoint{ID: late.ID, Worker: holder, Attempt: 1, Data: []byte(`{}`)},
		kernel.Returned{ID: late.ID, Worker: holder, Attempt: 1},
	} {
		if err := h.sendAs("one", command); !errors.Is(err, jobs.Stale) {
			t.Errorf("%v of attempt 1 is answered with %v", command.Verb(), err)
		}
	}
	if run := h.get(late.ID); run.State != jobs.Processing || run.Attempt != 2 || len(run.Result) > 0 {
		t.Errorf("after late commands, the run is %v in attempt %d with the result %s", run.State, run.Attempt, run.Result)
	}

	create(t, awake)
	woke := time.Now()
	one.thaw(t)
	last := h.wrote(ended, heeding.ID, 1)
	t.Logf("the context of the handler ended %v after its worker woke", last.At.Sub(woke))
	if last.Cause != jobs.ErrLeaseLost.Error() {
		t.Errorf("its context ended because %q", last.Cause)
	}
	// The other handler has returned a result, which the store must refuse.
	if l := h.wrote(ended, late.ID, 1); l.Cause != "" {
		t.Errorf("the late attempt ended with %q", l.Cause)
	}
	await(t, "the late result is refused", func() bool {
		return strings.Contains(one.out.String(), "run was taken from this worker") || strings.Contains(one.out.String(), "attempt is stopped")
	})
	if run := h.get(late.ID); run.State != jobs.Processing || run.Attempt != 2 || len(run.Result) > 0 {
		t.Errorf("after the late result, the run is %v in attempt %d with the result %s", run.State, run.Attempt, run.Result)
	}

	create(t, over)
	for _, r := range []jobs.Receipt{heeding, late} {
		if run := h.wait(r.ID); run.State != jobs.Succeeded || run.Attempt != 2 || !strings.HasPrefix(run.Worker, "two-") {
			t.Errorf("a run is %v in attempt %d, by %s", run.State, run.Attempt, run.Worker)
		}
	}
	// The worker that woke is as good as any other.
	two.kill()
	again := h.enqueue(plainJob, task{})
	if run := h.wait(again.ID); run.State != jobs.Succeeded {
		t.Errorf("a run after that is %v", run.State)
	}
	y := h.history()
	for _, r := range []jobs.Receipt{heeding, late, again} {
		y.asked = append(y.asked, asked{at: r.Due, request: jobs.Request{ID: r.ID, Key: r.Key}, run: r.ID})
	}
	y.check(t)
}

// sendAs sends a command to the store in the name of a worker.
func (h *fixture) sendAs(name string, command kernel.Command) error {
	h.t.Helper()
	as := bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: name}
	b, err := natsbus.Connect(h.t.Context(), "nats://"+h.nats, natsbus.Config{As: as})
	if err != nil {
		h.t.Fatal(err)
	}
	defer b.Close()
	return busstore.New(b, as).Apply(h.t.Context(), []kernel.Envelope{{ID: jobs.NewID(time.Now()), Command: command}})[0].Err
}

// hireTwo starts two workers, and returns them by process.
func (h *fixture) hireTwo() map[int]*process {
	h.t.Helper()
	workers := map[int]*process{}
	for _, name := range []string{"one", "two"} {
		w := h.hire(workerSpec{Name: name, Slots: 4})
		workers[w.pid()] = w
	}
	return workers
}

func (h *fixture) get(id jobs.ID) *kernel.Run {
	h.t.Helper()
	run, err := h.rows.Run(h.t.Context(), jobs.DefaultTenant, id)
	if err != nil {
		h.t.Fatal(err)
	}
	return run
}

// wait waits until a run is final.
func (h *fixture) wait(id jobs.ID) (run *kernel.Run) {
	h.t.Helper()
	await(h.t, "run "+id.String()+" is final", func() bool {
		run = h.get(id)
		return run.Settled()
	})
	return run
}

// create makes a file for which handlers wait.
func create(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}
