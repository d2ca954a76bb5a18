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
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/worker"
)

// An HTTP worker goes from node to node, while pushes, heartbeats and responses get lost or come late: it begins no
// attempt twice, and in the end every run has succeeded.
func TestHTTPWorkerChaos(t *testing.T) {
	for seed := range uint64(tests.Size(2, 8, 8)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { remoteChaos(t, &dice{rng: rand.New(rand.NewPCG(seed, 11))}) })
		})
	}
}

const nomadSlots = 4

// nomad is an HTTP worker that goes from node to node.
type nomad struct {
	*testing.T
	*dice
	open   func() (r *worker.Remote, end func()) // at a node, which ends
	at     *worker.Remote
	end    func()
	batch  string                    // of the last response that it received
	has    map[bus.Attempt]time.Time // when it is done with each attempt
	begun  map[bus.Attempt]bool
	moves  int
	lost   int // attempts
	beside int // attempts that began beside another one of their run
}

func remoteChaos(t *testing.T, d *dice) {
	const runs = 400
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
	declared, err := kernel.Declare(handler(jobs.Options{Retries: 3}, nil))
	if err != nil {
		t.Fatal(err)
	}
	n := &nomad{T: t, dice: d, has: map[bus.Attempt]time.Time{}, begun: map[bus.Attempt]bool{}}
	n.open = func() (*worker.Remote, func()) {
		end := leaky{hub.As(bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Worker, Name: "h"}), d}
		r, err := worker.NewRemote(worker.Config{Name: "h", Slots: nomadSlots, Grace: -1}, "s1", worker.About{}, cp.Store(), end, declared)
		if err != nil {
			t.Error(err)
		}
		up, down := context.WithCancel(ctx)
		all.Go(func() {
			if err := r.Run(up); err != nil {
				t.Error(err)
			}
			_ = end.Close()
		})
		return r, down
	}
	all.Go(func() {
		n.move(ctx)
		for ctx.Err() == nil {
			n.step(ctx)
		}
	})
	time.Sleep(time.Minute)
	c := client.New(cp.Store(), nil, client.Config{})
	var made []jobs.Receipt
	for i := range runs {
		run, err := jobs.Trigger[args]("j").Enqueue(ctx, c, args{i})
		if err != nil {
			t.Fatal(err)
		}
		if made = append(made, run); d.below(4) == 0 {
			time.Sleep(time.Duration(d.below(20_000)) * time.Millisecond)
		}
	}
	time.Sleep(2 * time.Hour) // a worker that moves all the time does four runs a minute
	stop()
	all.Wait()
	unlucky := 0
	for _, run := range made {
		r, err := cp.Store().Run(context.Background(), jobs.DefaultTenant, run.ID)
		switch {
		case err != nil || r.State != jobs.Succeeded && r.Cause != kernel.ByPoison:
			t.Errorf("run %s is %s (%s), attempt %d (%v) at the end", run.ID, r.State, r.Cause, r.Attempt, err)
		case r.Cause == kernel.ByPoison: // each time its push or the response got lost
			unlucky++
		}
	}
	if unlucky > 4 {
		t.Errorf("%d runs were lost so often that they count as poison", unlucky)
	}
	t.Logf("%d runs in %d attempts, %d moves, %d attempts were lost, %d began beside another", runs, len(n.begun), n.moves, n.lost, n.beside)
}

// move registers at another node, with the attempts that the worker has. The node before ends, soon or later.
func (n *nomad) move(ctx context.Context) {
	if n.end != nil {
		time.AfterFunc(time.Duration(n.below(10_000))*time.Millisecond, n.end)
	}
	n.moves++
	n.at, n.end = n.open()
	n.batch = ""
	for ; ctx.Err() == nil; time.Sleep(time.Second) {
		if n.at.Begun(ctx) == nil && n.list(ctx) {
			return
		}
	}
}

func (n *nomad) list(ctx context.Context) bool {
	for a := range n.has {
		switch err := n.at.Has(ctx, a.ID, a.N); {
		case errors.Is(err, jobs.Stale):
			n.lose(a)
		case err != nil:
			return false
		}
	}
	n.at.Listed()
	return true
}

func (n *nomad) lose(a bus.Attempt) {
	n.lost++
	delete(n.has, a)
}

// step finishes what is done, stops what is to be stopped, and polls.
func (n *nomad) step(ctx context.Context) {
	if n.below(6) == 0 {
		n.move(ctx)
	}
	for a, due := range n.has {
		if time.Now().Before(due) {
			continue
		}
		switch _, err := n.at.Finish(ctx, kernel.Finish{ID: a.ID, Attempt: a.N, Outcome: kernel.OutcomeSuccess}); {
		case err == nil:
			delete(n.has, a)
		case errors.Is(err, jobs.Stale):
			n.lose(a)
		}
	}
	batch, list, err := n.at.Poll(ctx, nomadSlots-len(n.has), n.batch, time.Duration(1+n.below(4000))*time.Millisecond)
	for _, s := range n.at.Stops() {
		if a := (bus.Attempt{ID: s.ID, N: s.Attempt}); s.Stale {
			n.lose(a)
		}
	}
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		n.move(ctx)
		return
	case n.below(10) == 0:
		return // the response is lost
	}
	n.batch = batch
	for _, g := range list {
		a := bus.Attempt{ID: g.ID, N: g.Attempt}
		if n.begun[a] {
			n.Errorf("attempt %d of run %s is given again", a.N, a.ID)
		}
		for other := range n.has {
			if other.ID == a.ID {
				n.beside++
			}
		}
		n.begun[a] = true
		n.has[a] = time.Now().Add(time.Duration(n.below(8000)) * time.Millisecond)
	}
}
