package controlplane_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// stream enqueues so many runs, one after the other, in close succession. Nothing is left under way then.
func (h *fixture) stream(r *recorder, n int) (applied string, ids []jobs.ID) {
	r.take()
	for range n {
		ids = append(ids, h.enqueue("job"))
		time.Sleep(600 * time.Microsecond)
	}
	synctest.Wait()
	applied = r.take()
	time.Sleep(10 * time.Second)
	synctest.Wait()
	return applied, ids
}

// While commits follow each other closely, the end of a run travels with the next one, and is at most four milliseconds
// late.
func TestEndsTravel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, r, j := recorded(t, 0, 100*time.Microsecond, jobs.Options{})
		defer h.close()
		applied, ids := h.stream(r, 20)
		if n := strings.Count(applied, "create start finish"); n < 14 || strings.Contains(applied, "finish finish") {
			t.Errorf("%d ends have travelled: %s", n, applied)
		}
		if j.starts() != 21 {
			t.Errorf("%d have begun", j.starts())
		}
		for i, id := range ids {
			run := h.run(id)
			if took := run.Ended.Sub(run.Started); run.State != jobs.Succeeded || took < 100*time.Microsecond || took > 4100*time.Microsecond {
				t.Errorf("run %d: %s, ended %v after its start", i, run.State, took)
			}
		}
		if last := h.run(ids[19]); last.Ended.Sub(last.Started) < 600*time.Microsecond {
			t.Error("the last end has not waited: the test shows nothing")
		}
		// Where each run is requested after the last one's end, few ends wait: no commit comes meanwhile.
		var waited int
		for range 200 {
			id := h.enqueue("job")
			for !h.run(id).Settled() {
				time.Sleep(100 * time.Microsecond)
			}
			if run := h.run(id); run.Ended.Sub(run.Started) > 100*time.Microsecond {
				waited++
			}
		}
		if waited > 10 {
			t.Errorf("%d ends of 200 have waited in vain", waited)
		}
		// One alone does not wait.
		id := h.enqueue("job")
		time.Sleep(10 * time.Millisecond)
		if run := h.run(id); run.Ended.Sub(run.Started) != 100*time.Microsecond {
			t.Errorf("one run alone: its end came %v after its start", run.Ended.Sub(run.Started))
		}
	})
}

// An end for which something waits does not.
func TestEndsThatDoNotTravel(t *testing.T) {
	for name, c := range map[string]struct {
		slots   int
		takes   time.Duration
		options jobs.Options
	}{
		"runs wait for the slot":      {1, 2 * time.Millisecond, jobs.Options{}},
		"its job has a limit":         {0, 100 * time.Microsecond, jobs.Options{MaxConcurrency: 2}},
		"another job follows its own": {0, 100 * time.Microsecond, jobs.Options{OnSuccess: []string{"next"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, r, _ := recorded(t, c.slots, c.takes, c.options)
				defer h.close()
				var next journal
				h.worker(worker.Config{Name: "w2"}, next.work("next", 0, true, jobs.Options{}))
				h.stream(r, 10)
				_, ids := h.stream(r, 20)
				for i, id := range ids[:19] { // nothing waits for the last one's slot
					if run := h.run(id); run.State != jobs.Succeeded || run.Ended.Sub(run.Started) != c.takes {
						t.Errorf("run %d: %s, ended %v after its start", i, run.State, run.Ended.Sub(run.Started))
					}
				}
			})
		})
	}
}

// What a commit carries is not lost with it: it goes by itself.
func TestEndsTravelWithACommitThatFails(t *testing.T) {
	for name, applied := range map[string]bool{"not applied": false, "applied, and the answer lost": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, r, j := recorded(t, 0, 100*time.Microsecond, jobs.Options{})
				defer h.close()
				carried := 0
				r.lost = func(batch []kernel.Envelope) (before, after bool) {
					if len(batch) < 2 || batch[len(batch)-1].Command.Verb() != kernel.VerbFinish {
						return false, false
					}
					carried++
					return !applied, applied
				}
				for range 20 {
					request, err := jobs.Trigger[charge]("job").Request(charge{"c7"})
					if err != nil {
						t.Fatal(err)
					}
					h.apply(kernel.CreateOf(request))
					time.Sleep(600 * time.Microsecond)
				}
				time.Sleep(time.Minute)
				if carried < 5 {
					t.Fatalf("%d commits have carried ends", carried)
				}
				list := h.runs("job")
				for _, run := range list {
					if run.State != jobs.Succeeded || run.Attempt != 1 {
						t.Errorf("run %s is %s in attempt %d", run.ID, run.State, run.Attempt)
					}
				}
				if j.starts() != len(list) {
					t.Errorf("%d have begun, of %d", j.starts(), len(list))
				}
			})
		})
	}
}

// A caller who does not wait any longer is not held up by what it waits for.
func TestTravellerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, r, _ := recorded(t, 0, time.Hour, jobs.Options{})
		defer h.close()
		id := h.enqueue("job")
		synctest.Wait()
		for range 4 {
			time.Sleep(100 * time.Microsecond)
			h.must(kernel.Resume{Key: "job"})
		}
		run := h.run(id)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Microsecond)
		defer cancel()
		began := time.Now()
		result := h.store.Apply(ctx, []kernel.Envelope{{ID: jobs.NewID(began), Tenant: jobs.DefaultTenant, Actor: "worker:w1",
			Command: kernel.Finish{ID: id, Worker: run.Worker, Attempt: 1, Outcome: kernel.OutcomeSuccess}}})[0]
		if took := time.Since(began); jobs.CodeOf(result.Err) != jobs.Unknown || took > 200*time.Microsecond {
			t.Errorf("after %v: %v; applied %s", took, result.Err, r.take())
		}
	})
}
