package raftstore

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// steps counts the steps of a node that joins or catches up: each dial, read and write between it and the others, and
// each line that it logs, including raft's. The leader is disturbed at one of them.
type steps struct {
	mu   sync.Mutex
	at   int // the step; 0 = none
	n    int
	name string
	hit  chan struct{} // closed at that step
	goOn chan struct{} // the step waits for it
}

func (s *steps) step(name string) {
	s.mu.Lock()
	s.n++
	hit := s.n == s.at
	if hit {
		s.name = name
	}
	s.mu.Unlock()
	if hit {
		close(s.hit)
		<-s.goOn
	}
}

// stepping is a connection whose reads and writes are steps.
type stepping struct {
	net.Conn
	name  string
	steps *steps
}

func (c *stepping) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.steps.step(c.name + " reads")
	return n, err
}

func (c *stepping) Write(b []byte) (int, error) {
	c.steps.step(c.name + " writes")
	return c.Conn.Write(b)
}

// moving is a cluster in which one node gets a snapshot and runs that ended, step by step.
type moving struct {
	*cluster
	mu    sync.RWMutex // over stores
	ws    *walls
	steps *steps
	to    string // the address of the node
}

func newMoving(t *testing.T, at int) *moving {
	m := &moving{ws: &walls{group: make(map[string]int), conns: make(map[*walled]struct{})}}
	m.steps = &steps{at: at, hit: make(chan struct{}), goOn: make(chan struct{})}
	if at == 0 {
		close(m.steps.goOn)
	}
	m.cluster = newCluster(t, 3, m.adjust)
	for _, s := range m.stores {
		lead(s)
	}
	do(t, m, register("k"))
	finish(t, m, 50)
	m.same()
	return m
}

// adjust has a node's connections to the one that catches up counted, once that is known.
func (m *moving) adjust(c *Config) {
	c.Log, c.Heartbeat = LogBolt, time.Second // bbolt deletes entries at once
	dial := m.ws.dialer(c.Listen)
	c.dialer = func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		if m.mu.RLock(); err == nil && address == m.to {
			conn = &stepping{conn, "another node", m.steps}
		}
		m.mu.RUnlock()
		return conn, err
	}
}

// counted is the configuration of the node that catches up.
func (m *moving) counted(c Config) Config {
	dial := m.ws.dialer(c.Listen)
	c.dialer = func(ctx context.Context, address string) (net.Conn, error) {
		m.steps.step("the node dials")
		conn, err := dial(ctx, address)
		if err != nil {
			return nil, err
		}
		return &stepping{conn, "the node", m.steps}, nil
	}
	c.Logger = slog.New(onLog(func(message string) { m.steps.step("the node logs: " + message) }))
	m.mu.Lock()
	m.to = c.Listen
	m.mu.Unlock()
	return c
}

func (m *moving) nodes() []*Store {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return slices.DeleteFunc(slices.Clone(m.stores), func(s *Store) bool { return s == nil })
}

// lead has a node lead whenever it can, as a control plane does, until it is closed: one whose archive is not
// complete yields.
func lead(s *Store) {
	go func() {
		_ = s.Lead(ctx, func(ctx context.Context, _ uint64) error {
			<-ctx.Done()
			return ctx.Err()
		})
	}()
}

// put notes that a node is up, or down.
func (m *moving) put(i int, s *Store) {
	if s != nil {
		lead(s)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if i == len(m.stores) {
		m.stores = append(m.stores, nil)
	}
	m.stores[i] = s
}

// another waits until a node leads other than this one.
func (m *moving) another(old *Store) {
	m.t.Helper()
	eventually(m.t, "another node leads", func() bool {
		return slices.ContainsFunc(m.nodes(), func(s *Store) bool { return s != old && s.Linearizable(ctx) == nil })
	})
}

// disturbances are what happens to the leader.
var disturbances = []string{"transfers leadership", "is cut off", "is stopped"}

// disturb disturbs the leader at the step, and returns a function that undoes it.
func (m *moving) disturb(how string, leader *Store) (restore func()) {
	m.mu.RLock()
	at := m.index(leader)
	m.mu.RUnlock()
	switch how {
	case "transfers leadership": // while the step waits
		defer close(m.steps.goOn)
		eventually(m.t, "another node leads", func() bool {
			if leader.raft.State().String() == "Leader" {
				_ = leader.Transfer(ctx, by, "")
			}
			return slices.ContainsFunc(m.nodes(), func(s *Store) bool { return s != leader && s.raft.State().String() == "Leader" })
		})
		return func() {}
	case "is cut off":
		close(m.steps.goOn)
		m.ws.apart(leader.cfg.Listen)
		m.another(leader)
		return func() { m.ws.apart() }
	default:
		close(m.steps.goOn)
		m.put(at, nil)
		if err := leader.Close(); err != nil {
			m.t.Error(err)
		}
		m.another(leader)
		return func() {
			s, err := Open(m.configs[at])
			if err != nil {
				m.t.Fatal(err)
			}
			m.put(at, s)
		}
	}
}

// play has a node catch up, by a function that returns when it has, disturbs the leader at a step, and checks that
// the cluster is whole afterwards. It returns how many steps there were.
func (m *moving) play(how string, catchUp func() error) int {
	t := m.t.(*testing.T)
	leader := m.leader()
	crowd := newCrowd(t, 1, m.nodes)
	done := make(chan error, 1)
	go func() { done <- catchUp() }()
	restore := func() {}
	var err error
	select {
	case err = <-done: // before the step
	case <-m.steps.hit:
		restore = m.disturb(how, leader)
		select {
		case err = <-done:
		case <-time.After(2 * patience):
			t.Fatalf("at step %s: the node does not catch up, without an error", m.steps.name)
		}
	}
	m.steps.mu.Lock()
	m.steps.at = 0
	m.steps.mu.Unlock()
	restore()
	for end := time.Now().Add(4 * patience); err != nil; err = catchUp() {
		t.Logf("at step %s: %v", m.steps.name, err)
		if time.Now().After(end) {
			t.Fatal("the node does not catch up")
		}
	}
	m.steps.mu.Lock()
	n := m.steps.n
	m.steps.mu.Unlock()
	crowd.stop()
	m.same()
	crowd.judge(m.nodes())
	return n
}

// Whatever happens to the leader, at any step, while a node joins or gets a snapshot: the cluster elects one leader,
// the node becomes a member, or returns an error and succeeds when it asks again, and nothing is lost.
func TestLeaderMovesWhileNodeCatchesUp(t *testing.T) {
	tests.Long(t)
	for what, begin := range map[string]func(m *moving) (catchUp func() error){
		"joins": func(m *moving) func() error {
			m.cut(1)
			token := invite(m.t.(*testing.T), m.leader())
			conf := m.counted(nodeConfig(m.t, 3, m.adjust))
			m.configs = append(m.configs, conf)
			return func() error {
				wait, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				s, err := Join(wait, conf, token)
				if err == nil {
					m.put(3, s)
				}
				return err
			}
		},
		"lags": func(m *moving) func() error {
			away := m.lag()
			m.configs[away] = m.counted(m.configs[away])
			return func() error {
				m.mu.RLock()
				s := m.stores[away]
				m.mu.RUnlock()
				if s == nil {
					var err error
					if s, err = Open(m.configs[away]); err != nil {
						return err
					}
					m.put(away, s)
				}
				for end := time.Now().Add(patience); s.Age() > time.Second || !s.Whole() || s.machine.isBehind(); time.Sleep(5 * time.Millisecond) {
					if time.Now().After(end) {
						return fmt.Errorf("it is %v behind", s.Age())
					}
				}
				return nil
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMoving(t, 0)
			all := m.play("", begin(m))
			t.Logf("a node that %s takes %d steps", what, all)
			plays := tests.Size(0, 9, 60)
			for i := range plays {
				at, how := 1+i*all/plays, disturbances[i%len(disturbances)]
				t.Run(fmt.Sprintf("%d, the leader %s", at, how), func(t *testing.T) {
					t.Parallel()
					m := newMoving(t, at)
					m.play(how, begin(m))
					t.Logf("at step %d: %s", at, m.steps.name)
				})
			}
		})
	}
}
