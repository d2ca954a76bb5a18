package dbtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
	"github.com/carillon-scheduler/carillon/metastore/replica/logtest"
)

// Harness is an empty database, and what can happen to it.
type Harness struct {
	dblog.Database
	// Delete deletes the rows of the log from a number to another.
	Delete func(from, to uint64)
	// ForgetTerm lets terms begin at 1 again, with no lease.
	ForgetTerm func()
	// SpoilEntry changes a bit in the middle of the entry of a row, and SpoilPart of a part of the newest snapshot.
	SpoilEntry func(seq uint64)
	SpoilPart  func(n int)
	// Attempts returns how many snapshots have parts, published or not.
	Attempts func() int
}

// Run tests a database, a new one for each case.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Run("log", func(t *testing.T) {
		logtest.Run(t, func(t *testing.T) logtest.Cluster { return Cluster(open(t)) })
	})
	for _, c := range []struct {
		name string
		test func(t *testing.T, h Harness)
	}{
		{"rows", rows},
		{"leases", leases},
		{"snapshots", snapshots},
		{"two leaders", twoLeaders},
		{"lost answers", lostAnswers},
		{"late writes", lateWrites},
		{"lost end", lostEnd},
		{"holes", holes},
		{"torn snapshots", tornSnapshots},
		{"late parts", lateParts},
		{"damage", damage},
		{"far behind", farBehind},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

// generous is a database that gives everyone a lease.
type generous struct {
	dblog.Database
	mu   *sync.Mutex
	term *uint64
}

func (g generous) Take(_ context.Context, _ string, after uint64, _ time.Duration) (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	*g.term = max(*g.term, after) + 1
	return *g.term, nil
}

func (g generous) Renew(context.Context, string, uint64, time.Duration) (bool, error) {
	return true, nil
}
func (g generous) Release(context.Context, string, uint64) error { return nil }

// Two nodes that both take themselves for the leader: each entry is in the log, or it is not, and both see the same.
func twoLeaders(t *testing.T, h Harness) {
	var term uint64
	db := generous{h.Database, new(sync.Mutex), &term}
	a, b := openNode(t, db).lead(t), openNode(t, db)
	a.do(t, register)
	b.lead(t)
	var mu sync.Mutex
	done := map[jobs.ID]bool{}
	var all sync.WaitGroup
	for _, n := range []*node{a, b, a, b} {
		all.Go(func() {
			for acked, end := 0, time.Now().Add(time.Minute); acked < 10 && time.Now().Before(end); {
				k := create()
				err := n.apply(t, k)
				switch {
				case err == nil:
					acked++
				case !errors.Is(err, jobs.Unavailable):
					t.Errorf("a creation is answered with %v", err)
				default:
					time.Sleep(time.Millisecond)
				}
				mu.Lock()
				done[k.ID] = err == nil
				mu.Unlock()
			}
		})
	}
	all.Wait()
	a.stop()
	b.stop()
	a.stop, b.stop = func() {}, func() {}
	eventually(t, "both have the same rows", func() bool { return a.machine.Engine.Hash() == b.machine.Engine.Hash() })
	fresh := openNode(t, h.Database)
	if fresh.machine.Engine.Hash() != a.machine.Engine.Hash() {
		t.Error("a node that reads the log has other rows")
	}
	acked := 0
	for id, was := range done {
		if _, err := fresh.rows.Run(t.Context(), jobs.DefaultTenant, id); (err == nil) != was {
			t.Errorf("run %s was acknowledged: %v, and is there: %v", id, was, err == nil)
		}
		if was {
			acked++
		}
	}
	if acked != 40 {
		t.Errorf("%d of 40 were acknowledged", acked)
	}
}

// mute is a database whose answers to inserts are lost, as told.
type mute struct {
	dblog.Database
	mu   sync.Mutex
	next []func(insert func()) // what becomes of the next inserts
	late sync.WaitGroup
}

var errNoAnswer = errors.New("no answer")

func (m *mute) Insert(ctx context.Context, rows []dblog.Row) (bool, time.Time, error) {
	m.mu.Lock()
	var do func(insert func())
	if len(m.next) > 0 {
		do, m.next = m.next[0], m.next[1:]
	}
	m.mu.Unlock()
	if do == nil {
		return m.Database.Insert(ctx, rows)
	}
	do(func() { _, _, _ = m.Database.Insert(context.WithoutCancel(ctx), rows) })
	return false, time.Time{}, errNoAnswer
}

// Where no answer comes the entry is inserted again, until it is known whether it is there: once, or not at all.
func lostAnswers(t *testing.T, h Harness) {
	m := &mute{Database: h.Database}
	n := openNode(t, m).lead(t)
	n.do(t, register)
	later := make(chan struct{})
	for name, next := range map[string][]func(func()){
		"done":              {func(insert func()) { insert() }},
		"not done":          {func(func()) {}},
		"not done, twice":   {func(func()) {}, func(func()) {}},
		"done after others": {func(func()) {}, func(insert func()) { insert() }},
		"done late": {func(insert func()) {
			m.late.Go(func() { <-later; insert() })
		}},
	} {
		m.mu.Lock()
		m.next = next
		m.mu.Unlock()
		k := create()
		if err := n.apply(t, k); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := n.rows.Run(t.Context(), jobs.DefaultTenant, k.ID); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	close(later)
	m.late.Wait()
	n.do(t, create())
	fresh := openNode(t, h.Database)
	counts, err := fresh.rows.Counts(t.Context(), metastore.CountQuery{Tenant: jobs.DefaultTenant})
	if err != nil || counts.Live[jobs.Enqueued] != 6 || fresh.machine.Engine.Hash() != n.machine.Engine.Hash() {
		t.Errorf("there are %v, %v: want 6, and the same rows", counts.Live, err)
	}
	// It is closed before it is known.
	m.mu.Lock()
	for range 1000 {
		m.next = append(m.next, func(func()) {})
	}
	m.mu.Unlock()
	answer := make(chan error, 1)
	go func() { answer <- n.apply(t, create()) }()
	eventually(t, "it was tried", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.next) < 1000
	})
	n.stop()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := <-answer; !errors.Is(err, jobs.Unknown) {
		t.Errorf("it is answered with %v", err)
	}
}

// held is a database that a node's inserts reach only when they are let go.
type held struct {
	dblog.Database
	mu      sync.Mutex
	through chan struct{} // closed: they are; nil: none is held
	waiting atomic.Int32
}

func (d *held) hold() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	through := make(chan struct{})
	d.through = through
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.through = nil
		close(through)
	}
}

func (d *held) Insert(ctx context.Context, rows []dblog.Row) (bool, time.Time, error) {
	d.mu.Lock()
	through := d.through
	d.mu.Unlock()
	if through != nil {
		d.waiting.Add(1)
		<-through
	}
	return d.Database.Insert(ctx, rows)
}

// What a former leader has sent arrives when another one leads: either it is refused, or the new leader has it before it
// says that it is up to date.
func lateWrites(t *testing.T, h Harness) {
	var term uint64
	db := generous{h.Database, new(sync.Mutex), &term}
	toA, toB := &held{Database: db}, &held{Database: db}
	a, b := openNode(t, toA).lead(t), openNode(t, toB)
	a.do(t, register)
	late := func() (jobs.ID, chan error) {
		k, answer := create(), make(chan error, 1)
		go func() { answer <- a.apply(t, k) }()
		return k.ID, answer
	}
	check := func(id jobs.ID, answer chan error) {
		t.Helper()
		err := <-answer
		if err != nil && !errors.Is(err, jobs.Unavailable) {
			t.Errorf("a late write is answered with %v", err)
		}
		asked, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if b.Linearizable(asked) != nil {
			return
		}
		if _, there := b.rows.Run(t.Context(), jobs.DefaultTenant, id); (there == nil) != (err == nil) {
			t.Errorf("a late write was acknowledged: %v; the new leader has it: %v", err == nil, there == nil)
		}
	}
	// It arrives when the other one leads.
	release := toA.hold()
	id, answer := late()
	eventually(t, "it is sent", func() bool { return toA.waiting.Load() == 1 })
	b.lead(t)
	release()
	check(id, answer)
	eventually(t, "the first one leads again", func() bool { return a.apply(t, create()) == nil })
	b.stop()
	b.stop = func() {}
	// It arrives while the other one is about to lead.
	a.do(t, create())
	release = toB.hold()
	was := toB.waiting.Load()
	begun := make(chan struct{})
	go func() { defer close(begun); b.lead(t) }()
	eventually(t, "the other one begins its term", func() bool { return toB.waiting.Load() > was })
	id, answer = late()
	check(id, answer)
	release()
	<-begun
	check(id, func() chan error { c := make(chan error, 1); c <- nil; return c }())
}

// A database that has lost the end of the log, as a replica may that is promoted: the leader writes nothing behind what
// is gone, and all nodes go on from what is there, and say so.
func lostEnd(t *testing.T, h Harness) {
	view := &slow{Database: h.Database}
	leader, follower, asleep := openNode(t, h.Database).lead(t), openNode(t, h.Database), openNode(t, view)
	leader.do(t, register, create(), create())
	kept := leader.machine.Engine.Hash()
	at := must[uint64](t)(seq(h))
	leader.stop()
	leader.lead(t)
	lost := create()
	leader.do(t, lost, create())
	for _, n := range []*node{follower, asleep} {
		eventually(t, "the followers have it", func() bool { return n.machine.Engine.Hash() == leader.machine.Engine.Hash() })
	}
	view.set(true)
	h.Delete(at+1, at+3) // the entry that began the term, too
	h.ForgetTerm()
	led := leader.term.Load()
	if err := follower.Linearizable(t.Context()); err != nil || follower.machine.Engine.Hash() != kept {
		t.Errorf("a follower that is asked after that has other rows than the log: %v", err)
	}
	if err := leader.apply(t, create()); !errors.Is(err, jobs.Unavailable) {
		t.Errorf("the leader writes behind what is gone: %v", err)
	}
	eventually(t, "it leads again", func() bool { return leader.apply(t, create()) == nil })
	if again := leader.term.Load(); again <= led {
		t.Errorf("it leads term %d after term %d", again, led)
	}
	leader.do(t, create(), create(), create())
	view.set(false) // it finds more than it has
	for _, n := range []*node{follower, asleep} {
		eventually(t, "the followers have the same rows", func() bool { return n.machine.Engine.Hash() == leader.machine.Engine.Hash() })
	}
	fresh := openNode(t, h.Database)
	for i, n := range []*node{leader, follower, asleep, fresh} {
		if n.machine.Engine.Hash() != fresh.machine.Engine.Hash() {
			t.Errorf("node %d has other rows than the log", i)
		}
		if _, err := n.rows.Run(t.Context(), jobs.DefaultTenant, lost.ID); !errors.Is(err, jobs.NotFound) {
			t.Errorf("node %d still has what is gone: %v", i, err)
		}
		if said := n.lines.have("lost entries"); said != (n != fresh) {
			t.Errorf("node %d says that entries are lost: %v", i, said)
		}
	}
}

func seq(h Harness) (uint64, error) {
	seq, _, _, err := h.End(context.Background())
	return seq, err
}

// Rows that are missing in the middle stop every node that needs them.
func holes(t *testing.T, h Harness) {
	n := openNode(t, h.Database).lead(t)
	n.do(t, register, create(), create(), create())
	n.stop()
	n.stop = func() {}
	h.Delete(3, 3)
	if _, err := opened(t, h.Database); err == nil || !strings.Contains(err.Error(), "does not continue") {
		t.Errorf("a log with a hole is opened: %v", err)
	}
}

// torn is a database in which something happens to a part of a snapshot.
type torn struct {
	dblog.Database
	next func(of dblog.Snapshot, n int, put func(part []byte) error, part []byte) error // nil = nothing
}

func (d *torn) PutPart(ctx context.Context, of dblog.Snapshot, n int, part []byte) error {
	put := func(part []byte) error { return d.Database.PutPart(ctx, of, n, part) }
	if d.next == nil {
		return put(part)
	}
	return d.next(of, n, put, part)
}

// fullNode is a node with so many jobs that their snapshot has several parts. Jobs come in another order each time.
func fullNode(t *testing.T, db dblog.Database) *node {
	n := openNode(t, db).lead(t)
	batch := make([]kernel.Envelope, 2000)
	for i := range batch {
		text := strings.Repeat(fmt.Sprint(1+i*7919), 900)[:900]
		batch[i] = envelope(kernel.Register{App: "a", Worker: "w", Start: true, Job: kernel.Declaration{
			Key: jobs.Key(fmt.Sprintf("job.%04d", i)), Kind: kernel.Triggered, Code: kernel.Settings{Description: &text}}})
	}
	for _, r := range n.rows.Apply(t.Context(), batch) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	return n
}

// Whatever becomes of an attempt to write a snapshot, the one before and the log behind it are read until another was
// read back, also one of the same entry; and no parts of such an attempt stay.
func tornSnapshots(t *testing.T, h Harness) {
	db := &torn{Database: h.Database}
	n := fullNode(t, db)
	same := func(when string) {
		t.Helper()
		if fresh, err := opened(t, h.Database); err != nil || fresh.machine.Engine.Hash() != n.machine.Engine.Hash() {
			t.Fatalf("%s: a node that opens the log has other rows, or none: %v", when, err)
		}
	}
	for name, next := range map[string]func(of dblog.Snapshot, n int, put func([]byte) error, part []byte) error{
		"not written": func(_ dblog.Snapshot, n int, put func([]byte) error, part []byte) error {
			if n == 1 {
				return errNoAnswer
			}
			return put(part)
		},
		"written without an answer": func(_ dblog.Snapshot, n int, put func([]byte) error, part []byte) error {
			if err := put(part); err != nil || n == 0 {
				return err
			}
			return errNoAnswer
		},
		"damaged": func(_ dblog.Snapshot, n int, put func([]byte) error, part []byte) error {
			if n == 1 {
				part = bytes.Clone(part)
				part[len(part)/2] ^= 4
			}
			return put(part)
		},
		"cut short": func(_ dblog.Snapshot, n int, put func([]byte) error, part []byte) error {
			return put(part[:len(part)-1])
		},
		"of two attempts": func() func(dblog.Snapshot, int, func([]byte) error, []byte) error {
			first := map[int][]byte{} // of the same entry, in another order
			return func(_ dblog.Snapshot, n int, put func([]byte) error, part []byte) error {
				if first[n] == nil {
					first[n] = bytes.Clone(part)
					if n == 1 {
						return errNoAnswer
					}
				}
				return put(first[n])
			}
		}(),
	} {
		before := must[*dblog.Snapshot](t)(h.Newest(t.Context()))
		db.next = next
		for range 2 { // at the same entry
			if err := n.Snapshot(t.Context()); err == nil {
				t.Fatalf("%s: the snapshot is written", name)
			}
			if s := must[*dblog.Snapshot](t)(h.Newest(t.Context())); (s == nil) != (before == nil) || s != nil && *s != *before {
				t.Fatalf("%s: the newest snapshot is %+v, was %+v", name, s, before)
			}
			same(name)
		}
		if attempts := h.Attempts(); attempts > 3 {
			t.Errorf("%s: parts of %d attempts stay", name, attempts)
		}
		db.next = nil
		if err := n.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := must[*dblog.Snapshot](t)(h.Newest(t.Context())); s == nil || s.Parts < 2 {
			t.Fatalf("%s: the snapshot is %+v", name, s)
		}
		same(name + ", and written again")
		n.do(t, kernel.Create{ID: jobs.NewID(time.Now()), Key: "job.0000"})
		same(name + ", and more")
		if attempts := h.Attempts(); attempts > 2 {
			t.Errorf("%s, and written again: parts of %d attempts stay", name, attempts)
		}
	}
}

// A part of a former attempt that arrives late does not spoil the attempt under way, at the same entry.
func lateParts(t *testing.T, h Harness) {
	db := &torn{Database: h.Database}
	n := fullNode(t, db)
	var late func() error
	db.next = func(_ dblog.Snapshot, n int, put func([]byte) error, part []byte) error {
		switch {
		case n != 1:
			return put(part)
		case late == nil:
			part = bytes.Clone(part)
			late = func() error { return put(part) }
			return errNoAnswer
		}
		return errors.Join(late(), put(part))
	}
	if err := n.Snapshot(t.Context()); !errors.Is(err, errNoAnswer) {
		t.Fatalf("the snapshot is written: %v", err)
	}
	if err := n.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if openNode(t, h.Database).machine.Engine.Hash() != n.machine.Engine.Hash() {
		t.Error("the snapshot makes other rows")
	}
}

// A changed bit in an entry, or in a snapshot, is noticed, and nothing is made of it.
func damage(t *testing.T, h Harness) {
	n := openNode(t, h.Database).lead(t)
	n.do(t, register, create(), create())
	end := must[uint64](t)(seq(h))
	h.SpoilEntry(end)
	if _, err := opened(t, h.Database); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("log entry %d: wrong checksum", end)) {
		t.Errorf("a damaged entry is read: %v", err)
	}
	if err := n.Snapshot(t.Context()); err != nil { // of rows that are whole
		t.Fatal(err)
	}
	fresh := openNode(t, h.Database)
	if fresh.machine.Engine.Hash() != n.machine.Engine.Hash() {
		t.Error("the snapshot makes other rows")
	}
	h.SpoilPart(0)
	if _, err := opened(t, h.Database); err == nil || !strings.Contains(err.Error(), "snapshot at entry") {
		t.Errorf("a damaged snapshot is read: %v", err)
	}
}

// slow is a database that a node cannot read at times.
type slow struct {
	dblog.Database
	mu   sync.Mutex
	down bool
}

func (s *slow) set(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *slow) End(ctx context.Context) (uint64, dblog.Hash, time.Time, error) {
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	if down {
		return 0, dblog.Hash{}, time.Time{}, errNoAnswer
	}
	return s.Database.End(ctx)
}

// A node for which the log has been cut reads the snapshot, and nothing is lost.
func farBehind(t *testing.T, h Harness) {
	view := &slow{Database: h.Database}
	n, behind := openNode(t, h.Database).lead(t), openNode(t, view)
	n.do(t, register, create())
	eventually(t, "it follows", func() bool { return behind.machine.Engine.Hash() == n.machine.Engine.Hash() })
	view.set(true)
	for range 3 {
		n.do(t, create(), create())
		if err := n.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	n.do(t, create())
	if err := behind.Linearizable(t.Context()); !errors.Is(err, jobs.Unavailable) {
		t.Errorf("it is up to date: %v", err)
	}
	view.set(false)
	eventually(t, "it follows again", func() bool { return behind.machine.Engine.Hash() == n.machine.Engine.Hash() })
	if behind.lines.have("lost entries") {
		t.Error("it says that entries are lost")
	}
}
