package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/membus"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// dice are random numbers for many goroutines.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (d *dice) below(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// flaky is a store whose answers get lost, before or after the request is applied, and come late.
type flaky struct {
	metastore.Store
	dice *dice
}

func (f flaky) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	time.Sleep(time.Duration(f.dice.below(200)) * time.Millisecond)
	switch f.dice.below(10) {
	case 0:
		return metastore.Refused(batch, kernel.Refuse(jobs.Unavailable, "no leader"))
	case 1, 2:
		return metastore.Refused(batch, kernel.Refuse(jobs.Unknown, "lost on the way there"))
	case 3, 4:
		f.Store.Apply(ctx, batch)
		return metastore.Refused(batch, kernel.Refuse(jobs.Unknown, "lost on the way back"))
	}
	return f.Store.Apply(ctx, batch)
}

// leaky is a bus that loses signals, heartbeats, pushes and their answers, and delivers pushes twice, or late.
type leaky struct {
	bus.Bus
	dice *dice
}

func (l leaky) Signal(ctx context.Context, s bus.Signal) error {
	if l.dice.below(3) == 0 {
		return nil
	}
	return l.Bus.Signal(ctx, s)
}

func (l leaky) Call(ctx context.Context, service string, request []byte) ([]byte, error) {
	if l.dice.below(5) == 0 {
		return nil, errors.New("lost")
	}
	return l.Bus.Call(ctx, service, request)
}

func (l leaky) Push(ctx context.Context, to bus.Address, push []byte) ([]byte, error) {
	switch l.dice.below(10) {
	case 0:
		return nil, errors.New("lost on the way there")
	case 1:
		_, _ = l.Bus.Push(ctx, to, push)
		return nil, errors.New("lost on the way back")
	case 2:
		_, _ = l.Bus.Push(ctx, to, push)
	case 3:
		go func() {
			time.Sleep(time.Duration(l.dice.below(20_000)) * time.Millisecond)
			late, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = l.Bus.Push(late, to, push)
		}()
	}
	return l.Bus.Push(ctx, to, push)
}

// Answers get lost, pushes come late, twice or never, runs are cancelled, fail and time out: no run ever has two
// handlers at once, no limit is exceeded, and in the end every run has ended and every slot is free.
func TestChaos(t *testing.T) {
	for seed := range uint64(tests.Size(1, 4, 4)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chaos(t, &dice{rng: rand.New(rand.NewPCG(seed, 7))}) })
		})
	}
}

func chaos(t *testing.T, d *dice) {
	const limit, runs = 5, 300
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	hub := membus.New()
	node := leaky{hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Node, Name: "n1"}), d}
	cp, err := controlplane.New(controlplane.Config{Store: memstore.Open(memstore.Config{}), Bus: node})
	if err != nil {
		t.Fatal(err)
	}
	all.Go(func() { _ = cp.Run(ctx) })

	var mu sync.Mutex
	inside, calls := map[jobs.ID]int{}, 0
	work := func(ctx context.Context, _ args) error {
		id := jobs.Attempt(ctx).Run
		mu.Lock()
		calls++
		if inside[id]++; inside[id] > 1 {
			t.Errorf("run %s has two handlers", id)
		}
		if len(inside) > limit {
			t.Errorf("%d runs at the same time, the limit is %d", len(inside), limit)
		}
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			delete(inside, id)
		}()
		switch d.below(8) {
		case 0:
			time.Sleep(15 * time.Second) // beyond the timeout, and deaf to its context
		case 1:
			<-ctx.Done()
			return ctx.Err()
		case 2:
			return errors.New("no luck")
		case 3:
			panic("worse")
		}
		time.Sleep(time.Duration(d.below(1000)) * time.Millisecond)
		return nil
	}
	var workers []*worker.Worker
	for _, name := range []string{"a", "b"} {
		w, err := worker.New(worker.Config{Name: name, Slots: 8}, flaky{cp.Store(), d},
			leaky{hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: name}), d},
			jobs.NewTriggered(jobs.TriggeredFunc[args](work), jobs.Options{Key: "j", Retries: 2, MaxConcurrency: limit, Timeout: 10 * time.Second}))
		if err != nil {
			t.Fatal(err)
		}
		workers = append(workers, w)
		all.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(time.Minute)
	c := client.New(cp.Store(), nil, client.Config{})
	var made []jobs.Receipt
	for i := range runs {
		run, err := jobs.Trigger[args]("j").Enqueue(ctx, c, args{i})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, run)
		if d.below(10) == 0 {
			victim := made[d.below(len(made))].ID
			all.Go(func() {
				time.Sleep(time.Duration(d.below(60_000)) * time.Millisecond)
				_ = c.Cancel(ctx, victim, "no reason")
			})
		}
	}
	time.Sleep(2 * time.Hour)
	synctest.Wait()
	ends := map[jobs.State]int{}
	for _, run := range made {
		r, err := cp.Store().Run(ctx, jobs.DefaultTenant, run.ID)
		if err != nil {
			t.Fatal(err)
		}
		ends[r.State]++
		if !r.State.Final() || r.Lingering {
			t.Errorf("run %s is %s (%s) after two hours, lingering %v, attempt %d", r.ID, r.State, r.Cause, r.Lingering, r.Attempt)
		}
		if r.Cause == kernel.ByPoison {
			t.Errorf("run %s was lost again and again, and no worker died", r.ID)
		}
	}
	for _, w := range workers {
		if s := w.Stats(); s.Free != 8 || s.Running != 0 || s.Stuck != 0 {
			t.Errorf("worker %s: %+v, want all slots free", w.Name(), s)
		}
	}
	t.Logf("%d calls of handlers, runs ended %v", calls, ends)
}

type args struct{ N int }
