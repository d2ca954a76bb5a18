package dbtest

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
)

// What single statements of a database do.

func hash(n byte) (h dblog.Hash) { h[0], h[31] = n, n; return h }

// row is the row after number n-1 of a log in which row n has hash(n).
func row(n byte) dblog.Row {
	return dblog.Row{Seq: uint64(n), Term: 3, Prev: hash(n - 1), Hash: hash(n), Entry: bytes.Repeat([]byte{n, 0, '\'', '\\', 255}, 20)}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func rows(t *testing.T, h Harness) {
	ctx := t.Context()
	insert := func(want bool, rows ...dblog.Row) {
		t.Helper()
		done, now, err := h.Insert(ctx, rows)
		if err != nil || done != want {
			t.Fatalf("row %d is inserted: %v, %v; want %v", rows[0].Seq, done, err, want)
		}
		if off := time.Since(now); done && off.Abs() > time.Minute {
			t.Errorf("the database's clock is off by %v", off)
		}
	}
	end := func(want uint64) {
		t.Helper()
		if seq, is, _, err := h.End(ctx); err != nil || seq != want || is != hash(byte(want)) {
			t.Errorf("the log ends at %d, %x, %v; want %d", seq, is, err, want)
		}
	}
	read := func(after uint64, most int, want ...uint64) {
		t.Helper()
		var got []uint64
		for _, r := range must[[]dblog.Row](t)(h.Rows(ctx, after, most)) {
			got = append(got, r.Seq)
			if w := row(byte(r.Seq)); r.Prev != w.Prev || r.Hash != w.Hash || r.Term != w.Term || !bytes.Equal(r.Entry, w.Entry) {
				t.Errorf("row %d is read as %+v", r.Seq, r)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %d, %d bytes: rows %v, want %v", after, most, got, want)
		}
	}
	end(0)
	read(0, 1000)
	insert(false, row(2))
	other := row(1)
	other.Prev = hash(9)
	insert(false, other)
	insert(true, row(1))
	insert(false, row(1))
	other = row(1)
	other.Hash = hash(7)
	insert(false, other)
	insert(true, row(2), row(3), row(4))
	// Of several rows, all are inserted or none: also where a later one would fit.
	other = row(4)
	other.Hash = hash(8)
	next := row(5)
	next.Prev = hash(8)
	insert(false, other, next)
	insert(false, row(3), row(4), row(5))
	end(4)
	insert(true, row(5), row(6))
	end(6)
	read(0, 1000, 1, 2, 3, 4, 5, 6)
	read(4, 1000, 5, 6)
	read(6, 1000)
	read(7, 1000)
	read(2, 1, 3)
	read(2, 201, 3, 4)

	// Nothing is cut without a snapshot, and nothing behind the newest.
	if err := h.Cut(ctx, 5); err != nil {
		t.Fatal(err)
	}
	read(0, 1000, 1, 2, 3, 4, 5, 6)
	s := dblog.Snapshot{Name: "a", Seq: 4, Term: 3, Hash: hash(4), Parts: 1}
	if err := h.PutPart(ctx, s, 0, []byte("rows")); err != nil {
		t.Fatal(err)
	}
	if !must[bool](t)(h.Publish(ctx, s)) {
		t.Fatal("the snapshot is not published")
	}
	if err := h.Cut(ctx, 3); err != nil {
		t.Fatal(err)
	}
	read(0, 1000, 3, 4, 5, 6)
	if err := h.Cut(ctx, 6); err != nil {
		t.Fatal(err)
	}
	read(0, 1000, 4, 5, 6)
	insert(false, row(1)) // its number is free
	insert(true, row(7))
}

func leases(t *testing.T, h Harness) {
	ctx := t.Context()
	take := func(after uint64) uint64 { t.Helper(); return must[uint64](t)(h.Take(ctx, "node", after, time.Hour)) }
	first := take(0)
	if first == 0 || take(0) != 0 {
		t.Fatal("the first term does not begin, or another one beside it")
	}
	if !must[bool](t)(h.Renew(ctx, "node", first, time.Hour)) || must[bool](t)(h.Renew(ctx, "node", first+1, time.Hour)) || must[bool](t)(h.Renew(ctx, "other", first, time.Hour)) {
		t.Error("the wrong terms are renewed")
	}
	if err := errors.Join(h.Release(ctx, "node", first+1), h.Release(ctx, "other", first)); err != nil || take(0) != 0 {
		t.Errorf("another term's lease is released: %v", err)
	}
	if err := h.Release(ctx, "node", first); err != nil {
		t.Fatal(err)
	}
	second := take(0)
	if second <= first || must[bool](t)(h.Renew(ctx, "node", first, time.Hour)) {
		t.Errorf("term %d after %d, or the former one is renewed", second, first)
	}
	// A lease that ends.
	if !must[bool](t)(h.Renew(ctx, "node", second, 10*time.Millisecond)) {
		t.Error("it is not renewed")
	}
	third := uint64(0)
	for third == 0 {
		third = take(second + 10)
	}
	if third <= second+10 {
		t.Errorf("term %d, want one after %d", third, second+10)
	}
	// Terms are later than what is in the log.
	high := row(1)
	high.Term = third + 100
	if done, _, err := h.Insert(ctx, []dblog.Row{high}); !done {
		t.Fatal(err)
	}
	if err := h.Release(ctx, "node", third); err != nil {
		t.Fatal(err)
	}
	if fourth := take(0); fourth <= third+100 {
		t.Errorf("term %d, but the log has one of %d", fourth, high.Term)
	}
}

func snapshots(t *testing.T, h Harness) {
	ctx := t.Context()
	for n := byte(1); n < 10; n++ {
		if done, _, err := h.Insert(ctx, []dblog.Row{row(n)}); !done {
			t.Fatal(err)
		}
	}
	put := func(name string, seq byte, parts int) dblog.Snapshot {
		t.Helper()
		s := dblog.Snapshot{Name: name, Seq: uint64(seq), Term: 3, Hash: hash(seq), Parts: parts}
		for n := range parts {
			if err := h.PutPart(ctx, s, n, []byte{name[0], byte(n), 0, 255}); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	publish := func(s dblog.Snapshot, want bool) {
		t.Helper()
		if done, err := h.Publish(ctx, s); err != nil || done != want {
			t.Errorf("snapshot %+v is published: %v, %v; want %v", s, done, err, want)
		}
	}
	sweep := func(upTo uint64) {
		t.Helper()
		if err := h.Sweep(ctx, upTo); err != nil {
			t.Fatal(err)
		}
	}
	has := func(s dblog.Snapshot, want bool) {
		t.Helper()
		if part := must[[]byte](t)(h.Part(ctx, s, 0)); (part != nil) != want {
			t.Errorf("the parts of snapshot %s are there: %v, want %v", s.Name, part != nil, want)
		}
	}
	newest := func(want dblog.Snapshot) {
		t.Helper()
		s := must[*dblog.Snapshot](t)(h.Newest(ctx))
		if s == nil || *s != want {
			t.Fatalf("the newest snapshot is %+v, want %+v", s, want)
		}
		for n := range s.Parts {
			if part := must[[]byte](t)(h.Part(ctx, *s, n)); !bytes.Equal(part, []byte{s.Name[0], byte(n), 0, 255}) {
				t.Errorf("part %d is %q", n, part)
			}
		}
	}
	if s := must[*dblog.Snapshot](t)(h.Newest(ctx)); s != nil {
		t.Fatalf("an empty database has the snapshot %+v", s)
	}
	s := put("a", 3, 3)
	_ = h.PutPart(ctx, s, 0, []byte("other")) // whatever it answers: what is there stays
	more := s
	more.Parts = 4
	publish(more, false) // a part is missing
	other := s
	other.Hash = hash(9)
	publish(other, false) // of another log
	again := put("b", 3, 2)
	publish(s, true)
	publish(s, false)
	newest(s)
	publish(again, false) // another attempt was published
	publish(put("c", 2, 1), false)
	newest(s)
	fifth, seventh := put("d", 5, 2), put("e", 7, 1)
	publish(fifth, true)
	newest(fifth)
	sweep(5)
	has(again, false)
	has(s, true) // the one before the newest
	has(seventh, true)
	publish(seventh, true)
	newest(seventh)
	has(s, true)
	late := put("f", 6, 1)
	sweep(7)
	has(s, false)
	has(late, false)
	has(fifth, true)
	newest(seventh)
	publish(late, false)
	newest(seventh)
}
