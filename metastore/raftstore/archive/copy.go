package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
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

// Copy passes on all runs as records. See Send.
func (a *Archive) Copy(ctx context.Context, after, upTo uint64, send func([]Record) error) error {
	return a.Send(ctx, after, upTo, send, nil)
}

// part is the next few records with numbers above after; none when there are no more.
func (a *Archive) part(after, upTo uint64) (part []Record, err error) {
	size := 0
	take := func(number uint64, record []byte, err error) (goOn bool, _ error) {
		switch {
		case number > upTo:
			return false, nil
		case err != nil:
			part = append(part, Record{Number: number, Damaged: err})
		default:
			part = append(part, Record{Number: number, Body: bytes.Clone(record)})
		}
		size += len(record)
		return size < perCopy, nil
	}
	a.files.RLock()
	defer a.files.RUnlock()
	for _, s := range a.sealed {
		if s.last > after && s.after < upTo {
			if err := s.records(after, take); err != nil || len(part) > 0 {
				return part, err
			}
		}
	}
	a.mu.RLock()
	t := a.index.table
	a.mu.RUnlock()
	return part, eachOf(&t, a.open, after, take)
}

// Fill adds records that come from another node, and then counts on from last, which may be higher than their
// numbers. Nothing may be appended meanwhile. Known records are skipped.
func (a *Archive) Fill(_ context.Context, records []Record, last uint64) error {
	if err := a.Sync(); err != nil {
		return err
	}
	a.filing.Lock()
	defer a.filing.Unlock()
	labels := make([]kernel.Run, len(records))
	for i, r := range records {
		if i > 0 && r.Number <= records[i-1].Number || r.Number > last {
			return fmt.Errorf("fill archive %s: %w", a.dir, blocks.ErrOrder)
		}
		if _, err := readLabel(r.Number, r.Body, &labels[i]); err != nil {
			return fmt.Errorf("fill archive %s: run %d: %w", a.dir, r.Number, err)
		}
	}
	for len(records) > 0 && records[0].Number <= a.filed {
		records, labels = records[1:], labels[1:]
	}
	w := a.blocks()
	offsets := make([]int64, len(records))
	for i, r := range records {
		offsets[i] = w.Record(blocks.Runs, r.Number, func(b []byte) []byte { return append(b, r.Body...) })
	}
	if w.Head.Kind == 0 && last > max(w.Last, a.filed) {
		w.Begin(blocks.Runs)
	}
	if len(w.B) > 0 {
		if err := a.write(w, last); err != nil {
			return err
		}
	}
	a.mu.Lock()
	for i := range labels {
		a.index.add(records[i].Number, &labels[i])
		a.index.wrote(offsets[i])
	}
	a.bytes += w.Records
	a.last = max(a.last, last)
	full := a.bytes >= a.sealAt
	a.mu.Unlock()
	if full {
		if err := a.seal(); err != nil {
			return err
		}
	}
	return a.mark()
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
						return damagedRun(a.dir, r.Number, err)
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
