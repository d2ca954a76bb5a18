package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// standing is the bus of a process that stands still between its answer to a push and what follows.
type standing struct {
	bus.Bus
	still time.Duration
}

func (b standing) Accept(ctx context.Context, at bus.Address, fn func([]byte) ([]byte, func())) error {
	return b.Bus.Accept(ctx, at, func(push []byte) ([]byte, func()) {
		answer, then := fn(push)
		return answer, func() { time.Sleep(b.still); then() }
	})
}

// A worker that stands still after it has accepted a run begins it only if its lease has not expired meanwhile.
func TestALateWorkerBeginsNothing(t *testing.T) {
	for _, c := range []struct {
		still  time.Duration
		silent bool // no heartbeat renews the lease
		begins bool
	}{{lease - time.Second, true, true}, {lease + time.Second, true, false}, {lease + time.Second, false, true}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			s.wrap = func(b bus.Bus) bus.Bus { return standing{b, c.still} }
			ran := 0
			w, _ := s.start(worker.Config{}, handler(jobs.Options{}, func(context.Context, json.RawMessage) error { ran++; return nil }))
			s.set(func(s *stage) { s.silent = c.silent })
			run := s.started(w, "j")
			s.push(w, run)
			time.Sleep(c.still + time.Second)
			synctest.Wait()
			if began := ran == 1; began != c.begins {
				t.Errorf("it stood still for %v, without a heartbeat %v: it began %v", c.still, c.silent, began)
			}
		})
	}
}

// slowAnswers is a bus on which answers to pushes take a while to leave the worker's process.
type slowAnswers struct {
	bus.Bus
	time.Duration
}

func (b slowAnswers) Accept(ctx context.Context, at bus.Address, fn func([]byte) ([]byte, func())) error {
	return b.Bus.Accept(ctx, at, func(push []byte) ([]byte, func()) {
		answer, then := fn(push)
		if then == nil {
			return answer, nil
		}
		return answer, func() {
			time.Sleep(b.Duration)
			then()
		}
	})
}

// named are the attempts of runs as answers name them.
func named(runs ...*kernel.Run) (list []bus.Attempt) {
	for _, run := range runs {
		list = append(list, bus.Attempt{ID: run.ID, N: run.Attempt})
	}
	return list
}

func wantAnswer(t *testing.T, when string, got, want bus.PushAnswer) {
	t.Helper()
	if got.Late != want.Late || !slices.Equal(got.Refused, want.Refused) || !slices.Equal(got.Over, want.Over) {
		t.Errorf("%s the answer is %+v, want %+v", when, got, want)
	}
}

// Handlers begin when the answer to their push has left the process, all of them: a run that ends the process has begun
// as far as the leader knows. Meanwhile heartbeats name the attempts.
func TestAPushIsAnsweredBeforeHandlersBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.wrap = func(b bus.Bus) bus.Bus { return slowAnswers{b, 5 * time.Second} }
		g := newGate()
		w, _ := s.start(worker.Config{Slots: 64}, handler(jobs.Options{}, g.run))
		var runs []*kernel.Run
		for range 64 {
			runs = append(runs, s.started(w, "j"))
		}
		wantAnswer(t, "at first", s.push(w, runs...), bus.PushAnswer{})
		time.Sleep(5*time.Second - 1)
		if n := g.inside(); n != 0 {
			t.Errorf("%d handlers began before the answer left", n)
		}
		if st, b := w.Stats(), s.lastHeartbeat(); st.Begun != 64 || st.Free != 0 || len(b.Running) != 64 {
			t.Errorf("stats are %+v, and a heartbeat names %d attempts", st, len(b.Running))
		}
		time.Sleep(time.Nanosecond)
		if n := g.inside(); n != 64 {
			t.Errorf("%d handlers began after the answer left", n)
		}
		close(g.open)
		s.wantState(runs[63].ID, jobs.Succeeded, "")
	})
}

// An attempt begins once, however often it is pushed: while its handler runs, while the end has no answer, and for two
// leases after that.
func TestAPushThatIsRepeatedBeginsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{}, handler(jobs.Options{}, g.run))
		run := s.started(w, "j")
		wantAnswer(t, "twice in one push", s.push(w, run, run), bus.PushAnswer{})
		time.Sleep(time.Minute)
		wantAnswer(t, "while it runs", s.push(w, run), bus.PushAnswer{})
		s.intercept(unavailable(kernel.VerbFinish))
		g.open <- nil
		synctest.Wait()
		wantAnswer(t, "while its end has no answer", s.push(w, run), bus.PushAnswer{})
		s.intercept(nil)
		s.wantStateAfter(5*time.Second, run.ID, jobs.Succeeded, "")
		for ended := time.Now(); time.Since(ended) < 2*lease-5*time.Second; time.Sleep(3 * time.Second) {
			wantAnswer(t, "after its end", s.push(w, run), bus.PushAnswer{Over: named(run)})
		}
		if st := w.Stats(); g.inside() != 1 || st.Begun != 1 {
			t.Errorf("the handler was called %d times, stats are %+v", g.inside(), st)
		}
	})
}

// What a worker refuses it never begins, whatever becomes of the reason; other attempts of the same run may begin.
func TestAWorkerRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		slots int
		key   jobs.Key
		make  func(s *stage, g *gate, w *worker.Worker)
		end   func(s *stage, g *gate, w *worker.Worker)
	}{
		{"it is full", 2, "j",
			func(s *stage, _ *gate, w *worker.Worker) { s.push(w, s.started(w, "j"), s.started(w, "j")) },
			func(_ *stage, g *gate, _ *worker.Worker) { g.open <- nil; g.open <- nil }},
		{"strays fill it", 1, "j",
			func(s *stage, g *gate, w *worker.Worker) {
				run := s.started(w, "j")
				s.push(w, run)
				g.inside()
				s.stop(w, bus.Stop{ID: run.ID, Attempt: 1, Stale: true})
			},
			func(_ *stage, g *gate, _ *worker.Worker) { g.open <- nil }},
		{"it is asked to rest", 0, "j",
			func(s *stage, _ *gate, w *worker.Worker) { s.stop(w, bus.Stop{Rest: bus.RestDrain}) },
			func(s *stage, _ *gate, w *worker.Worker) { s.stop(w, bus.Stop{Rest: bus.RestResume}) }},
		{"it does not have the job", 0, "other", func(*stage, *gate, *worker.Worker) {}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				g := newGate()
				s.start(worker.Config{Name: "another"}, handler(jobs.Options{Key: "other"}, g.run)) // so that the job exists
				w, _ := s.start(worker.Config{Slots: c.slots}, handler(jobs.Options{}, g.run))
				s.set(func(s *stage) { s.quiet = true })
				c.make(s, g, w)
				before := g.inside()
				run := s.started(w, c.key)
				refused := bus.PushAnswer{Refused: named(run)}
				wantAnswer(t, "at first", s.push(w, run), refused)
				if st := w.Stats(); st.Refused != 1 || st.Begun != uint64(before) {
					t.Errorf("stats are %+v", st)
				}
				if c.end == nil {
					return
				}
				c.end(s, g, w)
				synctest.Wait()
				for at := time.Now(); time.Since(at) < 2*lease-5*time.Second; time.Sleep(3 * time.Second) {
					wantAnswer(t, "when the reason is gone", s.push(w, run), refused)
				}
				if n := g.inside(); n != before {
					t.Errorf("%d handlers were called, want %d", n, before)
				}
				s.do(kernel.Unstart{ID: run.ID, Attempt: run.Attempt})
				wantAnswer(t, "for the next attempt", s.push(w, s.startOn(w, run.ID)), bus.PushAnswer{})
				if n := g.inside(); n != before+1 {
					t.Errorf("the next attempt does not begin")
				}
				close(g.open)
				s.wantState(run.ID, jobs.Succeeded, "")
			})
		})
	}
}

// Of a push that does not fit, the first runs begin, and the answer names the others.
func TestAPushOfMoreThanTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{Slots: 2}, handler(jobs.Options{}, g.run))
		var runs []*kernel.Run
		for range 5 {
			runs = append(runs, s.started(w, "j"))
		}
		wantAnswer(t, "for five runs", s.push(w, runs...), bus.PushAnswer{Refused: named(runs[2:]...)})
		if st := w.Stats(); g.inside() != 2 || st.Free != 0 || st.Running != 2 || st.Begun != 2 || st.Refused != 3 {
			t.Errorf("stats are %+v, %d handlers were called", st, g.inside())
		}
		g.open <- nil
		synctest.Wait()
		next := s.started(w, "j")
		wantAnswer(t, "for one more", s.push(w, next), bus.PushAnswer{})
		if st := w.Stats(); g.inside() != 3 || st.Free != 0 || st.Begun != 3 {
			t.Errorf("stats are %+v, %d handlers were called", st, g.inside())
		}
		close(g.open)
		s.wantState(next.ID, jobs.Succeeded, "")
	})
}

// A worker with many slots fills them all, though no handler returns.
func TestManySlotsAreFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots = 2500
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{Slots: slots}, handler(jobs.Options{}, g.run))
		for range slots + 100 {
			s.create("j", struct{}{})
		}
		if n := g.inside(); n != slots {
			t.Errorf("%d handlers run in %d slots", n, slots)
		}
		close(g.open)
		synctest.Wait()
		if st := w.Stats(); st.Finished["success"] != slots+100 || st.Refused != 0 || st.Free != slots {
			t.Errorf("stats are %+v", st)
		}
	})
}

// A push is accepted until two thirds of a lease after the heartbeat that it follows, and only if that was sent by this
// process. Later its attempts may have expired; of those that are not accepted nothing is known, and they may be pushed
// again.
func TestLatePushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{}, handler(jobs.Options{}, g.run))
		run, next := s.started(w, "j"), s.started(w, "j")
		head, sent := s.head(w.Name()), time.Now()
		other := head
		other.Process++
		for _, c := range []struct {
			what  string
			after time.Duration // the heartbeat
			head  bus.Push
			run   *kernel.Run
			late  bool
		}{
			{"of another process", 0, other, run, true},
			{"at the last moment", lease * 2 / 3, head, run, false},
			{"a moment later", lease*2/3 + 1, head, next, true},
			{"a moment later, of a run that was accepted", lease*2/3 + 1, head, run, true},
			{"of another process again", lease, other, next, true},
			{"much later", time.Hour, head, next, true},
		} {
			time.Sleep(time.Until(sent.Add(c.after)))
			a, err := s.pushTo(w.Name(), c.head, c.run)
			s.must(err)
			wantAnswer(t, c.what, a, bus.PushAnswer{Late: c.late})
		}
		if st := w.Stats(); g.inside() != 1 || st.Begun != 1 || st.Refused != 0 {
			t.Errorf("stats are %+v, %d handlers were called", st, g.inside())
		}
		wantAnswer(t, "after another heartbeat", s.push(w, next), bus.PushAnswer{})
		close(g.open)
		s.wantState(next.ID, jobs.Succeeded, "")
	})
}

// A push that is damaged anywhere changes nothing, and is not answered with a verdict.
func TestDamagedPushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		var log bytes.Buffer
		w, _ := s.start(worker.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, handler(jobs.Options{}, g.run))
		runs := []*kernel.Run{s.started(w, "j"), s.started(w, "j")}
		head := s.head(w.Name())
		head.Runs = runs
		parcels, _ := head.Pack(s.node.Limit())
		whole := parcels[0].Bytes
		head.Runs = runs[:1]
		parcels, _ = head.Pack(s.node.Limit())
		first := len(parcels[0].Bytes) // a cut there makes a push of one run
		head.Runs = nil
		damaged := [][]byte{nil, []byte("{}"), append(slices.Clone(whole), 1), append([]byte{99}, whole[1:]...)}
		for n := 1; n < len(whole); n++ {
			if n != first {
				damaged = append(damaged, whole[:n])
			}
		}
		for _, b := range damaged {
			a, err := s.send(w.Name(), b)
			s.must(err)
			if st := w.Stats(); st.Begun+st.Refused+uint64(st.Running) > 0 || len(a.Refused)+len(a.Over) > 0 {
				t.Fatalf("%d of %d bytes: %+v, stats are %+v", len(b), len(whole), a, st)
			}
		}
		if !strings.Contains(log.String(), "invalid push") {
			t.Errorf("the log has %q", log.String())
		}
		a, err := s.send(w.Name(), whole)
		s.must(err)
		if wantAnswer(t, "undamaged", a, bus.PushAnswer{}); g.inside() != 2 {
			t.Errorf("%d handlers were called", g.inside())
		}
		close(g.open)
	})
}

// The next attempt of a run is pushed while the handler of the one before still runs here: the worker had lost it
// without a message. It is refused, and so not run beside it.
func TestTheNextAttemptWaitsForTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		g := newGate()
		w, _ := s.start(worker.Config{}, handler(jobs.Options{}, g.run))
		run := s.started(w, "j")
		s.push(w, run)
		s.do(kernel.Expire{ID: run.ID, Attempt: 1, Cause: kernel.ByLoss})
		next := s.startOn(w, run.ID)
		wantAnswer(t, "beside the first attempt", s.push(w, next), bus.PushAnswer{Refused: named(next)})
		if n := g.inside(); n != 1 {
			t.Errorf("%d handlers of one run", n)
		}
		s.do(kernel.Unstart{ID: run.ID, Attempt: next.Attempt})
		g.open <- nil
		synctest.Wait()
		wantAnswer(t, "after the first attempt", s.push(w, s.startOn(w, run.ID)), bus.PushAnswer{})
		if n := g.inside(); n != 2 {
			t.Error("the next attempt does not begin after the handler has returned")
		}
		g.open <- nil
		s.wantState(run.ID, jobs.Succeeded, "")
	})
}

// A run that is stopped between its acceptance and its beginning never begins. Its slot is free, and its lease is not
// waited for.
func TestStoppedBeforeItBegins(t *testing.T) {
	for _, stale := range []bool{false, true} {
		t.Run(fmt.Sprint("stale ", stale), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				s.wrap = func(b bus.Bus) bus.Bus { return slowAnswers{b, time.Second} }
				g := newGate()
				w, _ := s.start(worker.Config{Slots: 1}, handler(jobs.Options{}, g.run))
				run := s.started(w, "j")
				s.push(w, run)
				s.do(kernel.Cancel{ID: run.ID})
				s.stop(w, bus.Stop{ID: run.ID, Attempt: 1, Stale: stale})
				if row := s.wantStateAfter(time.Second, run.ID, jobs.Cancelled, kernel.ByPerson); row.Lingering != stale {
					t.Errorf("lingering %v", row.Lingering)
				}
				if st := w.Stats(); g.inside() > 0 || st.Free != 1 || st.Running != 0 || st.Stopped != 1 {
					t.Errorf("stats are %+v, %d handlers were called", st, g.inside())
				}
				wantAnswer(t, "pushed again", s.push(w, run), bus.PushAnswer{Over: named(run)})
			})
		})
	}
}

// Pushes of a leader whose answers get lost, beside runs that end, fail and are stopped, leave every slot free.
func TestNoSlotIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		var n atomic.Int64
		w, _ := s.start(worker.Config{Slots: 8}, handler(jobs.Options{Timeout: 4 * time.Second}, func(ctx context.Context, _ json.RawMessage) error {
			switch n.Add(1) % 5 {
			case 0:
				time.Sleep(12 * time.Second) // ignores its timeout
			case 1:
				return errors.New("no luck")
			case 2:
				<-ctx.Done()
				return ctx.Err()
			case 3:
				panic("worse")
			}
			return nil
		}))
		s.set(func(s *stage) { s.quiet = true })
		for i := range 400 {
			run := s.started(w, "j")
			s.push(w, run)
			if i%7 == 0 {
				s.apply([]kernel.Envelope{s.envelope(kernel.Cancel{ID: run.ID})}) // it may have ended
				s.stop(w, bus.Stop{ID: run.ID, Attempt: 1, Stale: i%2 == 0})
			}
			s.push(w, run)
			time.Sleep(250 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if st := w.Stats(); st.Free != 8 || st.Running != 0 || st.Begun < 200 || st.Refused < 50 {
			t.Errorf("stats are %+v", st)
		}
		if b := s.lastHeartbeat(); len(b.Running) != 0 || b.Strays != 0 {
			t.Errorf("the heartbeat is %+v", b)
		}
	})
}
