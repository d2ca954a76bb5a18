package embed_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// The queue of offers is deleted again and again while runs are enqueued: each still runs, and once.
func TestTheQueueIsMadeAgain(t *testing.T) {
	tests.Long(t)
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()
	s, err := embed.Start(t.Context(), embed.Config{Bus: func(ctx context.Context, as bus.Principal) (bus.Bus, error) {
		return natsbus.Connect(ctx, server.URL(), natsbus.Config{As: as})
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	var ran atomic.Int64
	w, err := carillon.NewWorker(server.URL(), worker.Config{App: "test"}, jobs.NewTriggered(jobs.TriggeredFunc[greeting](func(context.Context, greeting) error {
		ran.Add(1)
		return nil
	}), jobs.Options{Key: "demo.greet"}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	nc, err := nats.Connect(server.URL(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	remove := func() (gone int) {
		names := js.StreamNames(t.Context())
		for name := range names.Name() {
			if strings.HasPrefix(name, "CARILLON_OFFERS_") && js.DeleteStream(t.Context(), name) == nil {
				gone++
			}
		}
		return gone
	}
	const rounds, each = 5, 200
	began := time.Now()
	var runs []jobs.Receipt
	ask := func(n int) bool {
		asked, err := greetJob.EnqueueAll(t.Context(), s.Client(), make([]greeting, n))
		if err != nil && !errors.Is(err, jobs.NotFound) {
			t.Fatal(err)
		}
		for _, run := range asked {
			if run.State != kernel.New { // those that were refused have none
				runs = append(runs, run)
			}
		}
		return err == nil
	}
	for range rounds {
		eventually(t, "runs are asked for", func() bool { return ask(each) }) // at first the worker may not have made the job known yet
		// Runs that went to the worker without a queue need none: more of them do, until it is there.
		eventually(t, "there is a queue, and it is deleted", func() bool {
			if remove() > 0 {
				return true
			}
			ask(1)
			return false
		})
	}
	waiting, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, run := range runs {
		if r, err := s.Client().Wait(waiting, run.ID); err != nil || r.State != jobs.Succeeded || r.Attempt != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	t.Logf("%d runs ended within %v, in which the queue was deleted %d times", len(runs), time.Since(began), rounds)
	if n := ran.Load(); n != int64(len(runs)) {
		t.Errorf("%d handlers ran for %d runs", n, len(runs))
	}
}
