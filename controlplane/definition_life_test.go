package controlplane_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// A job fires after its start only, and until its end; without an end it never ends. Both can be edited, and what they
// leave out is no due time: it is in no ledger.
func TestS4_12CronStartAndEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		h.calm()
		var n, m atomic.Int64
		from := time.Now()
		const step = 5 * time.Minute
		steps := func(list ...float64) []float64 {
			for i := range list {
				list[i] *= step.Seconds()
			}
			return list
		}
		h.worker(worker.Config{},
			job("shop", jobs.Options{Cron: "0 */5 * * * *", Start: from.Add(2*step + step/2), End: from.Add(5 * step)}, &n),
			job("ever", jobs.Options{Cron: "0 */10 * * * *", Start: from.Add(4 * step)}, &m))
		verbs := ops.New(ops.Config{Store: h.store})
		time.Sleep(7*step + time.Minute)
		synctest.Wait()
		if got, want := h.dues("shop", from), steps(3, 4, 5); !slices.Equal(got, want) { // an end is the last time that may be due
			t.Errorf("due at %v, want %v", got, want)
		}
		if got, want := h.dues("ever", from), steps(4, 6); !slices.Equal(got, want) {
			t.Errorf("without an end: due at %v, want %v", got, want)
		}
		if j, err := verbs.Job(h.ctx, ops.Who{}, "shop", 1); err != nil || !j.Finished {
			t.Errorf("after its end it is finished: %v, %v", j.Finished, err)
		}
		ann := ops.Who{Actor: "person:ann", Role: ops.Admin}
		if _, err := verbs.Edit(h.ctx, ann, kernel.Edit{Key: "shop", Set: kernel.Settings{End: new(from.Add(9*step + step/2))}}); err != nil {
			t.Fatal(err)
		}
		if _, err := verbs.Edit(h.ctx, ann, kernel.Edit{Key: "ever", Set: kernel.Settings{Start: new(from.Add(9 * step))}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * step)
		synctest.Wait()
		if got, want := h.dues("shop", from), steps(3, 4, 5, 8, 9); !slices.Equal(got, want) {
			t.Errorf("with a later end: due at %v, want %v", got, want)
		}
		if got, want := h.dues("ever", from), steps(4, 6, 10, 12); !slices.Equal(got, want) {
			t.Errorf("with a later start: due at %v, want %v", got, want)
		}
		if n.Load() != 5 || m.Load() != 4 || len(h.ledger("shop"))+len(h.ledger("ever")) != 0 {
			t.Errorf("handlers were called %d and %d times; the ledger has %d and %d ranges", n.Load(), m.Load(), len(h.ledger("shop")), len(h.ledger("ever")))
		}
	})
}

// An edit ends what the old schedule would have fired from then on: no delayed run of it is left, nor any part of its
// broadcasts; and stopping a job does the same.
func TestS0_19AnEditEndsWhatWasPlanned(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		h.calm()
		var n atomic.Int64
		from := time.Now()
		h.worker(worker.Config{}, job("tick", jobs.Options{Cron: "0 */10 * * * *"}, &n))
		verbs := ops.New(ops.Config{Store: h.store})
		ann := ops.Who{Actor: "person:ann", Role: ops.Admin}
		time.Sleep(19*time.Minute + 59*time.Second)
		if _, err := verbs.Edit(h.ctx, ann, kernel.Edit{Key: "tick", Set: kernel.Settings{Schedule: new("0 5 * * * *")}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // 01:19:59
		if _, err := verbs.Edit(h.ctx, ann, kernel.Edit{Key: "tick", Set: kernel.Settings{Disabled: new(true)}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got, want := h.dues("tick", from), []float64{600, 3900}; !slices.Equal(got, want) || int(n.Load()) != len(want) {
			t.Errorf("due at %v, %d runs, want %v", got, n.Load(), want)
		}
		h.all("tick", 2, jobs.Succeeded)
		if ranges := h.ledger("tick"); len(ranges) != 1 || ranges[0].Reason != kernel.MissedDisabled || ranges[0].Count != 2 {
			t.Errorf("the ledger is %+v, want two due times while it was disabled", ranges)
		}
	})
}

// A worker registers all of its jobs when it starts, and again when a new leader asks; one that was deleted meanwhile
// does not come back by that.
func TestS0_10WorkersBringAllTheirJobs(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var n atomic.Int64
		var list []jobs.Job
		for _, key := range []jobs.Key{"a", "b", "c", "d"} {
			list = append(list, job(key, jobs.Options{Cron: "0 * * * * *"}, &n))
		}
		h.worker(worker.Config{}, list...)
		time.Sleep(time.Minute + time.Second)
		if n.Load() != 4 {
			t.Errorf("%d runs in the first minute", n.Load())
		}
		h.must(kernel.Delete{Key: "b"})
		h.stop()
		h.start()
		time.Sleep(time.Minute)
		if w := h.cp.Workers("*"); len(w) != 1 || len(w[0].Keys) != 4 {
			t.Errorf("another leader knows of the workers %+v", w)
		}
		if n.Load() != 7 {
			t.Errorf("%d runs, want three more", n.Load())
		}
		if _, err := h.store.Definition(h.ctx, jobs.DefaultTenant, "b"); jobs.CodeOf(err) != jobs.NotFound {
			t.Errorf("the deleted job: %v", err)
		}
	})
}

// A job is one job by its key: registered again, by another process and with other code, it keeps what a person edited,
// its past and its place in time.
func TestS0_13RegisteringAgainOverwritesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var n atomic.Int64
		first := time.Now().Add(time.Minute)
		stop := h.worker(worker.Config{Name: "v1"}, job("tick", jobs.Options{Cron: "0 * * * * *", Retries: 1, Version: 1}, &n))
		before, err := h.store.Definition(h.ctx, jobs.DefaultTenant, "tick")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ops.New(ops.Config{Store: h.store}).Edit(h.ctx, ops.Who{Actor: "person:ann", Role: ops.Admin}, kernel.Edit{Key: "tick", Set: kernel.Settings{Timeout: new(7 * time.Minute)}}); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			time.Sleep(2*time.Minute + 10*time.Second)
			stop()
			stop = h.worker(worker.Config{Name: "v2"}, job("tick", jobs.Options{Cron: "0 * * * * *", Retries: 5, Timeout: time.Second, Version: 2 + i%2}, &n))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		d, err := h.store.Definition(h.ctx, jobs.DefaultTenant, "tick")
		if err != nil || d.UID != before.UID || d.Policy.Timeout != 7*time.Minute || d.Policy.Retries != 5 {
			t.Errorf("it is %s with timeout %v and %d retries, want %s, 7m and those of the new code; %v", d.UID, d.Policy.Timeout, d.Policy.Retries, before.UID, err)
		}
		if runs, missed := h.covered("tick", first, time.Now(), time.Minute); missed != 0 || int(n.Load()) != runs {
			t.Errorf("%d runs, %d handlers, %d missed", runs, n.Load(), missed)
		}
	})
}

// A worker that falls silent is found within its lease, and its runs go to another; heartbeats of a live worker keep a
// run for any time.
func TestS0_08ASilentWorkerIsFound(t *testing.T) { silent(t) }

// TestS3_03HeartbeatsDecide is the same promise, as another seed has it.
func TestS3_03HeartbeatsDecide(t *testing.T) { silent(t) }

func silent(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		var j journal
		o := jobs.Options{Timeout: jobs.None}
		alive := j.work("long", 15*time.Minute, true, o)
		quiet := h.cabled(worker.Config{Name: "quiet", Slots: 1}, alive)
		h.worker(worker.Config{Name: "other", Slots: 1}, alive)
		ids := []jobs.ID{h.enqueue("long"), h.enqueue("long")}
		time.Sleep(10 * time.Minute) // forty leases
		lost := -1
		for i, id := range ids {
			run := h.run(id)
			if run.State != jobs.Processing || run.Attempt != 1 {
				t.Errorf("after ten minutes run %d is %s, attempt %d", i, run.State, run.Attempt)
			}
			if run.Worker[:5] == "quiet" {
				lost = i
			}
		}
		quiet.cut.Store(true)
		time.Sleep(20 * time.Second)
		for i, id := range ids {
			run := h.run(id)
			if gone := run.State == jobs.Failed && run.Cause == kernel.ByLoss; gone != (i == lost) {
				t.Errorf("20 s after a worker fell silent run %d is %s by %q", i, run.State, run.Cause)
			}
		}
		if w := h.cp.Workers("*"); len(w) != 1 || w[0].Name[:5] != "other" {
			t.Errorf("workers are %+v", w)
		}
		time.Sleep(40 * time.Minute)
		h.all("long", 2, jobs.Succeeded)
	})
}

// A request for a run may have arguments of its own: those of the job are for the others.
func TestS3_18ArgumentsOfOneRun(t *testing.T) {
	inBubble(t, func(t *testing.T, h *fixture, _ *whoRan) {
		got := make(chan string, 10)
		work := jobs.TriggeredFunc[charge](func(_ context.Context, a charge) error { got <- a.Customer; return nil })
		h.worker(worker.Config{}, jobs.NewTriggered(work, jobs.Options{Key: "charge"}))
		verbs := ops.New(ops.Config{Store: h.store})
		ann := ops.Who{Actor: "person:ann", Role: ops.Admin}
		if _, err := verbs.Edit(h.ctx, ann, kernel.Edit{Key: "charge", Set: kernel.Settings{Args: new(json.RawMessage(`{"Customer":"job"}`))}}); err != nil {
			t.Fatal(err)
		}
		ask := func(args string) *kernel.Run {
			t.Helper()
			in, err := verbs.Trigger(h.ctx, ann, kernel.Create{Key: "charge", Origin: kernel.FromPerson, Args: []byte(args)})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			return in.Run
		}
		own := ask(`{"Customer":"run"}`)
		ask("")
		if _, err := verbs.Again(h.ctx, ann, own.ID, []byte(`{"Customer":"again"}`), ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		c := client.New(h.store, h.hub.As(clientOf), client.Config{Actor: "client:test"})
		defer c.Close()
		if _, err := jobs.Trigger[charge]("charge").Enqueue(h.ctx, c, charge{"code"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for _, want := range []string{"run", "job", "again", "code"} {
			if a := <-got; a != want {
				t.Errorf("a run has %q, want %q", a, want)
			}
		}
		h.all("charge", 4, jobs.Succeeded)
	})
}
