package archive

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

const (
	// lockTimeout is how long Open waits for another process to let go of the file.
	lockTimeout = 500 * time.Millisecond
	// pace is how long runs may wait to be written with others.
	pace = 250 * time.Millisecond
	// perTransaction is how many runs are written or pruned at once.
	perTransaction = 8192
)

// work builds the indexes, then writes what is appended until the archive is closed.
func (a *Archive) work() {
	if err := disk.Guard(a.path, a.buildIndex); err != nil {
		a.fail(fmt.Errorf("read archive %s: %w", a.path, err))
	}
	a.mu.Lock()
	a.flushed = a.index.next()
	for _, p := range a.buffer {
		l := labelOf(p.row)
		a.index.add(p.number, &l)
	}
	close(a.indexed)
	a.mu.Unlock()
	for {
		select {
		case <-a.stop:
			a.flush()
			return
		case <-a.hurry:
		case <-a.wake:
			select {
			case <-time.After(pace):
			case <-a.hurry:
			case <-a.stop:
			}
		}
		a.flush()
	}
}

// buildIndex reads the labels of all runs in the file.
func (a *Archive) buildIndex() error {
	return a.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucketRuns).Cursor()
		for key, record := c.First(); key != nil; key, record = c.Next() {
			l, _, err := readLabel(record)
			if err != nil {
				return &disk.Damaged{Path: a.path, What: err.Error()}
			}
			a.index.add(binary.BigEndian.Uint64(key), &l)
			a.bytes += int64(len(key) + len(record))
		}
		return nil
	})
}

// flush writes all that is in the buffer.
func (a *Archive) flush() {
	for {
		a.mu.RLock()
		n, err := min(len(a.buffer), perTransaction), a.err
		batch := a.buffer[:n:n]
		a.mu.RUnlock()
		if n == 0 || err != nil {
			return
		}
		size, err := a.write(batch)
		if err != nil {
			a.fail(fmt.Errorf("write archive %s: %w", a.path, err))
			return
		}
		a.mu.Lock()
		for _, p := range batch {
			a.size -= sizeOf(p.row)
		}
		clear(batch)
		a.buffer = a.buffer[n:]
		if len(a.buffer) == 0 {
			a.buffer = nil
		}
		a.flushed += uint32(n)
		a.bytes += size
		a.written.Broadcast()
		a.mu.Unlock()
	}
}

// write puts runs at the end of the file, in one transaction.
func (a *Archive) write(batch []pending) (size int64, err error) {
	// Keys and values must stay where they are until the commit: they share one piece of memory.
	var b []byte
	ends := make([]int, len(batch))
	for i, p := range batch {
		b = binary.BigEndian.AppendUint64(b, p.number)
		b = appendRecord(b, p.row)
		ends[i] = len(b)
	}
	err = disk.Guard(a.path, func() error {
		return a.db.Update(func(tx *bbolt.Tx) error {
			runs := tx.Bucket(bucketRuns)
			runs.FillPercent = 0.95 // keys only grow
			at := 0
			for _, end := range ends {
				if err := runs.Put(b[at:at+8:at+8], b[at+8:end:end]); err != nil {
					return err
				}
				at = end
			}
			return nil
		})
	})
	return int64(len(b)), err
}

// Sync waits until every run appended so far is on disk.
func (a *Archive) Sync() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.last
	for a.err == nil && len(a.buffer) > 0 && a.buffer[0].number <= last {
		notify(a.hurry)
		a.written.Wait()
	}
	return a.err
}

// Prune drops the runs that ended before a time, and the oldest beyond a number of bytes (0 = any number). The
// file keeps its size; what is written later takes the room.
func (a *Archive) Prune(ctx context.Context, before time.Time, maxBytes int64) (dropped int, err error) {
	if err := a.ready(ctx); err != nil {
		return 0, err
	}
	for {
		n, err := a.pruneSome(before, maxBytes)
		dropped += n
		if err != nil {
			return dropped, fmt.Errorf("prune archive %s: %w", a.path, err)
		}
		if n < perTransaction || ctx.Err() != nil {
			return dropped, ctx.Err()
		}
	}
}

func (a *Archive) pruneSome(before time.Time, maxBytes int64) (int, error) {
	a.mu.RLock()
	over := a.bytes - maxBytes
	a.mu.RUnlock()
	if maxBytes <= 0 {
		over = 0
	}
	var labels []label
	size := int64(0)
	err := disk.Guard(a.path, func() error {
		return a.db.Update(func(tx *bbolt.Tx) error {
			runs := tx.Bucket(bucketRuns)
			c := runs.Cursor()
			var keys [][]byte
			for key, record := c.First(); key != nil && len(keys) < perTransaction; key, record = c.Next() {
				l, _, err := readLabel(record)
				if err != nil {
					return &disk.Damaged{Path: a.path, What: err.Error()}
				}
				if size >= over && l.ended >= before.UnixNano() {
					break
				}
				size += int64(len(key) + len(record))
				keys, labels = append(keys, key), append(labels, l.clone())
			}
			for _, key := range keys {
				if err := runs.Delete(key); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range labels {
		a.index.drop(&labels[i])
	}
	a.bytes -= size
	return len(labels), nil
}
