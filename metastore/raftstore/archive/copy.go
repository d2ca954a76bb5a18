package archive

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// Archives of nodes that have applied the same log have the same runs under the same numbers, and each is without
// gaps except purged runs. So one that lags copies what comes after its last number, in order, and an interrupted
// copy continues where it ended.

// Record is a run as it is in the file, with the checksum that it was written with.
type Record struct {
	Number  uint64
	Body    []byte
	Damaged error // a [disk.Damaged]; Body is nil then
}

// Last is the highest number given so far. Numbers are the same on every node: they follow from the log.
func (a *Archive) Last() uint64 {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.last
}

// LastOf is the highest number that a run can have that was settled by an entry of the log or one before it.
func LastOf(entry uint64) uint64 { return entry<<positionBits | (1<<positionBits - 1) }

// perCopy is how many bytes of records are read at once.
const perCopy = 1 << 20

// Copy passes on the records with numbers above after, up to and including upTo, in order and a part at a time; each
// part is only valid until send returns. Purged runs are missing. A damaged record is passed on as one: the receiver
// decides whether to continue without it. The archive itself works on whatever a copy meets.
func (a *Archive) Copy(ctx context.Context, after, upTo uint64, send func([]Record) error) error {
	if last := a.Last(); upTo > last {
		return fmt.Errorf("copy archive %s: it ends at %d, not at %d", a.path, last, upTo)
	}
	if err := a.Sync(); err != nil {
		return err
	}
	for after < upTo {
		part, err := a.part(after, upTo)
		if err != nil || len(part) == 0 {
			return err
		}
		after = part[len(part)-1].Number
		if err := errors.Join(ctx.Err(), send(part)); err != nil {
			return err
		}
	}
	return nil
}

// part is the next few records with numbers above after; none when there are no more.
func (a *Archive) part(after, upTo uint64) (part []Record, err error) {
	size, path := 0, a.path
	take := func(number uint64, record []byte) (goOn bool, err error) {
		if number > upTo {
			return false, nil
		}
		if _, _, err := readLabel(number, record); err != nil {
			part = append(part, Record{Number: number, Damaged: damagedRun(path, number, err)})
			return true, nil
		}
		part = append(part, Record{Number: number, Body: bytes.Clone(record)})
		size += len(record)
		return size < perCopy, nil
	}
	a.files.RLock()
	defer a.files.RUnlock()
	for _, s := range a.sealed {
		if s.last > after && s.first <= upTo {
			path = s.path
			if err := s.each(after, take); err != nil || len(part) > 0 {
				return part, err
			}
		}
	}
	path = a.path
	err = a.view(func(runs *bbolt.Bucket) error {
		c := runs.Cursor()
		for key, record := c.Seek(keyOf(after + 1)); key != nil; key, record = c.Next() {
			number := binary.BigEndian.Uint64(key)
			if a.forgotten(number) {
				continue
			}
			if goOn, err := take(number, record); err != nil || !goOn {
				return err
			}
		}
		return nil
	})
	return part, err
}

// forgotten reports whether a run of the open file is hidden.
func (a *Archive) forgotten(number uint64) bool {
	if !a.isIndexed() {
		return false
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	place, there := slices.BinarySearch(a.index.numbers, number)
	return there && a.index.number(uint32(place)) == 0
}

var errOrder = errors.New("the records are not in order")

// Fill adds records that come from another node, and then counts on from last, which may be higher than their
// numbers. Nothing may be appended meanwhile. Known records are skipped.
func (a *Archive) Fill(ctx context.Context, records []Record, last uint64) error {
	if err := a.ready(ctx); err != nil {
		return err
	}
	if err := a.Sync(); err != nil {
		return err
	}
	a.filing.Lock()
	defer a.filing.Unlock()
	at := a.Last()
	labels, size := make([]label, 0, len(records)), int64(0)
	for i, r := range records {
		if i > 0 && r.Number <= records[i-1].Number || r.Number > last {
			return fmt.Errorf("fill archive %s: %w", a.path, errOrder)
		}
		l, _, err := readLabel(r.Number, r.Body)
		if err != nil {
			return fmt.Errorf("fill archive %s: run %d: %w", a.path, r.Number, err)
		}
		labels = append(labels, l)
	}
	for len(records) > 0 && records[0].Number <= at {
		records, labels = records[1:], labels[1:]
	}
	err := disk.Guard(a.path, func() error {
		return a.db.Update(func(tx *bbolt.Tx) error {
			runs := tx.Bucket(bucketRuns)
			runs.FillPercent = 0.95
			for _, r := range records {
				if err := runs.Put(keyOf(r.Number), r.Body); err != nil {
					return err
				}
				size += int64(8 + len(r.Body))
			}
			return a.count(tx, len(records), last)
		})
	})
	if err != nil {
		err = fmt.Errorf("fill archive %s: %w", a.path, err)
		a.fail(err)
		return err
	}
	a.mu.Lock()
	for i := range labels {
		a.index.add(records[i].Number, &labels[i])
	}
	a.flushed = a.index.next()
	a.bytes += size
	a.last = max(a.last, last)
	full := a.bytes >= a.sealAt
	a.mu.Unlock()
	if full {
		return a.seal()
	}
	return nil
}

// NewRecord is a run as it is in the file, under a number.
func NewRecord(number uint64, run *kernel.Run) Record {
	return Record{Number: number, Body: appendRecord(nil, number, run)}
}

// Ended are the runs up to a number, in the order in which they ended. A damaged run is a [metastore.LeftOut] in its
// place; the runs after it follow if the caller continues.
func (a *Archive) Ended(ctx context.Context, upTo uint64) iter.Seq2[*kernel.Run, error] {
	return func(yield func(*kernel.Run, error) bool) {
		err := a.Copy(ctx, 0, upTo, func(part []Record) error {
			for _, r := range part {
				if r.Damaged == nil {
					run, err := decode(r.Number, r.Body)
					if err != nil {
						return damagedRun(a.path, r.Number, err)
					}
					if !yield(run, nil) {
						return errEnough
					}
				} else if !yield(nil, &metastore.LeftOut{Err: r.Damaged}) {
					return errEnough
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, err)
		}
	}
}

// errEnough ends a copy early.
var errEnough = errors.New("enough")
