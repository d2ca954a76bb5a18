// Package memdb is a database of a log in memory, for tests and for nodes in one process. It can be slow, lose answers,
// do later what it did not answer, and lose its end, as a replica that was promoted too early.
//
// It is not promised to programs outside this module.
package memdb

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
)

// DB is a database. Its zero value is empty.
type DB struct {
	// Fault chooses what happens to a statement, named as the method; nil = nothing. It may be called at any time.
	Fault func(statement string) Fault

	mu        sync.Mutex
	rows      []dblog.Row        // without row 0
	parts     map[string]attempt // by name
	snapshots []dblog.Snapshot   // complete ones, oldest first
	node      string             // that has begun the term
	term      uint64
	until     time.Time // end of its lease
}

var _ dblog.Database = (*DB)(nil)

// Fault is what happens to a statement.
type Fault struct {
	Wait   time.Duration // before it is done
	Answer time.Duration // from then to its answer
	Fails  bool          // it is not done
	Lost   bool          // no answer comes: an error instead
	Late   time.Duration // with Lost: it is done so long after the error
}

// attempt is the parts of a snapshot.
type attempt struct {
	seq   uint64
	parts [][]byte
}

// errLost is the error of a statement without an answer.
var errLost = errors.New("the connection to the database was lost")

// do does a statement, with its fault.
func (d *DB) do(ctx context.Context, statement string, fn func()) error {
	var f Fault
	if d.Fault != nil {
		f = d.Fault(statement)
	}
	if err := sleep(ctx, f.Wait); err != nil {
		return err
	}
	locked := func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		fn()
	}
	switch {
	case f.Fails:
		return errLost
	case f.Lost && f.Late > 0:
		time.AfterFunc(f.Late, locked)
		return errLost
	}
	locked()
	if err := sleep(ctx, f.Answer); err != nil {
		return err
	}
	if f.Lost {
		return errLost
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask is do for a statement with an answer. One that is done late writes it nowhere.
func ask[T any](d *DB, ctx context.Context, statement string, fn func() T) (T, error) {
	answer := make(chan T, 1)
	if err := d.do(ctx, statement, func() { answer <- fn() }); err != nil {
		var zero T
		return zero, err
	}
	return <-answer, nil
}

// last is the last row, or a zero one.
func (d *DB) last() dblog.Row {
	if len(d.rows) == 0 {
		return dblog.Row{}
	}
	return d.rows[len(d.rows)-1]
}

// at is the index of a row with a number.
func (d *DB) at(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(d.rows, seq, func(r dblog.Row, seq uint64) int {
		switch {
		case r.Seq < seq:
			return -1
		case r.Seq > seq:
			return 1
		}
		return 0
	})
}

// Insert adds rows.
func (d *DB) Insert(ctx context.Context, rows []dblog.Row) (bool, time.Time, error) {
	done, err := ask(d, ctx, "Insert", func() bool {
		last := d.last()
		if rows[0].Seq != last.Seq+1 || rows[0].Prev != last.Hash {
			return false
		}
		for _, r := range rows {
			r.Entry = bytes.Clone(r.Entry)
			d.rows = append(d.rows, r)
		}
		return true
	})
	return done, time.Now(), err
}

// Rows reads rows.
func (d *DB) Rows(ctx context.Context, after uint64, most int) ([]dblog.Row, error) {
	return ask(d, ctx, "Rows", func() (found []dblog.Row) {
		i, _ := d.at(after + 1)
		size := 0
		for _, r := range d.rows[i:] {
			if len(found) > 0 && size+len(r.Entry) > most {
				break
			}
			size += len(r.Entry)
			r.Entry = bytes.Clone(r.Entry)
			found = append(found, r)
		}
		return found
	})
}

// End is the number and the hash of the last row.
func (d *DB) End(ctx context.Context) (uint64, dblog.Hash, time.Time, error) {
	last, err := ask(d, ctx, "End", d.last)
	return last.Seq, last.Hash, time.Now(), err
}

// Cut deletes rows before the newest snapshot.
func (d *DB) Cut(ctx context.Context, below uint64) error {
	return d.do(ctx, "Cut", func() {
		if len(d.snapshots) > 0 {
			i, _ := d.at(min(below, d.snapshots[len(d.snapshots)-1].Seq))
			d.rows = slices.Clone(d.rows[i:])
		}
	})
}

// Take begins a term.
func (d *DB) Take(ctx context.Context, node string, after uint64, lease time.Duration) (uint64, error) {
	return ask(d, ctx, "Take", func() uint64 {
		if time.Now().Before(d.until) {
			return 0
		}
		d.node, d.term, d.until = node, max(d.term, after, d.last().Term)+1, time.Now().Add(lease)
		return d.term
	})
}

// Renew renews a lease.
func (d *DB) Renew(ctx context.Context, node string, term uint64, lease time.Duration) (bool, error) {
	return ask(d, ctx, "Renew", func() bool {
		if d.term != term || d.node != node {
			return false
		}
		d.until = time.Now().Add(lease)
		return true
	})
}

// Release ends a lease.
func (d *DB) Release(ctx context.Context, node string, term uint64) error {
	return d.do(ctx, "Release", func() {
		if d.term == term && d.node == node {
			d.until = time.Time{}
		}
	})
}

// Newest is the newest snapshot.
func (d *DB) Newest(ctx context.Context) (*dblog.Snapshot, error) {
	return ask(d, ctx, "Newest", func() *dblog.Snapshot {
		if len(d.snapshots) == 0 {
			return nil
		}
		return new(d.snapshots[len(d.snapshots)-1])
	})
}

// Part reads a part of a snapshot.
func (d *DB) Part(ctx context.Context, of dblog.Snapshot, n int) ([]byte, error) {
	return ask(d, ctx, "Part", func() []byte {
		if parts := d.parts[of.Name].parts; n < len(parts) {
			return bytes.Clone(parts[n])
		}
		return nil
	})
}

// PutPart writes a part of a snapshot.
func (d *DB) PutPart(ctx context.Context, of dblog.Snapshot, n int, part []byte) error {
	return d.do(ctx, "PutPart", func() {
		if d.parts == nil {
			d.parts = map[string]attempt{}
		}
		a := d.parts[of.Name]
		for a.seq = of.Seq; len(a.parts) <= n; {
			a.parts = append(a.parts, nil)
		}
		if a.parts[n] == nil {
			a.parts[n] = bytes.Clone(part)
		}
		d.parts[of.Name] = a
	})
}

// Publish completes a snapshot.
func (d *DB) Publish(ctx context.Context, s dblog.Snapshot) (bool, error) {
	return ask(d, ctx, "Publish", func() bool {
		parts := d.parts[s.Name].parts
		i, there := d.at(s.Seq)
		if !there || d.rows[i].Hash != s.Hash || len(parts) != s.Parts || slices.ContainsFunc(parts, func(b []byte) bool { return b == nil }) {
			return false
		}
		if n := len(d.snapshots); n > 0 && d.snapshots[n-1].Seq >= s.Seq {
			return false
		}
		d.snapshots = append(d.snapshots, s)
		return true
	})
}

// Sweep deletes what no reader needs.
func (d *DB) Sweep(ctx context.Context, upTo uint64) error {
	return d.do(ctx, "Sweep", func() {
		d.snapshots = slices.Clone(d.snapshots[max(0, len(d.snapshots)-2):])
		maps.DeleteFunc(d.parts, func(name string, a attempt) bool {
			return a.seq <= upTo && !slices.ContainsFunc(d.snapshots, func(s dblog.Snapshot) bool { return s.Name == name })
		})
	})
}

// Promote loses the last rows, but none that the newest snapshot needs: what a replica lacks that becomes the primary
// too early. It returns the lost rows. The lease stays: one that had not even that could have two leaders for as long.
func (d *DB) Promote(most uint64) (lost []dblog.Row) {
	d.mu.Lock()
	defer d.mu.Unlock()
	keep, _ := d.at(d.last().Seq + 1 - min(most, d.last().Seq))
	if n := len(d.snapshots); n > 0 {
		newest, _ := d.at(d.snapshots[n-1].Seq)
		keep = max(keep, newest+1)
	}
	keep = min(keep, len(d.rows))
	lost = slices.Clone(d.rows[keep:])
	d.rows = slices.Clone(d.rows[:keep])
	return lost
}

// Delete deletes rows from a number to another.
func (d *DB) Delete(from, to uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rows = slices.DeleteFunc(slices.Clone(d.rows), func(r dblog.Row) bool { return r.Seq >= from && r.Seq <= to })
}

// ForgetTerm lets terms begin at 1 again, with no lease.
func (d *DB) ForgetTerm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.term, d.until = 0, time.Time{}
}

// SpoilEntry changes a bit of an entry.
func (d *DB) SpoilEntry(seq uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i, there := d.at(seq); there {
		d.rows[i].Entry[len(d.rows[i].Entry)/2] ^= 4
	}
}

// SpoilPart changes a bit of a part of the newest snapshot.
func (d *DB) SpoilPart(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.snapshots[len(d.snapshots)-1]
	part := d.parts[s.Name].parts[n]
	part[len(part)/2] ^= 4
}

// Attempts is how many snapshots have parts, published or not.
func (d *DB) Attempts() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.parts)
}

// Size is how many rows there are, and how many snapshots.
func (d *DB) Size() (rows, snapshots int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.rows), len(d.snapshots)
}
