package archive

import (
	"encoding/binary"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

const (
	// lockTimeout is how long Open waits for another process to release the file.
	lockTimeout = 500 * time.Millisecond
	// pace is how long runs may wait to be written with others.
	pace = 250 * time.Millisecond
	// perTransaction is how many runs are written at once.
	perTransaction = 8192
)

// work builds the indexes, then writes appended runs until the archive is closed.
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
	for _, s := range a.sealed {
		if err := a.countIn(s); err != nil {
			return err
		}
	}
	return a.db.View(func(tx *bbolt.Tx) error {
		forgotten, err := a.readHidden(tx)
		if err != nil {
			return err
		}
		c := tx.Bucket(bucketRuns).Cursor()
		before := uint64(0)
		for key, record := c.First(); key != nil; key, record = c.Next() {
			number := binary.BigEndian.Uint64(key)
			l, _, err := readLabel(number, record)
			if err != nil {
				return damagedRun(a.path, number, err)
			}
			if number <= before {
				return damagedRun(a.path, number, errOrder)
			}
			before = number
			a.index.add(number, &l)
			if forgotten[number] {
				a.index.hide(a.index.shelves[string(l.tenant)].jobs[string(l.key)], a.index.next()-1)
			}
			a.bytes += int64(len(key) + len(record))
		}
		tally, err := a.readTally(tx)
		if err != nil {
			return err
		}
		if have := uint64(a.index.next()); have != tally.runs || before > tally.last {
			return &disk.Damaged{Path: a.path, What: fmt.Sprintf("it has %d runs up to number %d, want %d up to %d", have, before, tally.runs, tally.last)}
		}
		return nil
	})
}

// readHidden reads which runs of the open file were purged.
func (a *Archive) readHidden(tx *bbolt.Tx) (forgotten map[uint64]bool, err error) {
	b := tx.Bucket(bucketHidden)
	if b == nil {
		return nil, nil
	}
	forgotten = map[uint64]bool{}
	passes := uint64(0)
	err = b.ForEach(func(key, list []byte) error {
		passes++
		list, ok := unsummed(list)
		if !ok || len(key) != 8 || binary.BigEndian.Uint64(key) != passes {
			return &disk.Damaged{Path: a.path, What: "a list of purged runs has a wrong checksum"}
		}
		for ; len(list) >= 8; list = list[8:] {
			forgotten[binary.BigEndian.Uint64(list)] = true
		}
		return nil
	})
	if err == nil && passes != b.Sequence() {
		err = &disk.Damaged{Path: a.path, What: fmt.Sprintf("it has %d lists of purged runs, want %d", passes, b.Sequence())}
	}
	return forgotten, err
}

// tally counts the open file's runs, to detect a run that can no longer be found.
type tally struct {
	last uint64 // the highest number ever given, whose run may be gone
	runs uint64 // how many lie in the open file
}

func (a *Archive) readTally(tx *bbolt.Tx) (t tally, err error) {
	b, ok := unsummed(tx.Bucket(bucketAbout).Get(keyTally))
	if !ok || len(b) != 16 {
		return t, &disk.Damaged{Path: a.path, What: "the number of its runs has a wrong checksum"}
	}
	return tally{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}, nil
}

func (t tally) put(tx *bbolt.Tx) error {
	b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, t.last), t.runs)
	return tx.Bucket(bucketAbout).Put(keyTally, summed(b))
}

// count notes in a transaction that there are more runs in the open file, and that numbers up to last were given.
func (a *Archive) count(tx *bbolt.Tx, runs int, last uint64) error {
	t, err := a.readTally(tx)
	if err != nil {
		return err
	}
	t.runs, t.last = t.runs+uint64(runs), max(t.last, last)
	return t.put(tx)
}

// flush writes all of the buffer.
func (a *Archive) flush() {
	for a.flushSome() {
	}
}

// flushSome writes some of the buffer and reports whether there may be more.
func (a *Archive) flushSome() (more bool) {
	a.filing.Lock()
	defer a.filing.Unlock()
	a.mu.RLock()
	n, err := min(len(a.buffer), perTransaction), a.err
	batch := a.buffer[:n:n]
	a.mu.RUnlock()
	if n == 0 || err != nil {
		return false
	}
	size, err := a.write(batch)
	if err != nil {
		a.fail(fmt.Errorf("write archive %s: %w", a.path, err))
		return false
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
	full := a.bytes >= a.sealAt
	a.written.Broadcast()
	a.mu.Unlock()
	if full {
		return a.seal() == nil
	}
	return true
}

// write puts runs at the end of the file, in one transaction.
func (a *Archive) write(batch []pending) (size int64, err error) {
	// Keys and values must stay where they are until the commit: they share one piece of memory.
	b := a.room[:0]
	ends := make([]int, len(batch))
	for i, p := range batch {
		b = binary.BigEndian.AppendUint64(b, p.number)
		b = appendRecord(b, p.number, p.row)
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
			return a.count(tx, len(batch), batch[len(batch)-1].number)
		})
	})
	if a.room = b; cap(b) > mostRoom {
		a.room = nil
	}
	return int64(len(b)), err
}

// mostRoom is how much memory is kept from one write for the next.
const mostRoom = 4 << 20

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
