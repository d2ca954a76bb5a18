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
	packed  []*kernel.Packed // definitions
	tallies []counted
	stubs   []*generation
	tenants []jobs.Tenant
}

// packedRun is the row of a run that is packed.
type packedRun struct {
	*kernel.PackedRun
	id jobs.ID
}

// Ref is never asked: a snapshot has runs only as such.
func (packedRun) Ref() kernel.Ref { return kernel.Ref{} }

// Capture takes a snapshot. It stops commits only for as long as it takes to copy pointers.
func (e *Engine) Capture() *Snapshot {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rows.capture()
}

func (r *rows) capture() *Snapshot {
	size, packed := 1, 0
	for _, s := range r.spaces {
		packed += len(s.definitions)
		size += len(s.nodes) + len(s.gates) + len(s.uniques) + len(s.tokens) + len(s.sessions) + len(s.audits) + len(s.plain) + len(s.calendars) + len(s.followers) + len(s.occasions) + len(s.batches) + len(s.alarms.all) + 1
	}
	warm := min(packed, len(r.warm.ring))
	size, packed = size+warm, packed-warm
	snap := &Snapshot{rows: make([]kernel.Row, 0, size), packed: make([]*kernel.Packed, 0, packed), stubs: r.settled.share(), tenants: make([]jobs.Tenant, len(r.spaces))}
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
			if d.row != nil {
				put(d.row)
			} else {
				snap.packed = append(snap.packed, d.packed)
			}
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
		for _, a := range s.alarms.all {
			put(a)
		}
		for _, f := range s.followers {
			put(f)
		}
		for _, list := range s.occasions {
			for _, o := range list {
				put(o)
			}
		}
		for _, b := range s.batches {
			put(b)
		}
		for _, row := range s.plain {
			put(row)
		}
		for job, of := range s.tallies {
			snap.tallies = append(snap.tallies, counted{s.tenant, job, of.history})
		}
		for n := s.all.first; n != nil; n = n.links[inAll].newer {
			if n.row != nil {
				put(n.row)
			} else {
				put(packedRun{n.packed, n.id})
			}
		}
	}
	return snap
}

// Runs lists the live runs of the snapshot.
func (s *Snapshot) Runs() iter.Seq[*kernel.Run] {
	return func(yield func(*kernel.Run) bool) {
		for _, row := range s.rows {
			run, is := row.(*kernel.Run)
			if p, packed := row.(packedRun); packed {
				run, is = p.Unpack(p.id), true
			}
			if is && !yield(run) {
				return
			}
		}
	}
}

// Rows lists the snapshot: live runs in the order of their creation, and stubs of settled runs as rows of settled
// runs. Restore takes this.
func (s *Snapshot) Rows() iter.Seq[kernel.Row] {
	return func(yield func(kernel.Row) bool) {
		for _, row := range s.rows {
			if p, packed := row.(packedRun); packed {
				row = p.Unpack(p.id)
			}
			if !yield(row) {
				return
			}
		}
		for _, p := range s.packed {
			if !yield(p.Unpack()) {
				return
			}
		}
		if !s.eachTally(yield) {
			return
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

// eachTally yields the tallies, and reports whether to continue.
func (s *Snapshot) eachTally(yield func(kernel.Row) bool) bool {
	for i := range s.tallies {
		of := &s.tallies[i]
		for t := range of.all() {
			if !yield(t.row(of.tenant, of.job)) {
				return false
			}
		}
	}
	return true
}

// Stored lists the rows as Rows does, packed: Restore takes this, too.
func (s *Snapshot) Stored() iter.Seq[kernel.Row] {
	return func(yield func(kernel.Row) bool) {
		var p kernel.Parcel
		full := func() bool {
			if !p.Full() {
				return true
			}
			full := p
			p = kernel.Parcel{}
			return yield(&full)
		}
		for _, row := range s.rows {
			switch row := row.(type) {
			case *kernel.Definition:
				p.AddDefinition(row.Pack(row.Key))
			case *kernel.Run:
				p.AddRun(row.ID, row.Pack())
			case packedRun:
				p.AddRun(row.id, row.PackedRun)
			default:
				if !yield(row) {
					return
				}
			}
			if !full() {
				return
			}
		}
		for _, d := range s.packed {
			if p.AddDefinition(d); !full() {
				return
			}
		}
		if !s.eachTally(yield) {
			return
		}
		for _, g := range s.stubs {
			if !g.each(s.tenants, func(st kernel.Stub) bool { p.AddStub(st); return full() }) {
				return
			}
		}
		if p.Len() > 0 {
			yield(&p)
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
	r, words, packing := newRows(), words{}, packers{}
	r.restoring = true
	defer packing.wait()
	for row, err := range snapshot {
		if err != nil {
			return err
		}
		switch row := row.(type) {
		case *kernel.Run:
			words.run(row)
			if row.Settled() {
				r.settled.restore(r.space(row.Tenant).number, &kernel.Stub{ID: row.ID, Key: string(row.Key), Worker: row.Worker, Attempt: row.Attempt, State: row.State, Ended: row.Ended})
				break
			}
			n, err := r.restoreRun(row)
			if err != nil {
				return err
			}
			if n.links[inWarm].list != nil {
				n.links[inWarm].list.remove(n, inWarm)
				packing.add(n)
			}
		case *kernel.Parcel:
			if err := r.restoreParcel(row, words); err != nil {
				return err
			}
		case *kernel.StoreRow:
			r.store, r.settled.period = row, metastore.Period(row.At)
		case *kernel.Definition:
			d, err := r.restoreDefinition(row)
			if err != nil {
				return err
			}
			if !r.warm.room(d) {
				packing.add(d)
			}
		case *kernel.Tally:
			if row.Span != kernel.Hour && row.Span != kernel.Day {
				return fmt.Errorf("restore: a tally of the unknown span %d", row.Span)
			}
			r.putTally(row)
		case kernel.Row:
			tx{r}.Put(row)
		default:
			return fmt.Errorf("restore: a row of unknown kind")
		}
	}
	packing.wait()
	if err := r.restored(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rows = r
	return nil
}

func (r *rows) restoreRun(row *kernel.Run) (*node, error) {
	if r.space(row.Tenant).nodes[row.ID] != nil {
		return nil, fmt.Errorf("restore: run %s of tenant %s exists twice", row.ID, row.Tenant)
	}
	return r.putRun(row), nil
}

func (r *rows) restoreParcel(p *kernel.Parcel, w words) error {
	for i, packed := range p.Definitions {
		d, err := r.restoreDefinition(p.Rows[i])
		if err != nil {
			return err
		}
		if d.packed = packed; !r.warm.room(d) {
			d.row = nil
		}
	}
	for i := range p.Runs {
		run := &p.Runs[i]
		if run.Row.Settled() {
			return fmt.Errorf("restore: run %s of tenant %s has ended", run.ID, run.Row.Tenant)
		}
		w.run(run.Row)
		n, err := r.restoreRun(run.Row)
		if err != nil {
			return err
		}
		if n.links[inWarm].list != nil {
			n.links[inWarm].list.remove(n, inWarm)
			n.row, n.packed = nil, run.Packed
		}
	}
	for i := range p.Stubs {
		st := &p.Stubs[i]
		r.settled.restore(r.space(st.Tenant).number, st)
	}
	return nil
}

// restored puts the rows in their orders, when all are there: putting each in its place as it comes would take the
// square of their number, unless they come in the order in which a snapshot happens to have them.
func (r *rows) restored() error {
	r.restoring = false
	r.restoredDefinitions()
	for _, s := range r.spaces {
		r.steps += s.all.sort(inAll, byCreation)
		for n := s.all.first; n != nil; n = n.links[inAll].newer {
			if n.rank = 0; n.links[inAll].older != nil && n.links[inAll].older.created == n.created {
				n.rank = n.links[inAll].older.rank + 1
			}
		}
		for _, j := range s.jobs {
			r.steps += j.sort(inJob, byCreation)
		}
		for _, l := range s.parents {
			r.steps += l.sort(inParent, byCreation)
		}
		for _, l := range s.apps {
			for ready := range l.each {
				r.steps += ready.sort(inReady, byTurn)
			}
		}
		for _, g := range s.gates {
			r.served(g)
		}
		for key := range s.holders {
			r.changed(s, key)
		}
		for _, of := range s.missed {
			if twice := inOrder(r, of.list, func(a, b *kernel.Missed) int { return a.From.Compare(b.From) }); twice != nil {
				return fmt.Errorf("restore: %s of tenant %s has two missed ranges from %v", (*twice).Key, s.tenant, (*twice).From)
			}
			r.age(&of.elder, of.list[0])
		}
		for _, of := range s.tallies {
			r.steps += of.sort()
			r.ageTallies(of)
		}
		if twice := inOrder(r, s.audits, func(a, b *kernel.Audit) int { return cmp.Compare(a.N, b.N) }); twice != nil {
			return fmt.Errorf("restore: tenant %s has two audits %d", s.tenant, (*twice).N)
		}
	}
	return nil
}

// inOrder sorts a list. It returns an element that equals another one, or nil.
func inOrder[T any](r *rows, list []T, compare func(a, b T) int) (twice *T) {
	counted := func(a, b T) int { r.steps++; return compare(a, b) }
	if !slices.IsSortedFunc(list, counted) {
		slices.SortFunc(list, counted)
	}
	for i := 1; i < len(list); i++ {
		if compare(list[i-1], list[i]) == 0 {
			return &list[i]
		}
	}
	return nil
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
