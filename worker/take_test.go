package worker_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

// A full worker takes nothing: offers without a slot stay where other workers find them.
func TestAFullWorkerTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{Slots: 2}, handler(jobs.Options{}, g.run))
		var ids []jobs.ID
		for range 5 {
			ids = append(ids, s.create("j", struct{}{}))
		}
		if n := g.inside(); n != 2 {
			t.Fatalf("%d handlers run in 2 slots", n)
		}
		if back := s.cameBack(); len(back) > 0 {
			t.Errorf("%d offers were taken and given back", len(back))
		}
		left, _, err := s.node.Take(t.Context(), s.queue, bus.Lane{Tenant: jobs.DefaultTenant, App: "default"}, 10)
		if err != nil || len(left) != 3 {
			t.Errorf("%d offers are left, want 3", len(left))
		}
		s.offer(left[0])
		g.open <- nil // a slot is free
		if n := g.inside(); n != 3 {
			t.Errorf("%d handlers were called, want 3", n)
		}
		if st := w.Stats(); st.Free != 0 || st.Running != 2 || st.Claimed != 3 {
			t.Errorf("stats are %+v", st)
		}
		close(g.open)
		s.wantState(ids[0], jobs.Succeeded, "")
	})
}

// A worker with more slots than it may claim at once fills them all, though no handler returns.
func TestManySlotsAreFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 2500
		s := newStage(t)
		g := newGate()
		s.start(worker.Config{Slots: slots}, handler(jobs.Options{}, g.run))
		s.intercept(func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result {
			if batch[0].Command.Verb() == kernel.VerbClaim {
				time.Sleep(time.Second) // so that as many as may be are under way together
			}
			return apply()
		})
		for range slots {
			s.create("j", struct{}{})
		}
		time.Sleep(5 * time.Second)
		if n := g.inside(); n != slots {
			t.Errorf("%d handlers run in %d slots", n, slots)
		}
		close(g.open)
	})
}

// Of a list that does not fit, the rest goes back at once; and so do offers of jobs that the worker does not have.
func TestWhatDoesNotFitGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{Slots: 2}, handler(jobs.Options{}, g.run))
		s.set(func(s *stage) { s.quiet = true })
		var list []bus.Offer
		for range 5 {
			list = append(list, offerOf(s.row(s.create("j", struct{}{}))))
		}
		s.offer(list...)
		if n, back := g.inside(), s.cameBack(); n != 2 || !slices.Equal(back, list[2:]) {
			t.Errorf("%d handlers run, %d offers came back, want 2 and 3", n, len(back))
		}
		s.offerTo(w, list[4])
		if n := len(s.cameBack()); n != 4 {
			t.Errorf("%d offers came back, want the personal one too", n)
		}
		if n := len(sent[kernel.Claim](s)); n != 2 {
			t.Errorf("%d claims were sent, want 2", n)
		}
		close(g.open)
		synctest.Wait()
		s.offerTo(w, bus.Offer{ID: jobs.NewID(time.Now()), Attempt: 1, Key: "unknown"})
		if back := s.cameBack(); len(back) != 5 || back[4].Key != "unknown" || w.Stats().Returned != 5 {
			t.Errorf("%v came back, want the offer of a job that is not ours too", back)
		}
	})
}

func TestAListIsClaimedInOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		var sizes []int
		s.start(worker.Config{}, handler(jobs.Options{}, func(context.Context, json.RawMessage) error { return nil }))
		s.intercept(func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result {
			if batch[0].Command.Verb() == kernel.VerbClaim {
				sizes = append(sizes, len(batch))
			}
			return apply()
		})
		s.set(func(s *stage) { s.quiet = true })
		var list []bus.Offer
		for range 64 {
			list = append(list, offerOf(s.row(s.create("j", struct{}{}))))
		}
		s.offer(list...)
		synctest.Wait()
		if !slices.Equal(sizes, []int{64}) {
			t.Errorf("claims went in batches of %v", sizes)
		}
		s.wantState(list[63].ID, jobs.Succeeded, "")
	})
}

// The same offer again, on either lane, while the claim is under way, the handler runs, or its report has no answer:
// the handler is called once.
func TestAnOfferThatComesAgainIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{}, handler(jobs.Options{}, g.run))
		s.set(func(s *stage) { s.quiet = true })
		id := s.create("j", struct{}{})
		o := offerOf(s.row(id))
		s.intercept(func(_ []kernel.Envelope, apply func() []metastore.Result) []metastore.Result {
			time.Sleep(time.Second)
			return apply()
		})
		s.offer(o, o)
		s.offerTo(w, o) // while the claim is under way
		time.Sleep(2 * time.Second)
		s.offerTo(w, o) // while it runs
		s.intercept(unavailable(kernel.VerbFinish))
		g.open <- nil
		synctest.Wait()
		s.offerTo(w, o) // while its report has no answer
		time.Sleep(5 * time.Second)
		s.intercept(nil)
		s.wantStateAfter(5*time.Second, id, jobs.Succeeded, "")
		s.offerTo(w, o) // when all has ended
		if n := g.inside(); n != 1 {
			t.Errorf("the handler was called %d times", n)
		}
		if back := s.cameBack(); len(back) > 0 {
			t.Errorf("%v were given back: they would only come again", back)
		}
	})
}

// The next attempt of a run is offered while the handler of the one before still runs here: it was taken from us
// unnoticed. It is not begun beside it.
func TestTheNextAttemptWaitsForTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{}, handler(jobs.Options{}, g.run))
		id := s.create("j", struct{}{})
		g.inside()
		s.do(kernel.Expire{ID: id, Attempt: 1, Cause: kernel.ByLoss}) // and it is offered again
		if n := g.inside(); n != 1 {
			t.Errorf("%d handlers of one run", n)
		}
		s.offerTo(w, offerOf(s.row(id)))
		if n := g.inside(); n != 1 {
			t.Errorf("%d handlers of one run", n)
		}
		g.open <- nil
		synctest.Wait()
		s.offerTo(w, offerOf(s.row(id)))
		if n := g.inside(); n != 2 {
			t.Error("the next attempt does not begin after the handler has returned")
		}
		g.open <- nil
		s.wantState(id, jobs.Succeeded, "")
	})
}

// A run is cancelled after its claim was done and before the answer came: its slots do not wait for a lease to expire.
func TestCancelledWhileItIsClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{}, handler(jobs.Options{}, g.run))
		s.set(func(s *stage) { s.quiet = true })
		id := s.create("j", struct{}{})
		o := offerOf(s.row(id))
		first := true
		s.intercept(func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result {
			results := apply()
			if batch[0].Command.Verb() == kernel.VerbClaim && first {
				first = false
				s.do(kernel.Cancel{ID: id})
				s.stop(w, bus.Stop{ID: id, Attempt: 1})
				time.Sleep(time.Second)
				return metastore.Refused(batch, kernel.Refuse(jobs.Unknown, "no answer"))
			}
			return results
		})
		s.offer(o)
		if run := s.wantStateAfter(3*time.Second, id, jobs.Cancelled, kernel.ByPerson); run.Lingering || g.inside() > 0 {
			t.Errorf("lingering %v after %d calls of the handler", run.Lingering, g.inside())
		}
	})
}

// The store has done the claim, and its answer was lost: the run is ours, and no other worker will run it.
func TestAClaimWhoseAnswerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		s.start(worker.Config{}, handler(jobs.Options{Timeout: time.Minute}, g.run))
		lost := 0
		s.intercept(func(batch []kernel.Envelope, apply func() []metastore.Result) []metastore.Result {
			results := apply()
			if batch[0].Command.Verb() == kernel.VerbClaim && lost < 3 {
				lost++
				return metastore.Refused(batch, kernel.Refuse(jobs.Unknown, "no answer"))
			}
			return results
		})
		began := time.Now()
		id := s.create("j", struct{}{})
		time.Sleep(2 * time.Second)
		s.wantState(id, jobs.Processing, "")
		if n := g.inside(); n != 1 || lost != 3 {
			t.Fatalf("%d handlers run after %d lost answers", n, lost)
		}
		if due, _ := g.entered[0].Deadline(); due.Sub(began) != time.Minute {
			t.Errorf("the deadline is %v after the first claim, want 1m", due.Sub(began))
		}
		g.open <- nil
		s.wantState(id, jobs.Succeeded, "")
	})
}

// A claim without an answer is given up after a while, and its slot is free again.
func TestAClaimThatIsNeverAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{Slots: 1}, handler(jobs.Options{}, g.run))
		tries := 0
		s.intercept(func(batch []kernel.Envelope, _ func() []metastore.Result) []metastore.Result {
			tries++
			return metastore.Refused(batch, kernel.Refuse(jobs.Unknown, "no answer"))
		})
		s.create("j", struct{}{})
		time.Sleep(29 * time.Second)
		if w.Stats().Free != 0 {
			t.Error("given up too early: the run may be ours")
		}
		time.Sleep(5 * time.Second)
		if st := w.Stats(); st.Free != 1 || g.inside() != 0 {
			t.Errorf("stats are %+v, want the slot free", st)
		}
		if tries > 40 {
			t.Errorf("%d tries in 30 s", tries)
		}
	})
}

// A run that another worker has, that is gone, or that could not be claimed is forgotten, and its slot is free.
func TestClaimsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{Slots: 3}, handler(jobs.Options{}, g.run))
		s.set(func(s *stage) { s.quiet = true })
		taken := s.create("j", struct{}{})
		gone := bus.Offer{ID: jobs.NewID(time.Now()), Attempt: 1, Key: "j"}
		late := s.create("j", struct{}{}, func(c *jobs.Request) { c.StartWithin = new(time.Second) })
		offers := []bus.Offer{offerOf(s.row(taken)), gone, offerOf(s.row(late))}
		s.do(kernel.Claim{ID: taken, Worker: "other-1", Attempt: 1})
		time.Sleep(2 * time.Second)
		s.offer(offers...)
		s.wantState(late, jobs.Skipped, kernel.ByDeadline)
		if st := w.Stats(); st.Free != 3 || st.Claimed != 0 || g.inside() != 0 {
			t.Errorf("stats are %+v, want nothing held", st)
		}
		tries := 0
		s.intercept(func(batch []kernel.Envelope, _ func() []metastore.Result) []metastore.Result {
			tries++
			return metastore.Refused(batch, kernel.Refuse(jobs.Unavailable, "no leader"))
		})
		s.offer(offerOf(s.row(s.create("j", struct{}{}))))
		synctest.Wait()
		if st := w.Stats(); st.Free != 3 || tries != 1 {
			t.Errorf("stats are %+v after %d tries: what was not done is offered again by the leader", st, tries)
		}
	})
}

// A leader's new term brings another queue, and the worker follows.
func TestTheQueueMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		s.start(worker.Config{}, handler(jobs.Options{}, g.run))
		queue, err := s.node.Open(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		s.set(func(s *stage) { s.queue = queue })
		s.create("j", struct{}{})
		time.Sleep(4 * time.Second)
		if g.inside() != 1 {
			t.Error("the offer in the new queue was not taken")
		}
		s.set(func(s *stage) { s.queue = "" })
		time.Sleep(4 * time.Second)
		s.set(func(s *stage) { s.queue = queue })
		time.Sleep(4 * time.Second)
		s.create("j", struct{}{})
		if g.inside() != 2 {
			t.Error("the offer was not taken after there had been no queue")
		}
		close(g.open)
	})
}
