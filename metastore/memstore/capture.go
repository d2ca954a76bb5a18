package memstore

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Snapshot is the rows at one moment. It shares them with the engine, because rows never change.
type Snapshot struct {
	rows    []kernel.Row
	stubs   []*generation
	tenants []jobs.Tenant
}

// Capture takes a snapshot. It stops commits only for as long as it takes to copy pointers.
func (e *Engine) Capture() *Snapshot {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rows.capture()
}

func (r *rows) capture() *Snapshot {
	size := 1
	for _, s := range r.spaces {
		size += len(s.nodes) + len(s.definitions) + len(s.gates) + len(s.uniques) + len(s.tokens) + len(s.sessions) + len(s.audits) + len(s.plain) + len(s.calendars) + 1
	}
	snap := &Snapshot{rows: make([]kernel.Row, 0, size), stubs: r.settled.share(), tenants: make([]jobs.Tenant, len(r.spaces))}
	put := func(row kernel.Row) { snap.rows = append(snap.rows, row) }
	if r.store != nil {
		put(r.store)
	}
	for _, s := range r.inOrder("*") {
		snap.tenants[s.number] = s.tenant
		if s.global != nil {
			put(s.global)
		}
		for _, d := range s.definitions {
			put(d.row)
		}
		for _, g := range s.gates {
			if g.row != nil {
				put(g.row)
			}
		}
		for _, u := range s.uniques {
			put(u.row)
		}
		for _, of := range s.missed {
			for _, m := range of.list {
				put(m)
			}
		}
		for _, t := range s.tokens {
			put(t.row)
		}
		for _, found := range s.sessions {
			put(found.row)
		}
		for _, c := range s.calendars {
			put(c)
		}
		for _, a := range s.audits {
			put(a)
		}
		for _, row := range s.plain {
			put(row)
		}
		for job, of := range s.tallies {
			for _, c := range of.counts {
				put(&kernel.Tally{Tenant: s.tenant, Job: job, State: c.state, Hour: c.hour, N: c.n})
			}
		}
		for n := s.all.first; n != nil; n = n.links[inAll].newer {
			put(n.row)
		}
	}
	return snap
}

// Rows lists the snapshot: live runs in the order of their creation, and stubs of settled runs as rows of settled
// runs. Restore takes this.
func (s *Snapshot) Rows() iter.Seq[kernel.Row] {
	return func(yield func(kernel.Row) bool) {
		for _, row := range s.rows {
			if !yield(row) {
				return
			}
		}
		for _, g := range s.stubs {
			for row := range g.rows(s.tenants) {
				if !yield(row) {
					return
				}
			}
		}
	}
}

// Hash is a fingerprint of the rows, in any order: two engines that have applied the same commits have the same.
func (e *Engine) Hash() [sha256.Size]byte { return e.Capture().Hash() }

// Hash is the fingerprint of the snapshot's rows.
func (s *Snapshot) Hash() [sha256.Size]byte {
	var sum [sha256.Size / 8]uint64
	var buf []byte
	for row := range s.Rows() {
		buf = kernel.AppendRow(buf[:0], row)
		h := sha256.Sum256(buf)
		for i := range sum {
			sum[i] += binary.LittleEndian.Uint64(h[8*i:])
		}
	}
	var hash [sha256.Size]byte
	for i, v := range sum {
		binary.LittleEndian.PutUint64(hash[8*i:], v)
	}
	return hash
}

// Restore replaces all rows by those of a snapshot, or leaves them as they are and returns the error among them. The
// rows must be freshly decoded and belong to the engine from then on: equal strings are shared.
func (e *Engine) Restore(snapshot iter.Seq2[kernel.Row, error]) error {
	r, words := newRows(), words{}
	for row, err := range snapshot {
		if err != nil {
			return err
		}
		switch row := row.(type) {
		case *kernel.Run:
			words.run(row)
			if row.Settled() {
				r.settled.restore(stubName{r.space(row.Tenant).number, row.ID}, row)
			} else {
				r.put(row)
			}
		case *kernel.StoreRow:
			r.store, r.settled.period = row, metastore.Period(row.At)
		case *kernel.Definition:
			if err := r.restoreDefinition(row); err != nil {
				return err
			}
		case kernel.Row:
			tx{r}.Put(row)
		default:
			return fmt.Errorf("restore: a row of unknown kind")
		}
	}
	r.sortDefinitions()
	for _, s := range r.spaces {
		for _, l := range s.lanes {
			for _, ready := range l.ready {
				ready.sort()
			}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rows = r
	return nil
}

// sort sorts the runs of a list that was filled in the order of their creation by their turns.
func (r *ready) sort() {
	nodes := make([]*node, 0, r.n)
	for r.n > 0 {
		nodes = append(nodes, r.first)
		r.remove(r.first, inReady)
	}
	slices.SortFunc(nodes, func(a, b *node) int { return cmp.Compare(a.row.Turn, b.row.Turn) })
	for _, n := range nodes {
		r.add(n, inReady)
	}
}

// words shares equal strings.
type words map[string]string

func intern[T ~string](w words, s *T) {
	if *s == "" {
		return
	}
	one, ok := w[string(*s)]
	if !ok {
		one = string(*s)
		w[one] = one
	}
	*s = T(one)
}

func (w words) run(run *kernel.Run) {
	intern(w, &run.Tenant)
	intern(w, &run.Key)
	intern(w, &run.App)
	intern(w, &run.Cause)
	intern(w, &run.Origin)
	intern(w, &run.Actor)
	intern(w, &run.Terms.OnLost)
	intern(w, &run.Terms.LeaseLost)
	intern(w, &run.Terms.Overlap)
	intern(w, &run.Worker)
	intern(w, &run.Waits)
	for i := range run.Gates {
		intern(w, &run.Gates[i])
	}
	for i := range run.Moves {
		intern(w, &run.Moves[i].Cause)
		intern(w, &run.Moves[i].By)
	}
}
