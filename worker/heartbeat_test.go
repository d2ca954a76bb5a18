package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// What a worker holds is divided among as many heartbeats as a bus with small messages needs, for any progress text: a
// heartbeat that cannot be sent costs every lease.
func TestHeartbeatsFitTheBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const runs = 300
		s := newStage(t)
		s.narrow(64 << 10)
		g := newGate()
		js := []jobs.Job{handler(jobs.Options{}, func(ctx context.Context, args json.RawMessage) error {
			jobs.Progress(ctx, 1, 2, strings.Repeat("<", 200))
			return g.run(ctx, args)
		})}
		for i := range 300 { // which leave little room in the first heartbeat
			js = append(js, handler(jobs.Options{Key: jobs.Key(fmt.Sprintf("%0198d", i))}, g.run))
		}
		s.start(worker.Config{Slots: worker.Unlimited}, js...)
		for range runs {
			s.create("j", struct{}{})
		}
		if n := g.inside(); n != runs {
			t.Fatalf("%d handlers run", n)
		}
		s.set(func(s *stage) { s.heartbeats, s.forgot = nil, true })
		time.Sleep(3500 * time.Millisecond) // one round, and another with an introduction
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		named, introduced, rounds := map[jobs.ID]int{}, 0, 0
		for _, b := range s.heartbeats {
			for _, h := range b.Running {
				named[h.ID]++
				if h.Progress == nil || len(h.Progress.Text) != 200 {
					t.Fatalf("an attempt is reported as %+v", h)
				}
			}
			if b.Info != nil {
				introduced++
			}
			if !b.More {
				rounds++
			}
		}
		if len(named) != runs || introduced != 1 || rounds != 2 {
			t.Errorf("%d attempts are named in %d rounds of %d heartbeats, %d with an introduction", len(named), rounds, len(s.heartbeats), introduced)
		}
		for id, n := range named {
			if n != rounds {
				t.Errorf("%s is named %d times", id, n)
			}
		}
		close(g.open)
	})
}

// A worker whose description exceeds a message of the bus fails at once, instead of waiting for a leader.
func TestTooManyJobsForTheBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.narrow(64 << 10)
		var js []jobs.Job
		for i := range 400 {
			js = append(js, handler(jobs.Options{Key: jobs.Key(fmt.Sprintf("%0198d", i))}, nil))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := s.new(worker.Config{}, js...).Run(ctx)
		if err == nil || !strings.Contains(err.Error(), "divide the jobs among several workers") {
			t.Errorf("error is %v", err)
		}
	})
}

// broken is a job that cannot be initialised.
type broken struct{}

func (broken) Run(context.Context, json.RawMessage) error { return nil }

func (broken) Init(context.Context) error { return errors.New(strings.Repeat("<", 200)) }

// Many jobs that could not be initialised do not keep the worker from being known: the faults that fit are reported.
func TestFaultsFitTheBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.narrow(64 << 10)
		js := []jobs.Job{handler(jobs.Options{}, nil)}
		for i := range 100 {
			js = append(js, jobs.NewTriggered(broken{}, jobs.Options{Key: jobs.Key(fmt.Sprintf("broken.%03d", i))}))
		}
		s.start(worker.Config{}, js...)
		b := s.lastHeartbeat()
		if b.Info == nil || len(b.Info.Keys) != 1 || len(b.Info.Faults) < 40 || len(b.Info.Faults) == 100 {
			t.Errorf("the worker introduced itself as %.300v", b.Info)
		}
	})
}

// A refused heartbeat is not logged like an unanswered one.
func TestARefusedHeartbeatIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		var log bytes.Buffer
		_, stop := s.start(worker.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, handler(jobs.Options{}, nil))
		s.set(func(s *stage) { s.refuses = kernel.Invalid("a name like no other") })
		time.Sleep(4 * time.Second)
		s.set(func(s *stage) { s.refuses = nil })
		stop()
		if text := log.String(); !strings.Contains(text, "a heartbeat is refused") || strings.Contains(text, "no control plane answers") {
			t.Errorf("it logged %s", text)
		}
	})
}
