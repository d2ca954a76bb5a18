// Package logtest tests that a log does what replica.Log promises, whatever it is made of. Begin with [Run].
//
// It is not promised to programs outside this module.
package logtest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// Node is one node of a log.
type Node struct {
	Log   replica.Log
	Store metastore.Full // commits through Log
	Hash  func() [sha256.Size]byte
	// Snapshot takes a snapshot while the node leads, and cuts the log.
	Snapshot func() error
}

// Cluster is the nodes of a log.
type Cluster interface {
	// Open opens node n, from 0: a new one, or one that was closed.
	Open(t *testing.T, n int) Node
}

// patience is how long what must happen may take.
const patience = time.Minute

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// member is an open node that leads when it can.
type member struct {
	Node
	stop func() // leading

	mu   sync.Mutex
	term uint64 // that it leads; 0 = none
	last uint64
}

func (m *member) leads() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.term
}

// scene is the members of a test.
type scene struct {
	t       *testing.T
	cluster Cluster
	members []*member

	mu    sync.Mutex
	terms map[uint64]int // the member that led a term
}

// open opens n members, and waits until one leads.
func open(t *testing.T, c Cluster, n int) *scene {
	t.Helper()
	s := &scene{t: t, cluster: c, terms: map[uint64]int{}}
	t.Cleanup(func() {
		for i := range s.members {
			s.close(i)
		}
	})
	for i := range n {
		s.members = append(s.members, nil)
		s.open(i)
		s.leader() // a node that comes later may need one
	}
	return s
}

func (s *scene) open(i int) *member {
	s.t.Helper()
	m := &member{Node: s.cluster.Open(s.t, i)}
	s.members[i] = m
	s.lead(i)
	return m
}

// lead has a member lead when it can.
func (s *scene) lead(i int) {
	m := s.members[i]
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = m.Log.Lead(ctx, func(ctx context.Context, term uint64) error {
			m.mu.Lock()
			if m.term > 0 || term < m.last {
				s.t.Errorf("node %d leads term %d after %d, while it leads %d", i, term, m.last, m.term)
			}
			m.term, m.last = term, term
			m.mu.Unlock()
			s.mu.Lock()
			if other, led := s.terms[term]; led && other != i {
				s.t.Errorf("node %d leads term %d, which node %d has led", i, term, other)
			}
			s.terms[term] = i
			s.mu.Unlock()
			<-ctx.Done()
			m.mu.Lock()
			defer m.mu.Unlock()
			m.term = 0
			return nil
		})
	}()
	m.stop = func() { cancel(); <-over }
}

func (s *scene) close(i int) {
	if m := s.members[i]; m != nil {
		m.stop()
		if err := m.Log.Close(); err != nil {
			s.t.Errorf("close node %d: %v", i, err)
		}
		s.members[i] = nil
	}
}

// leader waits for the member of the highest term.
func (s *scene) leader() (found int) {
	s.t.Helper()
	eventually(s.t, "a node leads", func() bool {
		best := uint64(0)
		for i, m := range s.members {
			if m != nil && m.leads() > best {
				best, found = m.leads(), i
			}
		}
		return best > 0
	})
	return found
}

func envelope(k kernel.Command) kernel.Envelope {
	return kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "test", Command: k}
}

func create() kernel.Create { return kernel.Create{ID: jobs.NewID(time.Now()), Key: "k"} }

// unsettled reports that a command was not done, or that this is unknown.
func unsettled(err error) bool {
	return errors.Is(err, jobs.Unavailable) || errors.Is(err, jobs.Unknown)
}

// apply has the leader do commands, whichever that is.
func (s *scene) apply(commands ...kernel.Command) {
	s.t.Helper()
	batch := make([]kernel.Envelope, len(commands))
	for i, k := range commands {
		batch[i] = envelope(k)
	}
	eventually(s.t, "the commands are done", func() bool {
		ctx, cancel := context.WithTimeout(s.t.Context(), patience)
		defer cancel()
		for _, r := range s.members[s.leader()].Store.Apply(ctx, batch) {
			if unsettled(r.Err) {
				return false
			}
			if r.Err != nil {
				s.t.Fatal(r.Err)
			}
		}
		return true
	})
}

func (s *scene) register() {
	s.t.Helper()
	s.apply(kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered}})
}

// same waits until all members have the rows of the leader.
func (s *scene) same() {
	s.t.Helper()
	for i, m := range s.members {
		if m != nil {
			eventually(s.t, fmt.Sprintf("node %d has the leader's rows", i), func() bool { return m.Hash() == s.members[s.leader()].Hash() })
		}
	}
}

// created is what became of the runs that clients wanted.
type created struct {
	mu            sync.Mutex
	done, refused []jobs.ID
}

// clients create runs on all members until stop is called.
func (s *scene) clients(n int, pick func() *member) (stop func() *created) {
	c := &created{}
	ctx, cancel := context.WithCancel(s.t.Context())
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil {
				m, k := pick(), create()
				if m == nil {
					time.Sleep(time.Millisecond)
					continue
				}
				asked, over := context.WithTimeout(context.Background(), patience)
				r := m.Store.Apply(asked, []kernel.Envelope{envelope(k)})[0]
				over()
				c.mu.Lock()
				switch {
				case r.Err == nil:
					c.done = append(c.done, k.ID)
				case errors.Is(r.Err, jobs.Unavailable):
					c.refused = append(c.refused, k.ID)
				case !errors.Is(r.Err, jobs.Unknown):
					s.t.Errorf("a creation is refused: %v", r.Err)
				}
				c.mu.Unlock()
				if r.Err != nil {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	return func() *created { cancel(); all.Wait(); return c }
}

// check compares what clients were answered with the rows.
func (s *scene) check(c *created) {
	s.t.Helper()
	rows := s.members[s.leader()].Store
	for _, id := range c.done {
		if _, err := rows.Run(s.t.Context(), jobs.DefaultTenant, id); err != nil {
			s.t.Errorf("run %s was acknowledged and is not there: %v", id, err)
		}
	}
	for _, id := range c.refused {
		if _, err := rows.Run(s.t.Context(), jobs.DefaultTenant, id); err == nil {
			s.t.Errorf("run %s was refused as not done and is there", id)
		}
	}
	s.t.Logf("%d acknowledged, %d refused", len(c.done), len(c.refused))
}

// Run tests the log of a cluster, a new one for each case. Several nodes need several.
func Run(t *testing.T, cluster func(t *testing.T) Cluster) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, c Cluster)
	}{
		{"one order", oneOrder},
		{"only the leader appends", onlyTheLeader},
		{"leaders that end", leadersThatEnd},
		{"cut behind a snapshot", cutBehindASnapshot},
		{"closed while entries are under way", closedUnderWay},
		{"reads after writes", readsAfterWrites},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, cluster(t)) })
	}
}

// Entries of several callers are applied in one order on all nodes, and each caller gets the answer to its own.
func oneOrder(t *testing.T, c Cluster) {
	s := open(t, c, 3)
	s.register()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				keys := []kernel.Command{create(), create(), create()}
				s.apply(keys...)
			}
		})
	}
	all.Wait()
	// A batch that takes several entries.
	large := make([]kernel.Envelope, 5000)
	for i := range large {
		large[i] = envelope(create())
	}
	results := s.members[s.leader()].Store.Apply(t.Context(), large)
	for i, r := range results {
		if r.Err == nil && r.Run().ID != large[i].Command.(kernel.Create).ID {
			t.Fatalf("command %d has the answer to another one", i)
		}
	}
	counts, err := s.members[s.leader()].Store.Counts(t.Context(), metastore.CountQuery{Tenant: jobs.DefaultTenant})
	if err != nil || counts.Live[jobs.Enqueued] < 480 {
		t.Errorf("%v, %v", counts.Live, err)
	}
	s.same()
}

// A node that does not lead refuses, and nothing of that is ever done.
func onlyTheLeader(t *testing.T, c Cluster) {
	s := open(t, c, 3)
	s.register()
	leader := s.leader()
	refused := &created{}
	for i, m := range s.members {
		if i == leader {
			continue
		}
		k := create()
		switch r := m.Store.Apply(t.Context(), []kernel.Envelope{envelope(k)})[0]; {
		case errors.Is(r.Err, jobs.Unavailable):
			refused.refused = append(refused.refused, k.ID)
		case r.Err == nil && s.leader() != leader: // it does by now
		default:
			t.Errorf("node %d, which does not lead: %v", i, r.Err)
		}
		if !m.Log.Confirmed(s.members[leader].leads()).IsZero() {
			t.Errorf("node %d led a term of another", i)
		}
	}
	if term := s.members[leader].leads(); term > 0 && s.members[leader].Log.Confirmed(term).IsZero() {
		t.Error("the leader was never confirmed")
	}
	s.apply(create())
	s.same()
	s.check(refused)
}

// Leaders stop leading, or are closed, while clients write: another node leads a later term, and has all that was
// acknowledged and nothing that was refused.
func leadersThatEnd(t *testing.T, c Cluster) {
	s := open(t, c, 3)
	s.register()
	var mu sync.Mutex
	turn := 0
	stop := s.clients(4, func() *member {
		mu.Lock()
		defer mu.Unlock()
		if turn++; turn%8 == 0 {
			return s.members[turn/8%3] // perhaps none that leads
		}
		for _, m := range s.members {
			if m != nil && m.leads() > 0 {
				return m
			}
		}
		return nil
	})
	replace := func(i int, m *member) {
		mu.Lock()
		defer mu.Unlock()
		s.members[i] = m
	}
	for round := range tests.Size(3, 6, 30) {
		i := s.leader()
		m := s.members[i]
		term := m.leads()
		m.stop()
		if round%2 == 0 {
			replace(i, nil)
			if err := m.Log.Close(); err != nil {
				t.Error(err)
			}
			eventually(t, "another node leads", func() bool { return s.members[s.leader()].leads() > term })
			m = &member{Node: s.cluster.Open(t, i)}
		} else {
			m = &member{Node: m.Node, last: m.last}
		}
		replace(i, m)
		s.lead(i)
		s.apply(create())
	}
	done := stop()
	s.apply(create())
	s.same()
	s.check(done)
}

// The log is cut behind a snapshot: a node that was away, and a new one, get the rows all the same.
func cutBehindASnapshot(t *testing.T, c Cluster) {
	s := open(t, c, 3)
	s.register()
	away := (s.leader() + 1) % 3
	s.close(away)
	for range 3 {
		for range 30 {
			s.apply(create(), create())
		}
		if err := s.members[s.leader()].Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	s.apply(create())
	s.open(away)
	s.members = append(s.members, nil)
	s.open(3)
	s.same()
	for i := range s.members { // all of them at once
		s.close(i)
	}
	for i := range s.members {
		s.open(i)
	}
	s.apply(create())
	s.same()
	counts, err := s.members[s.leader()].Store.Counts(t.Context(), metastore.CountQuery{Tenant: jobs.DefaultTenant})
	if err != nil || counts.Live[jobs.Enqueued] != 182 {
		t.Errorf("%v, %v", counts.Live, err)
	}
}

// A log that is closed answers all that waits, and what it acknowledged is there afterwards.
func closedUnderWay(t *testing.T, c Cluster) {
	s := open(t, c, 1)
	s.register()
	m := s.members[0]
	stop := s.clients(8, func() *member { return m })
	time.Sleep(50 * time.Millisecond)
	s.close(0)
	done := stop()
	if r := m.Store.Apply(t.Context(), []kernel.Envelope{envelope(create())}); !unsettled(r[0].Err) {
		t.Errorf("a closed log answers %v", r[0].Err)
	}
	s.open(0)
	s.check(done)
}

// A node that says that it is up to date has what was acknowledged before.
func readsAfterWrites(t *testing.T, c Cluster) {
	s := open(t, c, 3)
	s.register()
	current := 0
	for range tests.Size(30, 100, 1000) {
		k := create()
		s.apply(k)
		for i, m := range s.members {
			if m.Log.Linearizable(t.Context()) != nil {
				continue
			}
			current++
			if _, err := m.Store.Run(t.Context(), jobs.DefaultTenant, k.ID); err != nil {
				t.Errorf("node %d is up to date, and has not run %s: %v", i, k.ID, err)
			}
		}
	}
	if current == 0 {
		t.Error("no node was ever up to date")
	}
}
