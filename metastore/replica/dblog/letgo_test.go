package dblog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog/memdb"
)

// broken is a database as one node reaches it, once the way there is broken.
type broken struct {
	dblog.Database
	how atomic.Pointer[breakage]
}

// breakage says which statements fail, and how.
type breakage struct {
	name    string
	fails   string // statements whose letters are in it: I(nsert), R(enew), T(ake and release), Q(ueries)
	hangs   bool   // no answer comes, instead of an error
	reaches bool   // they are done all the same
}

// do does a statement, unless it is broken.
func do[A any](ctx context.Context, b *broken, kind string, fn func() (A, error)) (answer A, err error) {
	how := b.how.Load()
	if how == nil || !strings.Contains(how.fails, kind) {
		return fn()
	}
	if how.reaches {
		_, _ = fn()
	}
	if how.hangs {
		<-ctx.Done()
		return answer, ctx.Err()
	}
	return answer, errors.New("cannot execute INSERT in a read-only transaction")
}

type insertion struct {
	done bool
	now  time.Time
}

func (b *broken) Insert(ctx context.Context, rows []dblog.Row) (bool, time.Time, error) {
	a, err := do(ctx, b, "I", func() (insertion, error) {
		done, now, err := b.Database.Insert(ctx, rows)
		return insertion{done, now}, err
	})
	return a.done, a.now, err
}

func (b *broken) Renew(ctx context.Context, node string, term uint64, lease time.Duration) (bool, error) {
	return do(ctx, b, "R", func() (bool, error) { return b.Database.Renew(ctx, node, term, lease) })
}

func (b *broken) Take(ctx context.Context, node string, after uint64, lease time.Duration) (uint64, error) {
	return do(ctx, b, "T", func() (uint64, error) { return b.Database.Take(ctx, node, after, lease) })
}

func (b *broken) Release(ctx context.Context, node string, term uint64) error {
	_, err := do(ctx, b, "T", func() (struct{}, error) { return struct{}{}, b.Database.Release(ctx, node, term) })
	return err
}

func (b *broken) Rows(ctx context.Context, after uint64, bytes int) ([]dblog.Row, error) {
	return do(ctx, b, "Q", func() ([]dblog.Row, error) { return b.Database.Rows(ctx, after, bytes) })
}

type end struct {
	seq  uint64
	hash dblog.Hash
	now  time.Time
}

func (b *broken) End(ctx context.Context) (uint64, dblog.Hash, time.Time, error) {
	e, err := do(ctx, b, "Q", func() (end, error) {
		seq, hash, now, err := b.Database.End(ctx)
		return end{seq, hash, now}, err
	})
	return e.seq, e.hash, e.now, err
}

// breakages are the ways in which a leader loses its database.
var breakages = []breakage{
	{name: "cut off", fails: "IRTQ", hangs: true},
	{name: "answers lost", fails: "IRTQ", hangs: true, reaches: true},
	{name: "password changed", fails: "IRTQ"},
	{name: "read-only", fails: "IRT"},
	{name: "no room for entries", fails: "I"},
	{name: "frozen for entries", fails: "IR", hangs: true, reaches: true},
}

// dutiful leads like a control plane: a duty commits again and again, without a deadline of its own, and the term ends
// when it has returned.
type dutiful struct {
	*copied
	leads atomic.Bool
	ended atomic.Pointer[time.Time] // when the last term's duties had returned
}

func openDutiful(t *testing.T, db dblog.Database, n int) *dutiful {
	return &dutiful{copied: openCopied(t, db, n)}
}

func (d *dutiful) run(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() {
		done <- d.log.Lead(ctx, func(ctx context.Context, _ uint64) error {
			d.leads.Store(true)
			defer func() { d.leads.Store(false); d.ended.Store(new(time.Now())) }()
			for ctx.Err() == nil {
				d.rows.Apply(ctx, []kernel.Envelope{envelope(kernel.Create{ID: jobs.NewID(time.Now()), Key: "k"})})
				time.Sleep(100 * time.Millisecond)
			}
			return ctx.Err()
		})
	}()
	return done
}

// A leader that cannot commit lets go with its lease, whatever is unknown: its duties end, its callers are answered,
// another node leads, and the log decides what became of the entries. A leader that is stopped meanwhile ends at once.
func TestLeaderLetsGoWithItsLease(t *testing.T) {
	for _, how := range breakages {
		for _, stopped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stopped %v", how.name, stopped), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { letGo(t, how, stopped) })
			})
		}
	}
}

func letGo(t *testing.T, how breakage, stopped bool) {
	db := new(memdb.DB)
	way := &broken{Database: db}
	a, b := openDutiful(t, way, 0), openDutiful(t, db, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	here := a.run(ctx)
	time.Sleep(time.Second)
	a.do(t, registerK)
	there := b.run(ctx)
	time.Sleep(10*time.Second + 50*time.Millisecond) // between two commits
	if !a.leads.Load() || b.leads.Load() {
		t.Fatal("the first node does not lead alone")
	}
	began := time.Now()
	way.how.Store(&how)
	id := jobs.NewID(time.Now())
	var outcome error
	answered := make(chan time.Duration, 1)
	go func() {
		outcome = a.rows.Apply(context.Background(), []kernel.Envelope{envelope(kernel.Create{ID: id, Key: "k"})})[0].Err
		answered <- time.Since(began)
	}()
	if stopped {
		time.Sleep(200 * time.Millisecond)
		stop()
		select {
		case <-here:
			<-answered
		case <-time.After(time.Minute):
			t.Fatal("it does not stop")
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("a stop took %v", took)
		}
		return
	}
	// A lease is renewed every second, and given up half a second before its end.
	select {
	case took := <-answered:
		if took > dblog.DefaultLease+200*time.Millisecond {
			t.Errorf("a caller was answered after %v", took)
		}
	case <-time.After(time.Minute):
		t.Fatal("a caller is not answered")
	}
	if code := jobs.CodeOf(outcome); code != jobs.Unknown && code != jobs.Unavailable {
		t.Errorf("a caller was answered with %v", outcome)
	}
	time.Sleep(time.Until(began.Add(dblog.DefaultLease + 200*time.Millisecond)))
	if ended := a.ended.Load(); ended == nil || a.leads.Load() || a.log.Leads() {
		t.Error("the duties have not ended with the lease")
	}
	time.Sleep(2 * time.Second)
	if !b.leads.Load() {
		t.Error("the other node does not lead")
	}
	way.how.Store(nil)
	time.Sleep(2 * time.Second)
	stop()
	<-here
	<-there
	for _, node := range []*dutiful{a, b} {
		if err := node.log.Linearizable(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if a.machine.Engine.Hash() != b.machine.Engine.Hash() {
		t.Error("the nodes have different rows")
	}
	_, err := b.rows.Run(t.Context(), jobs.DefaultTenant, id)
	if there, refused := err == nil, jobs.CodeOf(outcome) == jobs.Unavailable; there && refused || !there && how.reaches {
		t.Errorf("the caller was answered with %v, and the run: %v", outcome, err)
	}
}
