package worker_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

// rows is the store as a node has it.
type rows struct {
	metastore.Store
	*stage
}

func (r rows) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	return r.stage.Apply(ctx, batch)
}

func (r rows) Run(ctx context.Context, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	if err := r.unread.Load(); err != nil {
		return nil, *err
	}
	return r.Store.Run(ctx, tenant, id)
}

// remote acts for the HTTP worker "h", with the same start each time. stop ends its node.
func (s *stage) remote(cfg worker.Config, o jobs.Options) (r *worker.Remote, stop func()) {
	s.t.Helper()
	cfg.Name, cfg.Grace = "h", -1
	d, err := kernel.Declare(handler(o, nil))
	s.must(err)
	if r, err = worker.NewRemote(cfg, "s1", worker.About{}, rows{s.store, s}, s.end("h"), d); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	s.must(r.Begun(s.t.Context()))
	stop = sync.OnceFunc(func() {
		cancel()
		s.must(<-ended)
	})
	s.t.Cleanup(stop)
	return r, stop
}

// listed is a remote whose HTTP worker has nothing yet, and has asked for want runs.
func (s *stage) listed(cfg worker.Config, o jobs.Options, want int) (*worker.Remote, *poll) {
	s.t.Helper()
	r, _ := s.remote(cfg, o)
	r.Listed()
	p := s.poll(r, want, "", time.Minute)
	synctest.Wait()
	return r, p
}

// poll is a request of an HTTP worker for runs.
type poll struct {
	done  chan struct{}
	batch string
	list  []worker.Given
	err   error
}

func (s *stage) poll(r *worker.Remote, want int, got string, wait time.Duration) *poll {
	p := &poll{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.batch, p.list, p.err = r.Poll(context.Background(), want, got, wait)
	}()
	return p
}

// given are the runs that the poll was answered with.
func (p *poll) given() (list []jobs.ID) {
	<-p.done
	for _, g := range p.list {
		list = append(list, g.ID)
	}
	return list
}

func wantGiven(t *testing.T, when string, p *poll, want ...*kernel.Run) {
	t.Helper()
	var ids []jobs.ID
	for _, run := range want {
		ids = append(ids, run.ID)
	}
	byID := func(a, b jobs.ID) int { return bytes.Compare(a[:], b[:]) }
	slices.SortFunc(ids, byID)
	if got := slices.SortedFunc(slices.Values(p.given()), byID); !slices.Equal(got, ids) || p.err != nil {
		t.Errorf("%s: %d runs (%v), want %d: %v, %v", when, len(got), p.err, len(ids), got, ids)
	}
}

// succeed reports a run's success.
func (s *stage) succeed(r *worker.Remote, run *kernel.Run) {
	s.t.Helper()
	row, err := r.Finish(context.Background(), kernel.Finish{ID: run.ID, Attempt: run.Attempt, Outcome: kernel.OutcomeSuccess})
	if err != nil || row.State != jobs.Succeeded {
		s.t.Errorf("run %s is finished as %+v, %v", run.ID, row, err)
	}
}

// What has begun and ended has begun: whether it has ended is another question, with another answer for its requests.
func TestBegunAndEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		r, _ := s.remote(worker.Config{Slots: 4}, jobs.Options{})
		s.must(r.Leave(t.Context()))
		<-r.Ended()
		for range 50 {
			if err := r.Begun(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Before an HTTP worker has listed its attempts, which may be any, the leader does not learn of it, and no push reaches
// it.
func TestAnHTTPWorkerListsItsAttemptsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		r, _ := s.remote(worker.Config{Slots: 4}, jobs.Options{})
		first := s.poll(r, 4, "", 10*time.Second)
		run := s.started(r, "j")
		s.seats[r.Name()] = &seat{app: worker.DefaultApp}
		if _, err := s.pushTo(r.Name(), s.head(r.Name()), run); !errors.Is(err, bus.ErrNoReceiver) {
			t.Errorf("a push before the list: %v", err)
		}
		wantGiven(t, "before the list", first)
		if n := len(s.heartbeats); n != 0 {
			t.Errorf("%d heartbeats were sent before the list", n)
		}
		r.Listed()
		synctest.Wait()
		if b := s.lastHeartbeat(); b.Info == nil || b.Slots != 4 {
			t.Errorf("the heartbeat after the list is %+v", b)
		}
		wantAnswer(t, "after the list", s.push(r, run), bus.PushAnswer{})
		wantGiven(t, "after the list", s.poll(r, 4, first.batch, 10*time.Second), run)
		s.succeed(r, run)
	})
}

// The leader learns at once that an HTTP worker asks for more, and it can have as many runs as its last poll asked for,
// with those that it has; never more than its slots.
func TestTheSlotsOfAnHTTPWorkerFollowItsPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		began := time.Now()
		r, _ := s.remote(worker.Config{Slots: 6}, jobs.Options{})
		r.Listed()
		synctest.Wait()
		if b := s.lastHeartbeat(); !b.Away {
			t.Errorf("the heartbeat before a poll is %+v", b)
		}
		early := []*kernel.Run{s.started(r, "j"), s.started(r, "j")}
		wantAnswer(t, "before a poll", s.push(r, early...), bus.PushAnswer{Refused: named(early[1])})
		synctest.Wait()
		s.must(r.Has(t.Context(), early[0].ID, early[0].Attempt))
		s.succeed(r, early[0])
		time.Sleep(time.Second)
		wantSlots := func(n int) {
			t.Helper()
			synctest.Wait()
			if b := s.lastHeartbeat(); b.Slots != n || b.Away || time.Duration(b.Sent) != time.Since(began)+1 {
				t.Errorf("the heartbeat is %+v, want one of this moment with %d slots", b, n)
			}
		}
		first := s.poll(r, 2, "", time.Minute)
		wantSlots(2)
		runs := []*kernel.Run{s.started(r, "j"), s.started(r, "j"), s.started(r, "j")}
		s.push(r, runs[0])
		wantGiven(t, "the first poll", first, runs[0])
		wantAnswer(t, "for two more", s.push(r, runs[1:]...), bus.PushAnswer{Refused: named(runs[2])})
		time.Sleep(time.Second)
		second := s.poll(r, 1, first.batch, time.Minute)
		wantGiven(t, "the second poll", second, runs[1])
		third := s.poll(r, 3, second.batch, time.Minute)
		wantSlots(5)
		time.Sleep(time.Second)
		s.poll(r, 9, second.batch, time.Minute)
		wantGiven(t, "a poll that was replaced", third)
		wantSlots(6)
		var more []*kernel.Run
		for range 5 {
			more = append(more, s.started(r, "j"))
		}
		wantAnswer(t, "for five more", s.push(r, more...), bus.PushAnswer{Refused: named(more[4])})
	})
}

// A poll that asks for less comes after a heartbeat that had room for more: what was sent for that is accepted.
func TestAPollThatAsksForLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		r, first := s.listed(worker.Config{Slots: 4}, jobs.Options{}, 3)
		runs := []*kernel.Run{s.started(r, "j"), s.started(r, "j"), s.started(r, "j")}
		s.push(r, runs[0])
		wantGiven(t, "the first poll", first, runs[0])
		s.succeed(r, runs[0])
		s.poll(r, 1, first.batch, time.Minute)
		synctest.Wait()
		wantAnswer(t, "on their way", s.push(r, runs[1:]...), bus.PushAnswer{})
	})
}

// Runs that come while no poll is open wait for the next one. Each is given once, or again until a poll confirms it.
func TestRunsWaitForTheNextPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		r, first := s.listed(worker.Config{}, jobs.Options{}, 3)
		runs := []*kernel.Run{s.started(r, "j"), s.started(r, "j"), s.started(r, "j")}
		s.push(r, runs[0])
		wantGiven(t, "the first poll", first, runs[0])
		time.Sleep(2 * time.Second)
		s.push(r, runs[1], runs[2])
		time.Sleep(2 * time.Second)
		second := s.poll(r, 2, first.batch, time.Minute)
		wantGiven(t, "the second poll", second, runs[1:]...)
		time.Sleep(2 * time.Second)
		wantGiven(t, "a poll that has not received the second answer", s.poll(r, 2, first.batch, time.Minute), runs[1:]...)
		wantGiven(t, "a poll that has", s.poll(r, 0, second.batch, time.Second))
		time.Sleep(10 * time.Second)
		for _, run := range runs {
			s.succeed(r, run)
		}
	})
}

// A run that no poll asks for goes back after five seconds. The leader sends no others, however long the HTTP worker
// sends other requests, until it polls again.
func TestUnaskedRunsGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		r, first := s.listed(worker.Config{}, jobs.Options{}, 2)
		run := s.started(r, "j")
		s.push(r, run)
		wantGiven(t, "the first poll", first, run)
		time.Sleep(2 * time.Second)
		unasked := s.started(r, "j")
		s.push(r, unasked)
		time.Sleep(3 * time.Second)
		r.Touch()
		s.wantStateAfter(2*time.Second-1, unasked.ID, jobs.Processing, "")
		if b := s.lastHeartbeat(); len(b.Running) != 2 || !b.Away {
			t.Errorf("the heartbeat before it goes back is %+v", b)
		}
		if row := s.wantStateAfter(1, unasked.ID, jobs.Failed, kernel.ByHandback); row.Lingering {
			t.Error("its slot waits for a handler")
		}
		s.set(func(s *stage) { s.quiet = false; s.lead() })
		for range 30 {
			time.Sleep(time.Second)
			s.must(r.Progress(t.Context(), run.ID, run.Attempt, bus.Progress{}))
		}
		if b, n := s.lastHeartbeat(), s.row(unasked.ID).Attempt; !b.Away || n > 2 {
			t.Errorf("the heartbeat is %+v after %d attempts", b, n)
		}
		wantGiven(t, "the next poll", s.poll(r, 1, first.batch, time.Minute), unasked)
		s.succeed(r, s.row(unasked.ID))
		s.succeed(r, run)
	})
}

// An HTTP worker whose requests stop gets no pushes and sends no heartbeats: another node may act for it. When requests
// come again, it does.
func TestASilentHTTPWorkerGetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		r, _ := s.remote(worker.Config{}, jobs.Options{})
		r.Listed()
		wantGiven(t, "the poll", s.poll(r, 2, "", time.Second))
		run := s.started(r, "j")
		time.Sleep(15 * time.Second)
		last := s.lastHeartbeat()
		if _, err := s.pushTo(r.Name(), s.head(r.Name()), run); !errors.Is(err, bus.ErrNoReceiver) {
			t.Errorf("a push while it is silent: %v", err)
		}
		p := s.poll(r, 2, "", time.Minute)
		synctest.Wait()
		if b := s.lastHeartbeat(); b.Sent <= last.Sent || b.Away || b.Slots != 2 {
			t.Errorf("the heartbeat at the next poll is %+v", b)
		}
		wantAnswer(t, "after the next poll", s.push(r, run), bus.PushAnswer{})
		wantGiven(t, "the next poll", p, run)
		s.succeed(r, run)
	})
}

// An HTTP worker that goes to another node with a run has it there, and is not given it again: neither by a push to the
// node before, nor by one that follows, nor by one that comes before it has listed its runs.
func TestAnHTTPWorkerGoesToAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		one, stop := s.remote(worker.Config{Slots: 2}, jobs.Options{Timeout: time.Minute})
		one.Listed()
		p := s.poll(one, 2, "", time.Minute)
		synctest.Wait()
		run := s.started(one, "j")
		wantAnswer(t, "at the first node", s.push(one, run), bus.PushAnswer{})
		wantGiven(t, "at the first node", p, run)
		before := s.head(one.Name())
		time.Sleep(2 * time.Second)
		stop()
		time.Sleep(3 * time.Second)

		other, _ := s.remote(worker.Config{Slots: 2}, jobs.Options{Timeout: time.Minute})
		if _, err := s.pushTo(other.Name(), before, run); !errors.Is(err, bus.ErrNoReceiver) {
			t.Errorf("a push before the list: %v", err)
		}
		s.must(other.Has(t.Context(), run.ID, run.Attempt))
		other.Listed()
		p = s.poll(other, 1, "", 20*time.Second)
		synctest.Wait()
		if b := s.lastHeartbeat(); b.Process == before.Process || b.Slots != 2 || len(b.Running) != 1 || b.Running[0].ID != run.ID {
			t.Errorf("the heartbeat from there is %+v", b)
		}
		late, err := s.pushTo(other.Name(), before, run)
		s.must(err)
		wantAnswer(t, "to the node before", late, bus.PushAnswer{Late: true})
		wantAnswer(t, "to the node", s.push(other, run), bus.PushAnswer{})
		wantGiven(t, "there", p)
		p = s.poll(other, 1, "", 20*time.Second)
		synctest.Wait()
		next := s.started(other, "j")
		wantAnswer(t, "of another run", s.push(other, next), bus.PushAnswer{})
		wantGiven(t, "there, at last", p, next)
		s.succeed(other, run)
		s.succeed(other, next)
		wantAnswer(t, "after its end", s.push(other, run), bus.PushAnswer{Over: named(run)})
	})
}

// An HTTP worker comes back to a node with a run that waits for it there, because it has received it at another node, or
// that was in a response which no poll has confirmed. It is not given either again.
func TestAnHTTPWorkerComesBackWithARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		r, p := s.listed(worker.Config{}, jobs.Options{}, 2)
		first, run := s.started(r, "j"), s.started(r, "j")
		s.push(r, first)
		wantGiven(t, "the first poll", p, first)
		s.push(r, run)
		synctest.Wait()
		s.must(r.Has(t.Context(), run.ID, run.Attempt))
		s.must(r.Has(t.Context(), first.ID, first.Attempt))
		p = s.poll(r, 1, "", 8*time.Second)
		wantGiven(t, "the next poll", p)
		s.wantState(run.ID, jobs.Processing, "")
		s.succeed(r, run)
		s.succeed(r, first)
	})
}

// An HTTP worker that has ended a run at another node is not given it again by the node before, whose response was not
// confirmed there. If the store cannot be asked, nothing is given.
func TestAnHTTPWorkerComesBackWithoutARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		one, p := s.listed(worker.Config{}, jobs.Options{}, 2)
		<-p.done
		run, open := s.started(one, "j"), s.started(one, "j")
		s.push(one, run, open)
		synctest.Wait()
		wantGiven(t, "the second poll", s.poll(one, 2, "", time.Minute), run, open)

		other, _ := s.remote(worker.Config{}, jobs.Options{})
		s.must(other.Has(t.Context(), run.ID, run.Attempt))
		other.Listed()
		s.succeed(other, run)

		s.unread.Store(new(kernel.Refuse(jobs.Unavailable, "no leader")))
		if p := s.poll(one, 2, "other", time.Second); len(p.given()) > 0 || jobs.CodeOf(p.err) != jobs.Unavailable {
			t.Errorf("without an answer of the store: %v, %v", p.list, p.err)
		}
		s.unread.Store(nil)
		wantGiven(t, "the first node again", s.poll(one, 2, "other", time.Second), open)
	})
}

// A run of which the lease may have expired is given to no poll, whatever is known of it here. It is once a heartbeat has
// renewed the lease.
func TestAnHTTPWorkerIsGivenNothingThatItMayHaveLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		r, p := s.listed(worker.Config{}, jobs.Options{}, 1)
		run := s.started(r, "j")
		s.push(r, run)
		wantGiven(t, "the first poll", p, run)
		s.set(func(s *stage) { s.silent = true })
		time.Sleep(12 * time.Second)
		late := s.poll(r, 1, "other", 2*time.Second)
		if got := late.given(); len(got) > 0 || late.batch != "" {
			t.Errorf("the leader has not answered for 12 s, and a poll is given %v of batch %q", got, late.batch)
		}
		s.set(func(s *stage) { s.silent = false })
		wantGiven(t, "the lease is renewed", s.poll(r, 1, late.batch, 4*time.Second), run)
	})
}

// An HTTP worker that was asked to accept no new runs still has those that it lists.
func TestAnHTTPWorkerThatRestsListsItsRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		r, p := s.listed(worker.Config{}, jobs.Options{}, 1)
		s.must(s.node.Signal(t.Context(), bus.Signal{Topic: bus.TopicCancel, Tenant: jobs.DefaultTenant, To: r.Name(), Data: bus.Encode(bus.Stop{Rest: bus.RestDrain})}))
		synctest.Wait()
		run := s.started(r, "j")
		s.must(r.Has(t.Context(), run.ID, run.Attempt))
		refused := s.started(r, "j")
		wantAnswer(t, "while it rests", s.push(r, refused), bus.PushAnswer{Refused: named(refused)})
		s.succeed(r, run)
		_ = p
	})
}
