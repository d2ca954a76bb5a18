package sabotage

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/chaos/judge"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/metastore/replica"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog/memdb"
)

// member is one life of a process with rows of its own, which follow a log in a database.
type member struct {
	log     *dblog.Log
	machine *replica.Machine
	rows    *replica.Replica
	stop    func()
}

// unlucky is a database that is slow, loses answers and does late what it did not answer, by a seed.
type unlucky struct {
	*memdb.DB
	mu   sync.Mutex
	dice *rand.Rand
	calm atomic.Bool
}

func (u *unlucky) upTo(d time.Duration) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return time.Duration(u.dice.Int64N(int64(d)))
}

func (u *unlucky) fault(string) (f memdb.Fault) {
	f.Wait, f.Answer = u.upTo(time.Millisecond), u.upTo(time.Millisecond)
	if u.calm.Load() {
		return f
	}
	switch u.upTo(2000) {
	case 0:
		f.Fails = true
	case 1:
		f.Lost = true
	case 2:
		f.Lost, f.Late = true, u.upTo(3*time.Second)
	case 3:
		f.Wait = u.upTo(2 * time.Second)
	case 4:
		f.Answer = u.upTo(2 * time.Second)
	}
	return f
}

func (h *fixture) member(db *unlucky, ended *memdb.Histories, name string) *member {
	m := new(member)
	logger := slog.New(slog.NewTextHandler(h.t.Output(), nil))
	fail := func(err error) { h.t.Errorf("%s: %v", name, err) }
	m.machine = replica.NewMachine(replica.MachineConfig{History: ended.Node(), Fail: fail, SnapshotAfter: 256 << 10, Trailing: 16 << 10, Replay: time.Hour})
	for {
		var err error
		if m.log, err = dblog.Open(h.ctx, dblog.Config{Database: db, Machine: m.machine, Node: name}); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond) // a process that ends is started again
	}
	m.rows = replica.New(replica.Config{Machine: m.machine, Log: m.log, Now: m.log.Now})
	end := h.wire(bus.Node, name)
	end.calm.Store(true) // the database has the faults here
	plane, err := controlplane.New(controlplane.Config{Node: name, Store: m.rows, Bus: end, Elector: m.log, Clock: &metastore.Clock{Wall: time.Now}, Logger: logger,
		Serve: func(ctx context.Context, term uint64, store metastore.Store) error {
			return busstore.Serve(ctx, bus.InTerm(end, term), store, busstore.Config{})
		}})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(h.ctx)
	over := make(chan struct{})
	h.all.Go(func() {
		defer close(over)
		for ctx.Err() == nil { // as above
			if err := plane.Run(ctx); err != nil && ctx.Err() == nil {
				h.t.Logf("%s ended: %v", name, err)
				time.Sleep(100 * time.Millisecond)
			}
		}
		_ = m.log.Close()
		_ = end.Bus.Close()
	})
	m.stop = func() { cancel(); <-over }
	return m
}

// leader waits for a member that leads, and has its rows read.
func (h *fixture) leader(all []*member) *member {
	for {
		for _, m := range all {
			if m.log.Leads() {
				h.rows = m.rows
				return m
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// sameRows checks that all members have the same rows, at a moment at which all have applied the same entries and none of
// them does anything: the leader goes on writing.
func (h *fixture) sameRows(all []*member) {
	var at []uint64
	for range 1000 {
		at = at[:0]
		synctest.Wait()
		for _, m := range all {
			index, _, _ := m.machine.Bounds.Now()
			at = append(at, index)
		}
		if slices.Min(at) < slices.Max(at) {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		for _, m := range all {
			if m.machine.Engine.Hash() != all[0].machine.Engine.Hash() {
				h.t.Error("two members have different rows")
			}
		}
		return
	}
	h.t.Error("the members do not follow: they are at entries", at)
}

// simulated is a cluster of three members on such a database. For so long, every few seconds one of them is stopped and
// begins again, while clients send requests and workers do them.
func simulated(t *testing.T, seed uint64, lasts time.Duration, clients int) (c *judge.Case, entries uint64) {
	synctest.Test(t, func(t *testing.T) {
		h, tearDown := newFixture(t)
		defer tearDown()
		h.c.Setup = judge.Setup{Name: "a simulated database", Store: "memory", Began: h.now(), Faults: 1, Stamps: judge.Rows}
		h.c.Specs = specs
		db := &unlucky{DB: new(memdb.DB), dice: rand.New(rand.NewPCG(seed, 23))}
		db.Fault = db.fault
		db.calm.Store(true)
		ended := memdb.NewHistories()
		var all []*member
		for i := range 3 {
			all = append(all, h.member(db, ended, fmt.Sprint("n", i)))
		}
		h.leader(all)
		for range 4 {
			h.hire(400)
		}
		const begins = 10 * time.Second
		h.until(begins)
		for i := range specs {
			h.c.History = append(h.c.History, judge.Op{What: judge.Define, Key: specs[i].Key, Invoked: h.c.Setup.Began, Returned: h.now(), Outcome: judge.OK})
		}
		db.calm.Store(false)
		troubled := h.fault(judge.Fault{Kind: judge.Cut, Role: judge.Rows, Target: "the database"})
		for n := range clients {
			h.all.Go(func() {
				ask := h.client()
				ask.n = n << 20                                        // its idempotency keys are its own
				for time.Since(h.begin) < begins+lasts+5*time.Second { // fewer fail than a job's retry budget allows: all end in time
					ask.ask("plain", task{Millis: int(db.upTo(50)), Fails: db.upTo(100) == 0}, 0)
				}
			})
		}
		for time.Since(h.begin) < begins+lasts {
			time.Sleep(3*time.Second + db.upTo(5*time.Second))
			i := int(db.upTo(3))
			name := fmt.Sprint("n", i)
			over := h.fault(judge.Fault{Kind: judge.Kill, Role: judge.Control, Target: name})
			all[i].stop()
			all[i] = h.member(db, ended, name)
			over()
		}
		db.calm.Store(true)
		troubled()
		h.until(begins + lasts + 15*time.Second)
		h.c.Setup.Healed = h.now()
		h.leader(all)
		for i := range specs {
			if key := specs[i].Key; specs[i].Schedule != "" {
				h.person(judge.Op{What: judge.Pause, Key: key}, kernel.Pause{Key: jobs.Key(key)})
			}
		}
		h.until(begins + lasts + 75*time.Second)
		first := h.leader(all)
		h.sameRows(all)
		h.read()
		entries, _, _ = first.machine.Bounds.Now()
		c = &h.c
	})
	return c, entries
}

// On a database that misbehaves, with leaders that come and go, engine and control plane keep all promises.
func TestSimulatedLog(t *testing.T) {
	tests.WithoutRace(t)
	for seed := range tests.Size[uint64](1, 2, 100) {
		began := time.Now()
		c, entries := simulated(t, seed, tests.Size(10*time.Second, time.Minute, 2*time.Minute), tests.Size(2, 4, 4))
		took := time.Since(began)
		v := judge.Judge(c)
		t.Logf("seed %d: %d entries in %v, %.0f a second", seed, entries, took.Round(time.Millisecond), float64(entries)/took.Seconds())
		if report(t, v); !v.Pass {
			t.Errorf("seed %d: the judge names %q", seed, v.Broken())
		}
		if n := v.Count(judge.Lost).Of; n < 1000 {
			t.Errorf("seed %d: %d requests and due times, too few", seed, n)
		}
	}
}
