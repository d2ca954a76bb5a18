package dblog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/replica"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog/memdb"
)

// world is nodes of one log, on a database that misbehaves.
type world struct {
	t      *testing.T
	db     *memdb.DB
	dice   *dice
	faults bool // the database may misbehave
	steps  int  // what happens to nodes
	rare   int  // of so many statements five go wrong
	looks  int  // clients read what they have created once in so many times
	stays  int  // clients choose another node once in so many requests
	nodes  []*node

	mu    sync.Mutex
	acked map[jobs.ID]bool // whose creation was acknowledged: true, or refused as certainly not done: false
	lost  map[jobs.ID]bool // that a replica lacked which was promoted
	terms map[uint64]int   // the node that led a term
}

// dice is a source of random numbers for all goroutines.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

func (d *dice) upTo(most time.Duration) time.Duration { return time.Duration(d.n(int(most))) }

// node is a process: Open makes another one in its place after a crash.
type node struct {
	w       *world
	n       int
	log     *dblog.Log
	machine *replica.Machine
	rows    *replica.Replica
	stop    func()

	mu     sync.Mutex
	cutOff chan struct{} // closed when the database answers again; nil = it does
}

// view is the database as a node reaches it.
type view struct {
	dblog.Database
	n *node
}

func (v view) wait(ctx context.Context) error {
	v.n.mu.Lock()
	until := v.n.cutOff
	v.n.mu.Unlock()
	if until == nil {
		return nil
	}
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Insert reaches the database, and its answer may come when the node is no longer cut off.
func (v view) Insert(ctx context.Context, rows []dblog.Row) (done bool, now time.Time, err error) {
	if err := v.wait(ctx); err != nil {
		return false, time.Time{}, err
	}
	done, now, err = v.Database.Insert(ctx, rows)
	return done, now, errors.Join(err, v.wait(ctx))
}

func (v view) Renew(ctx context.Context, node string, term uint64, lease time.Duration) (bool, error) {
	if err := v.wait(ctx); err != nil {
		return false, err
	}
	return v.Database.Renew(ctx, node, term, lease)
}

func (v view) Rows(ctx context.Context, after uint64, bytes int) ([]dblog.Row, error) {
	if err := v.wait(ctx); err != nil {
		return nil, err
	}
	return v.Database.Rows(ctx, after, bytes)
}

func (v view) End(ctx context.Context) (uint64, dblog.Hash, time.Time, error) {
	if err := v.wait(ctx); err != nil {
		return 0, dblog.Hash{}, time.Time{}, err
	}
	return v.Database.End(ctx)
}

func (w *world) fault(string) (f memdb.Fault) {
	w.mu.Lock()
	on := w.faults
	w.mu.Unlock()
	f.Wait, f.Answer = w.dice.upTo(time.Millisecond), w.dice.upTo(time.Millisecond)
	if !on {
		return f
	}
	switch w.dice.n(w.rare) {
	case 0:
		f.Fails = true
	case 1:
		f.Lost = true
	case 2:
		f.Lost, f.Late = true, w.dice.upTo(3*time.Second)
	case 3:
		f.Wait = w.dice.upTo(2 * time.Second)
	case 4:
		f.Answer = w.dice.upTo(2 * time.Second)
	}
	return f
}

func (w *world) misbehave(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = on
}

// open starts the process of a node.
func (n *node) open() {
	n.machine = replica.NewMachine(replica.MachineConfig{History: memdb.NewHistories().Node(), Fail: func(err error) { n.w.t.Errorf("node %d: %v", n.n, err) },
		SnapshotAfter: 8 << 10, Trailing: 2 << 10, Replay: time.Hour})
	var err error
	for {
		if n.log, err = dblog.Open(context.Background(), dblog.Config{Database: view{n.w.db, n}, Machine: n.machine, Node: fmt.Sprint(n.n)}); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond) // a process that ends is started again
	}
	n.rows = replica.New(replica.Config{Machine: n.machine, Log: n.log, Now: n.log.Now})
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	last := uint64(0)
	go func() {
		defer close(over)
		leading := false
		_ = n.log.Lead(ctx, func(ctx context.Context, term uint64) error {
			if leading || term <= last {
				n.w.t.Errorf("node %d leads term %d, after %d, while leading: %v", n.n, term, last, leading)
			}
			leading, last = true, term
			n.w.leads(term, n.n)
			<-ctx.Done()
			time.Sleep(n.w.dice.upTo(100 * time.Millisecond))
			leading = false
			return nil
		})
	}()
	n.stop = func() { cancel(); <-over; _ = n.log.Close() }
}

func (w *world) leads(term uint64, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if other, known := w.terms[term]; known && other != n && len(w.lost) == 0 {
		w.t.Errorf("nodes %d and %d led term %d", other, n, term)
	}
	w.terms[term] = n
}

// cut cuts a node off from the database for a while.
func (n *node) cut(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cutOff != nil {
		return
	}
	until := make(chan struct{})
	n.cutOff = until
	time.AfterFunc(d, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.cutOff = nil
		close(until)
	})
}

func envelope(k kernel.Command) kernel.Envelope {
	return kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "test", Command: k}
}

// client creates runs on any node that takes them.
func (w *world) client(ctx context.Context, pick func(other bool) *node) {
	for other := false; ctx.Err() == nil; {
		n := pick(other)
		k := kernel.Create{ID: jobs.NewID(time.Now()), Key: "k", Args: []byte(`{"customer":"c-1234567890"}`)}
		asked, cancel := context.WithTimeout(ctx, 10*time.Second)
		r := n.rows.Apply(asked, []kernel.Envelope{envelope(k)})[0]
		cancel()
		code := jobs.CodeOf(r.Err)
		other = code == jobs.Unavailable
		switch {
		case r.Err == nil:
			w.note(k.ID, true)
			if w.dice.n(w.looks) == 0 {
				w.look(ctx, k.ID, pick(true))
			}
		case code == jobs.Unavailable:
			w.note(k.ID, false)
			time.Sleep(50 * time.Millisecond)
		case code != jobs.Unknown:
			w.t.Errorf("a creation is refused: %v", r.Err)
		}
	}
}

func (w *world) note(id jobs.ID, acked bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked[id] = acked
}

// look reads a run that was acknowledged on a node: if that says that it is up to date, it must have it.
func (w *world) look(ctx context.Context, id jobs.ID, n *node) {
	asked, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if n.log.Linearizable(asked) != nil {
		return
	}
	if _, err := n.rows.Run(ctx, jobs.DefaultTenant, id); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.lost[id] {
			w.t.Errorf("node %d does not have run %s, which was acknowledged: %v", n.n, id, err)
		}
	}
}

// promote loses the end of the log, as a replica that lacked it.
func (w *world) promote(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.db.Promote(n) {
		if r.Entry[5] != 1 {
			continue // no commit
		}
		batch, err := kernel.DecodeEnvelopes(r.Entry[10:])
		if err != nil {
			w.t.Error(err)
		}
		for _, e := range batch {
			if k, is := e.Command.(kernel.Create); is {
				w.lost[k.ID] = true
			}
		}
	}
}

// Nodes on a database that is slow, loses answers and does late what it did not answer, and of which one or another is
// cut off, or dies: what was acknowledged is there, what was refused is not, terms have one leader, a node that says that
// it is up to date is, and in the end all have the same rows.
func TestADatabaseThatMisbehaves(t *testing.T) {
	for seed := range tests.Size[uint64](6, 10, 400) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulate(t, &world{steps: 40, rare: 60, looks: 1, stays: 4}, seed, false) })
		})
	}
}

// The same with replicas that are promoted before they have the end of the log: what is lost is lost whole, and nothing
// else is.
func TestADatabaseThatLosesTheEnd(t *testing.T) {
	for seed := range tests.Size[uint64](6, 10, 400) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulate(t, &world{steps: 40, rare: 60, looks: 1, stays: 4}, seed, true) })
		})
	}
}

// The same with fewer faults, between which much is written.
func TestADatabaseThatIsBusy(t *testing.T) {
	for seed := range tests.Size[uint64](1, 3, 100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var entries uint64
			began := time.Now()
			synctest.Test(t, func(t *testing.T) {
				entries = simulate(t, &world{steps: tests.Size(12, 40, 40), rare: 5000, looks: 50, stays: 1000}, seed, true)
			})
			t.Logf("%.0f entries a second", float64(entries)/time.Since(began).Seconds())
		})
	}
}

func simulate(t *testing.T, w *world, seed uint64, promote bool) (entries uint64) {
	w.t, w.db, w.dice = t, new(memdb.DB), &dice{rng: rand.New(rand.NewPCG(seed, 19))}
	w.acked, w.lost, w.terms = map[jobs.ID]bool{}, map[jobs.ID]bool{}, map[uint64]int{}
	w.db.Fault = w.fault
	var guard sync.RWMutex // held by clients, and to replace a node
	for i := range 3 {
		n := &node{w: w, n: i}
		n.open()
		w.nodes = append(w.nodes, n)
	}
	for done := false; !done; time.Sleep(50 * time.Millisecond) {
		for _, n := range w.nodes {
			r := n.rows.Apply(t.Context(), []kernel.Envelope{envelope(kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered}})})
			done = done || r[0].Err == nil
		}
	}
	w.misbehave(true)
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 4 {
		last := 0
		clients.Go(func() {
			w.client(ctx, func(other bool) *node {
				guard.RLock()
				defer guard.RUnlock()
				if other || w.dice.n(w.stays) == 0 {
					last = w.dice.n(3)
				}
				return w.nodes[last]
			})
		})
	}
	for range w.steps {
		time.Sleep(w.dice.upTo(3 * time.Second))
		i := w.dice.n(3)
		switch w.dice.n(4) {
		case 0:
			w.nodes[i].cut(w.dice.upTo(15 * time.Second))
		case 1:
			w.nodes[i].stop()
			n := &node{w: w, n: i}
			n.open()
			guard.Lock()
			w.nodes[i] = n
			guard.Unlock()
		case 2:
			if rows, _ := w.db.Size(); promote && rows > 40 {
				w.promote(uint64(1 + w.dice.n(20)))
			}
		}
	}
	w.misbehave(false)
	time.Sleep(10 * time.Second)
	stop()
	clients.Wait()
	time.Sleep(10 * time.Second)
	hash := w.nodes[0].machine.Engine.Hash()
	for i, n := range w.nodes {
		if n.machine.Engine.Hash() != hash {
			t.Errorf("the rows of node %d are not those of node 0", i)
		}
	}
	acked, refused := 0, 0
	for id, done := range w.acked {
		_, err := w.nodes[0].rows.Run(t.Context(), jobs.DefaultTenant, id)
		switch {
		case done && err != nil && !w.lost[id]:
			t.Errorf("run %s was acknowledged and is not there: %v", id, err)
		case !done && err == nil:
			t.Errorf("run %s was refused as not done and is there", id)
		case done:
			acked++
		default:
			refused++
		}
	}
	for _, n := range w.nodes {
		n.stop()
	}
	_, snapshots := w.db.Size()
	entries, _, _ = w.nodes[0].machine.Bounds.Now()
	t.Logf("%d acknowledged, %d refused, %d lost, %d terms, %d snapshots, %d entries", acked, refused, len(w.lost), len(w.terms), snapshots, entries)
	if acked < 100 || snapshots == 0 || len(w.terms) < 2 {
		t.Error("too little has happened")
	}
	return entries
}
