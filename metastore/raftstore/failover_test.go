package raftstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// crowd is programs that create runs, each under an idempotency key, and repeat a command unchanged until they have
// an answer, from any node.
type crowd struct {
	t      *testing.T
	random *rand.Rand
	nodes  func() []*Store
	end    chan struct{}
	wg     sync.WaitGroup
	over   sync.Once
	mu     sync.Mutex
	made   map[string]jobs.ID // the answer to each key
	asked  int
	hazy   int // answers of an unknown outcome
	denied int
}

func newCrowd(t *testing.T, programs int, nodes func() []*Store) *crowd {
	c := &crowd{t: t, random: tests.Random(t), nodes: nodes, end: make(chan struct{}), made: make(map[string]jobs.ID)}
	for p := range programs {
		c.wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-c.end:
					return
				default:
					c.one(fmt.Sprintf("%d-%d", p, i))
				}
			}
		})
	}
	t.Cleanup(c.stop) // before the nodes are closed, if the test ended early
	return c
}

func (c *crowd) one(key string) {
	k := create("k")
	k.Idempotency = key
	e := envelope(k)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		asked := time.Now()
		nodes := c.nodes()
		end = end.Add(time.Since(asked)) // time in which another test step moves the nodes does not count
		s := nodes[c.random.IntN(len(nodes))]
		wait, cancel := context.WithTimeout(ctx, 2*time.Second)
		r := s.Apply(wait, []kernel.Envelope{e})[0]
		cancel()
		c.mu.Lock()
		c.asked++
		switch {
		case r.Err == nil:
			id := r.Run().ID
			if was, again := c.made[key]; again && was != id {
				c.t.Errorf("key %s was answered with run %s and with %s", key, was, id)
			}
			c.made[key] = id
		case errors.Is(r.Err, jobs.Unknown):
			c.hazy++
		case errors.Is(r.Err, jobs.Unavailable):
			c.denied++
		default:
			c.t.Errorf("key %s: %v", key, r.Err)
		}
		c.mu.Unlock()
		if r.Err == nil {
			return
		}
		if !errors.Is(r.Err, jobs.Unknown) {
			time.Sleep(time.Millisecond)
		}
	}
	c.t.Errorf("key %s is never answered", key)
}

// stop ends the programs, each when it has its answer.
func (c *crowd) stop() {
	c.over.Do(func() { close(c.end) })
	c.wg.Wait()
}

// judge checks that every promised run is there, on every node, and no other.
func (c *crowd) judge(nodes []*Store) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t.Logf("%d keys, %d questions, %d outcomes unknown, %d not done", len(c.made), c.asked, c.hazy, c.denied)
	if len(c.made) == 0 {
		c.t.Error("nothing was done")
	}
	for _, s := range nodes {
		lost, there := 0, 0
		for _, id := range c.made {
			if _, err := s.Run(ctx, jobs.DefaultTenant, id); err != nil {
				lost++
			}
		}
		counts, err := s.Counts(ctx, metastore.CountQuery{Tenant: jobs.DefaultTenant})
		if err != nil {
			c.t.Error(err)
		}
		for _, n := range counts.Live {
			there += n
		}
		if lost > 0 || there != len(c.made) {
			c.t.Errorf("%s: %d of %d runs are lost, %d are there", s.cfg.Node, lost, len(c.made), there)
		}
	}
}

// Leaders fail at random points under load: no acknowledged run is lost or doubled, and every key has one answer. The
// test logs how long there was no leader.
func TestLeadersGo(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, nil)
	do(t, c, register("k"))
	var mu sync.RWMutex // over c.stores
	nodes := func() []*Store {
		mu.RLock()
		defer mu.RUnlock()
		return slices.DeleteFunc(slices.Clone(c.stores), func(s *Store) bool { return s == nil })
	}
	crowd := newCrowd(t, 6, nodes)
	rounds := tests.Size(2, 6, 30)
	random := tests.Random(t)
	var gaps []time.Duration
	for range rounds {
		leader := c.leader()
		time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
		i := c.index(leader)
		mu.Lock()
		c.stores[i] = nil
		mu.Unlock()
		began := time.Now()
		closed := make(chan error, 1)
		go func() { closed <- leader.Close() }()
		c.leader()
		gaps = append(gaps, time.Since(began))
		if err := <-closed; err != nil {
			t.Error(err)
		}
		mu.Lock()
		c.start(i)
		mu.Unlock()
	}
	slices.Sort(gaps)
	t.Logf("no leader for %v (half of the times), %v at most", gaps[len(gaps)/2].Round(time.Millisecond), gaps[len(gaps)-1].Round(time.Millisecond))
	if gaps[len(gaps)/2] > 15*time.Second { // ten times the promise
		t.Error("that is too long")
	}
	crowd.stop()
	c.same()
	crowd.judge(c.stores)
}

// walls cut nodes off from each other. Each node's connections go through its own gate.
type walls struct {
	mu    sync.Mutex
	group map[string]int // by address
	conns map[*walled]struct{}
}

type walled struct {
	net.Conn
	from, to string
	cut      atomic.Bool
	end      chan struct{}
	once     sync.Once
	mu       sync.Mutex
	deadline *time.Timer // of reading; nil = none
}

// Read waits for ever when the other side has been cut off, as it does when packets are dropped.
func (w *walled) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if w.cut.Load() {
		<-w.end
		return 0, net.ErrClosed
	}
	return n, err
}

// Write goes nowhere when the other side has been cut off.
func (w *walled) Write(b []byte) (int, error) {
	if w.cut.Load() {
		return len(b), nil
	}
	return w.Conn.Write(b)
}

func (w *walled) Close() error {
	w.once.Do(func() { close(w.end) })
	return w.Conn.Close()
}

// SetDeadline ends reads that wait behind a wall, too.
func (w *walled) SetDeadline(at time.Time) error {
	w.endAt(at)
	return w.Conn.SetDeadline(at)
}

// SetReadDeadline ends reads that wait behind a wall, too.
func (w *walled) SetReadDeadline(at time.Time) error {
	w.endAt(at)
	return w.Conn.SetReadDeadline(at)
}

// endAt closes the connection at a time, if it is cut then.
func (w *walled) endAt(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deadline != nil {
		w.deadline.Stop()
		w.deadline = nil
	}
	if !at.IsZero() {
		w.deadline = time.AfterFunc(time.Until(at), func() {
			if w.cut.Load() {
				_ = w.Close()
			}
		})
	}
}

func (ws *walls) dialer(from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, to string) (net.Conn, error) {
		ws.mu.Lock()
		apart := ws.group[from] != ws.group[to]
		ws.mu.Unlock()
		if apart {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c, err := new(net.Dialer).DialContext(ctx, "tcp", to)
		if err != nil {
			return nil, err
		}
		w := &walled{Conn: c, from: from, to: to, end: make(chan struct{})}
		ws.mu.Lock()
		defer ws.mu.Unlock()
		ws.conns[w] = struct{}{}
		w.cut.Store(ws.group[from] != ws.group[to])
		return w, nil
	}
}

// apart puts nodes on one side, and all others on the other.
func (ws *walls) apart(addresses ...string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.group = make(map[string]int)
	for _, a := range addresses {
		ws.group[a] = 1
	}
	for w := range ws.conns {
		if ws.group[w.from] != ws.group[w.to] {
			w.cut.Store(true)
		} else if w.cut.Load() { // dropped bytes do not arrive later
			_ = w.Close()
			delete(ws.conns, w)
		}
	}
}

// A leader that is cut off stops acknowledging and reading as a leader, the others continue without it, and when the
// wall falls all are the same again. Unknown outcomes are reported as such.
func TestPartition(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	ws := &walls{group: make(map[string]int), conns: make(map[*walled]struct{})}
	c := newCluster(t, 3, func(c *Config) { c.dialer = ws.dialer(c.Listen) })
	do(t, c, register("k"))
	crowd := newCrowd(t, 4, func() []*Store { return c.stores })
	rounds := tests.Size(1, 3, 10)
	random := tests.Random(t)
	for range rounds {
		old := c.leader()
		ws.apart(old.cfg.Listen)
		cut := time.Now()
		eventually(t, "the one that is cut off knows that it leads no longer", func() bool { return old.Linearizable(ctx) != nil })
		eventually(t, "it stands for election", func() bool { return old.leads() != nil })
		least := time.Since(cut) // before the age, which keeps growing
		if age := old.Age(); age < least {
			t.Errorf("its rows are reported as %v old, and no node has confirmed it for %v", age, least)
		}
		var next *Store
		eventually(t, "another leads", func() bool {
			for _, s := range c.stores {
				if s != old && s.Linearizable(ctx) == nil {
					next = s
					return true
				}
			}
			return false
		})
		do(t, next, creates(0)...)
		eventually(t, "rows behind the wall are reported as old", func() bool { return old.Age() > 300*time.Millisecond })
		if err := old.Linearizable(ctx); !errors.Is(err, jobs.Unavailable) {
			t.Errorf("the one that is cut off reads with %v", err)
		}
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		ws.apart()
		eventually(t, "it has contact to the leader again", func() bool { _, ok := old.Leader(); return ok && old.Age() < 300*time.Millisecond })
	}
	crowd.stop()
	c.same()
	crowd.judge(c.stores)
}

// A leader that could not pass leadership on, because the other node was frozen or cut off, takes up its duties again
// in the same term.
func TestLeadAfterFailedTransfer(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	ws := &walls{group: make(map[string]int), conns: make(map[*walled]struct{})}
	c := newCluster(t, 3, func(c *Config) { c.Heartbeat = 2 * time.Second; c.dialer = ws.dialer(c.Listen) })
	do(t, c, register("k"))
	c.same()
	leader, away := c.leader(), c.follower()
	term := leader.raft.CurrentTerm()
	ws.apart(away.cfg.Listen)
	defer ws.apart()
	transfer := make(chan error, 1)
	go func() {
		transfer <- leader.raft.LeadershipTransferToServer(raft.ServerID(away.ID()), raft.ServerAddress(away.Address())).Error()
	}()
	eventually(t, "the transfer is under way", func() bool {
		return errors.Is(leader.raft.Barrier(0).Error(), raft.ErrLeadershipTransferInProgress)
	})
	// The control plane calls Lead again after a duty has failed.
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	began, ended := make(chan uint64, 1), make(chan error, 1)
	go func() {
		ended <- leader.Lead(stop, func(ctx context.Context, term uint64) error {
			began <- term
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	select {
	case now := <-began:
		t.Logf("the transfer ended with %v, and duties began in term %d after %d", <-transfer, now, term)
	case <-time.After(2 * patience):
		t.Errorf("this node is %v in term %d, which was %d, and its duties do not begin", leader.raft.State(), leader.raft.CurrentTerm(), term)
	}
	cancel()
	<-ended
}
