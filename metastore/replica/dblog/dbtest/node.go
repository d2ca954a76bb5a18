package dbtest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/replica"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog/memdb"
)

// node is one node, with what it logs.
type node struct {
	*dblog.Log
	rows    *replica.Replica
	machine *replica.Machine
	lines   *lines
	failed  *failures
	stop    func()
	term    atomic.Uint64 // that it led last
}

// lines is a log for people.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) have(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.all.String(), text)
}

// failures are what has stopped a machine.
type failures struct {
	mu  sync.Mutex
	all error
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = errors.Join(f.all, err)
}

func (f *failures) now() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all
}

func opened(t *testing.T, db dblog.Database) (*node, error) {
	t.Helper()
	n := &node{lines: &lines{}, failed: &failures{}, stop: func() {}}
	n.machine = replica.NewMachine(replica.MachineConfig{History: memdb.NewHistories().Node(), Fail: n.failed.add, SnapshotAfter: 1 << 30, Trailing: 1, Replay: time.Hour})
	var err error
	if n.Log, err = dblog.Open(t.Context(), dblog.Config{Database: db, Machine: n.machine, Node: "n", Logger: slog.New(slog.NewTextHandler(n.lines, nil))}); err != nil {
		return nil, err
	}
	n.rows = replica.New(replica.Config{Machine: n.machine, Log: n.Log, Now: n.Now})
	t.Cleanup(func() {
		n.stop()
		_ = n.Close()
		if err := n.failed.now(); err != nil {
			t.Errorf("the machine has failed: %v", err)
		}
	})
	return n, nil
}

func openNode(t *testing.T, db dblog.Database) *node {
	t.Helper()
	n, err := opened(t, db)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// lead has a node lead until stop, and waits until it does.
func (n *node) lead(t *testing.T) *node {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	over, begun := make(chan struct{}), make(chan struct{}, 1)
	go func() {
		defer close(over)
		_ = n.Lead(ctx, func(ctx context.Context, term uint64) error {
			n.term.Store(term)
			select {
			case begun <- struct{}{}:
			default:
			}
			<-ctx.Done()
			return nil
		})
	}()
	n.stop = func() { cancel(); <-over }
	select {
	case <-begun:
	case <-time.After(time.Minute):
		t.Fatal("it does not lead")
	}
	return n
}

func envelope(k kernel.Command) kernel.Envelope {
	return kernel.Envelope{ID: jobs.NewID(time.Now()), Tenant: jobs.DefaultTenant, Actor: "test", Command: k}
}

var register = kernel.Register{App: "app", Worker: "w", Start: true, Job: kernel.Declaration{Key: "k", Kind: kernel.Triggered}}

func create() kernel.Create { return kernel.Create{ID: jobs.NewID(time.Now()), Key: "k"} }

func (n *node) apply(t *testing.T, k kernel.Command) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return n.rows.Apply(ctx, []kernel.Envelope{envelope(k)})[0].Err
}

func (n *node) do(t *testing.T, commands ...kernel.Command) {
	t.Helper()
	for _, k := range commands {
		if err := n.apply(t, k); err != nil {
			t.Fatal(err)
		}
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
