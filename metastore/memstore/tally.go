package memstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"iter"
	"math/bits"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// tallies is the counts of a job. A job that runs hourly has eighty of them after five weeks, and most numbers in them
// are zero or small: so only the newest is a struct, and the others are packed, in about 15 bytes each.
type tallies struct {
	history
	oldest [kernel.Day + 1]int64 // by span: when the oldest one ends; 0 = there is none
	days   elder                 // by the oldest day
	hours  elder                 // by the oldest hour
}

// history is tallies in the order of their times. A copy of it stays as it is: packed grows at its end, or is replaced.
type history struct {
	newest tally // its span is 0 if there is none
	packed []byte
}

// tally is a kernel.Tally of a known job.
type tally struct {
	hour int32 // since 1970, of its start
	span kernel.Span
	kernel.Sums
}

// timed is a tally of a time, without numbers.
func timed(span kernel.Span, at int64) tally {
	return tally{hour: int32(at / int64(time.Hour)), span: span}
}

func (t *tally) at() int64 { return int64(t.hour) * int64(time.Hour) }

func (t *tally) end() int64 { return t.at() + int64(t.span.Length()) }

// compare orders tallies by time, a day before its hours.
func (t *tally) compare(o *tally) int {
	return cmp.Or(cmp.Compare(t.hour, o.hour), cmp.Compare(o.span, t.span))
}

func (t *tally) row(tenant jobs.Tenant, job jobs.ID) *kernel.Tally {
	return &kernel.Tally{Tenant: tenant, Job: job, Span: t.span, At: t.at(), Sums: t.Sums}
}

// numbers is how many numbers a tally has: those of the states, then Took.
const numbers = len(kernel.Sums{}.Runs) + 1

func (t *tally) values() (v [numbers]int64) {
	copy(v[:], t.Runs[:])
	v[numbers-1] = int64(t.Took)
	return v
}

// pack appends a tally: its time, a bit for each number that is not zero, and those numbers.
func (t *tally) pack(b []byte) []byte {
	b = binary.AppendVarint(b, int64(t.hour)<<1|int64(t.span-kernel.Hour))
	var set uint64
	values := t.values()
	for i, v := range values {
		if v != 0 {
			set |= 1 << i
		}
	}
	b = binary.AppendUvarint(b, set)
	for _, v := range values {
		if v != 0 {
			b = binary.AppendVarint(b, v)
		}
	}
	return b
}

// unpack reads the first of packed tallies, and returns the others.
func unpack(b []byte) (t tally, rest []byte) {
	head, n := binary.Varint(b)
	set, m := binary.Uvarint(b[n:])
	t.hour, t.span = int32(head>>1), kernel.Hour+kernel.Span(head&1)
	for b = b[n+m:]; set != 0; set &= set - 1 {
		v, n := binary.Varint(b)
		if i := bits.TrailingZeros64(set); i < numbers-1 {
			t.Runs[i] = v
		} else {
			t.Took = time.Duration(v)
		}
		b = b[n:]
	}
	return t, b
}

// all lists the tallies, oldest first.
func (h *history) all() iter.Seq[tally] {
	return func(yield func(tally) bool) {
		for b := h.packed; len(b) > 0; {
			var t tally
			if t, b = unpack(b); !yield(t) {
				return
			}
		}
		if h.newest.span != 0 {
			yield(h.newest)
		}
	}
}

// find returns the tally of a time.
func (h *history) find(of tally) (t tally, found bool) {
	if h.newest.span != 0 && h.newest.compare(&of) == 0 {
		return h.newest, true
	}
	_, _, t, found = h.cut(of)
	return t, found
}

// cut returns where the tally of a time is among the packed ones, or where it would be.
func (h *history) cut(of tally) (from, to int, t tally, found bool) {
	for from < len(h.packed) {
		t, rest := unpack(h.packed[from:])
		to = len(h.packed) - len(rest)
		if order := t.compare(&of); order == 0 {
			return from, to, t, true
		} else if order > 0 {
			break
		}
		from = to
	}
	return from, from, tally{}, false
}

// add adds a tally. Mostly it is of the newest one's time, or later.
func (t *tallies) add(a tally) {
	order := t.newest.compare(&a)
	switch {
	case t.newest.span == 0:
		t.newest = a
	case order == 0:
		t.newest.Add(a.Sums)
	case order < 0:
		if b := t.newest.pack(nil); cap(t.packed)-len(t.packed) < len(b) { // append alone takes up to twice as much
			t.packed = append(make([]byte, 0, len(t.packed)+4*len(b)), t.packed...)
		}
		t.packed = t.newest.pack(t.packed)
		t.newest = a
	default:
		from, to, old, found := t.cut(a)
		if found {
			a.Add(old.Sums)
		}
		t.packed = slices.Concat(t.packed[:from], a.pack(nil), t.packed[to:])
	}
	if end := a.end(); t.oldest[a.span] == 0 || end < t.oldest[a.span] {
		t.oldest[a.span] = end
	}
}

// sort puts tallies in order that were packed in any order, and returns how many it compared.
func (t *tallies) sort() (compared int) {
	var list []tally
	for of := range t.all() {
		list = append(list, of)
	}
	slices.SortFunc(list, func(a, b tally) int { compared++; return a.compare(&b) })
	t.history = history{}
	var packed []byte
	for _, of := range list {
		if t.newest.span != 0 && t.newest.compare(&of) == 0 {
			t.newest.Add(of.Sums)
			continue
		}
		if t.newest.span != 0 {
			packed = t.newest.pack(packed)
		}
		if t.newest = of; t.oldest[of.span] == 0 {
			t.oldest[of.span] = of.end()
		}
	}
	t.packed = slices.Concat(packed) // no longer than it is
	return compared
}

// drop drops a tally that there is.
func (t *tallies) drop(of tally) {
	if t.newest.compare(&of) == 0 {
		t.newest = tally{}
		for of := range t.all() {
			t.newest = of // at last, the last one
		}
		if of = t.newest; of.span == 0 {
			t.oldest = [kernel.Day + 1]int64{}
			return
		}
	}
	from, to, _, _ := t.cut(of)
	t.packed = slices.Concat(t.packed[:from], t.packed[to:])
	t.oldest = [kernel.Day + 1]int64{}
	for of := range t.all() {
		if t.oldest[of.span] == 0 {
			t.oldest[of.span] = of.end()
		}
		if t.oldest[kernel.Day] != 0 && t.oldest[kernel.Hour] != 0 {
			break
		}
	}
}

func (r *rows) putTally(row *kernel.Tally) {
	s := r.space(row.Tenant)
	of := s.tallies[row.Job]
	if of == nil {
		ref := kernel.Ref{Kind: kernel.RowTally, Tenant: s.tenant, ID: row.Job}
		of = &tallies{days: elder{row: ref}, hours: elder{row: ref}}
		s.tallies[row.Job] = of
	}
	added := timed(row.Span, row.At)
	added.Sums = row.Sums
	s.total.Add(kernel.Tally{Tenant: s.tenant, Span: row.Span, At: row.At, Sums: row.Sums})
	if r.restoring {
		of.packed = added.pack(of.packed)
		return
	}
	of.add(added)
	r.ageTallies(of)
}

// ageTallies notes how old the oldest of them are.
func (r *rows) ageTallies(of *tallies) {
	place(&r.elders, &of.days, of.oldest[kernel.Day])
	place(&r.hourly, &of.hours, of.oldest[kernel.Hour])
}

func (r *rows) dropTally(s *space, ref kernel.Ref) {
	of := s.tallies[ref.ID]
	if of == nil {
		return
	}
	old, found := of.find(timed(ref.Span, ref.At))
	if !found {
		return
	}
	slot := metastore.Slot{At: ref.At, Span: ref.Span}
	if sum := s.total[slot]; sum != nil {
		if sum.Sub(old.Sums); sum.Sums == (kernel.Sums{}) {
			delete(s.total, slot)
		}
	}
	of.drop(old)
	r.ageTallies(of)
	if of.newest.span == 0 {
		delete(s.tallies, ref.ID)
	}
}

// counted is the tallies of a job, which stay as they are.
type counted struct {
	tenant jobs.Tenant
	job    jobs.ID
	history
}

// counted returns the tallies of the job, or of the app's jobs, that a query selects.
func (s *space) counted(q metastore.CountQuery) (list []counted) {
	add := func(d *definition) {
		if of := s.tallies[d.uid]; of != nil {
			list = append(list, counted{s.tenant, d.uid, of.history})
		}
	}
	if q.Job != "" {
		if d := s.definitions[q.Job]; d != nil && !d.gone {
			add(d)
		}
		return list
	}
	for _, d := range s.definitions {
		if d.app == q.App {
			add(d)
		}
	}
	return list
}

// sum adds up what a query selects of some jobs.
func sum(list []counted, q metastore.CountQuery) []kernel.Tally {
	all := metastore.Tallies{}
	for i := range list {
		of := &list[i]
		if q.Job == "" {
			of.job = jobs.ID{}
		}
		for t := range of.all() {
			if row := t.row(of.tenant, of.job); q.During(row) {
				all.Add(*row)
			}
		}
	}
	return all.List()
}

// Hourly lists tallies of hours that ended at or before a time.
func (e *Engine) Hourly(_ context.Context, until time.Time, limit int) (found []kernel.Ref, _ error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	e.rows.hourly.inOrder(func(old *elder) bool {
		if len(found) >= limit || old.at > until.UnixNano() {
			return false
		}
		for t := range e.rows.spaces[old.row.Tenant].tallies[old.row.ID].all() {
			if t.span != kernel.Hour {
				continue
			}
			if len(found) >= limit || t.end() > until.UnixNano() {
				break
			}
			found = append(found, kernel.Ref{Kind: kernel.RowTally, Span: kernel.Hour, Tenant: old.row.Tenant, ID: old.row.ID, At: t.at()})
		}
		return true
	})
	return found, nil
}
