package storetest

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
)

// A store on a database cannot look up rows while Apply runs: it loads what metastore.Gather names, and no more. This
// is such a store, on rows in memory. It stops where Apply reads a row that was not gathered.
func TestGathered(t *testing.T) {
	Run(t, func(*testing.T) Harness { return openGathered() })
}

// In this life, a command took all the waiters that were gathered, and a newcomer of the same batch overtook the
// next.
func TestGatheredNewcomer(t *testing.T) { live(t, openGathered(), newFate(1029), 300) }

// A job that is deleted and made again within a batch needs the gates of both.
func TestGatheredDeletedAndMadeAgain(t *testing.T) {
	h := openGathered()
	limited := triggered("print", kernel.Settings{MaxConcurrency: new(1)})
	must(t, h, limited)
	var batch []kernel.Envelope
	for i, k := range []kernel.Command{kernel.Create{ID: jobs.ID{1}, Key: "print"}, kernel.Delete{Key: "print"}, limited, kernel.Create{ID: jobs.ID{2}, Key: "print"},
		kernel.Cancel{ID: jobs.ID{1}}, kernel.Create{ID: jobs.ID{3}, Key: "print"}} {
		batch = append(batch, kernel.Envelope{ID: jobs.ID{100, byte(i)}, Tenant: "default", Actor: "a", Command: k})
	}
	for i, r := range h.Store.Apply(t.Context(), batch) {
		if r.Err != nil {
			t.Errorf("command %d: %v", i, r.Err)
		}
	}
	for id, waits := range map[jobs.ID]bool{{2}: false, {3}: true} {
		if run, err := h.Store.Run(t.Context(), "default", id); err != nil || (run.Waits != "") != waits {
			t.Errorf("run %s waits at %q: %v", id, run.Waits, err)
		}
	}
	invariants(t, nil, rowsOf(h))
}

func openGathered() Harness {
	clock, engine := NewClock(), memstore.New(memstore.Config{})
	return Harness{
		Store: &gathered{Engine: engine, now: clock.Now},
		Clock: clock,
		Rows:  func() iter.Seq[kernel.Row] { return engine.Capture().Rows() },
	}
}

type gathered struct {
	*memstore.Engine
	now  func() time.Time
	mu   sync.Mutex
	last time.Time
}

func (g *gathered) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	return metastore.Admitted(batch, metastore.Archived(ctx, g, g.now()), func(batch []kernel.Envelope) (results []metastore.Result) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return metastore.Refused(batch, kernel.Refuse(jobs.Unavailable, "not done: %v", err))
		}
		g.last = metastore.Stamp(batch, g.now(), g.last)
		g.Update(func(tx metastore.Tx) {
			view := &view{tx: tx, asked: map[kernel.Ref]bool{}, first: map[kernel.Ref]int{}, more: map[kernel.Ref]bool{}, rows: map[kernel.Ref]kernel.Row{}}
			for ref, row := range metastore.Gather(batch, view.load) {
				view.rows[ref] = row
			}
			results = metastore.ApplyBatch(view, batch)
		})
		return results
	})
}

// view is the rows that were gathered, with what was put since.
type view struct {
	tx    metastore.Tx
	asked map[kernel.Ref]bool
	first map[kernel.Ref]int  // how many waiters of a gate were asked for
	more  map[kernel.Ref]bool // as many were found: others may wait behind them
	rows  map[kernel.Ref]kernel.Row
}

// load is one round of queries to the database.
func (v *view) load(w metastore.Wants) []kernel.Row {
	var found []kernel.Row
	for _, ref := range w.Refs {
		if v.asked[ref] {
			panic(fmt.Sprintf("%+v is asked for twice", ref))
		}
		v.asked[ref] = true
		if row := v.tx.Get(ref); row != nil {
			found = append(found, row)
		}
	}
	for gate, n := range w.First {
		if n <= v.first[gate] {
			panic(fmt.Sprintf("the first %d of %+v are asked for twice", n, gate))
		}
		all := waiters(v.tx, gate, n)
		v.first[gate], v.more[gate] = n, len(all) == n
		for _, run := range all {
			found = append(found, run)
		}
	}
	return found
}

// waiters are the first n runs that wait at a gate: each is put aside to see the next, and put back.
func waiters(tx metastore.Tx, gate kernel.Ref, n int) []*kernel.Run {
	var found []*kernel.Run
	for len(found) < n {
		run := tx.First(gate)
		if run == nil {
			break
		}
		found = append(found, run)
		aside := *run
		aside.Waits = ""
		tx.Put(&aside)
	}
	for _, run := range found {
		tx.Put(run)
	}
	return found
}

func (v *view) Get(ref kernel.Ref) kernel.Row {
	row, ok := v.rows[ref]
	if !ok && !v.asked[ref] {
		panic(fmt.Sprintf("%+v was not gathered", ref))
	}
	return row
}

// First is the first of the loaded ones. If all that were wanted have their slots, others that are not loaded may
// wait after them.
func (v *view) First(gate kernel.Ref) *kernel.Run {
	n, ok := v.first[gate]
	if !ok {
		panic(fmt.Sprintf("the first at %+v was not gathered", gate))
	}
	var first *kernel.Run
	for _, row := range v.rows {
		run, ok := row.(*kernel.Run)
		if ok && run.Waits != "" && kernel.GateRef(run.Tenant, run.Waits) == gate && (first == nil || before(run, first)) {
			first = run
		}
	}
	real := v.tx.First(gate)
	if first == nil && real != nil && v.more[gate] && n > 256 {
		return nil // more wait than a commit loads: as far as a database sees, none does
	}
	if (first == nil) != (real == nil) || first != nil && real.ID != first.ID {
		panic(fmt.Sprintf("at %+v, %d waiters were gathered, and the first is another: it is %v", gate, n, real))
	}
	return first
}

// before is the order in which runs wait, as metastore.Tx promises it.
func before(a, b *kernel.Run) bool {
	if a.First != b.First {
		return a.First
	}
	return cmp.Or(-cmp.Compare(a.Priority, b.Priority), a.Due.Compare(b.Due), cmp.Compare(string(a.ID[:]), string(b.ID[:]))) < 0
}

func (v *view) Put(row kernel.Row) {
	v.tx.Put(row)
	if row.Ref().Kind == kernel.RowTally {
		return
	}
	ref := row.Ref()
	if run, ok := row.(*kernel.Run); ok && run.Settled() {
		v.rows[ref] = v.tx.Get(ref) // the stub
		return
	}
	v.rows[ref] = row
}

func (v *view) Delete(ref kernel.Ref) {
	if v.more[ref] {
		return
	}
	v.tx.Delete(ref)
	delete(v.rows, ref)
	v.asked[ref] = true
}
