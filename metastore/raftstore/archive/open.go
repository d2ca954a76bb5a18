package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// The open file grows: each write appends blocks and is synced. Its index is in memory, and is built from the labels
// of its records when it is opened.

const (
	// pace is how long runs may wait to be written with others.
	pace = 250 * time.Millisecond
	// perWrite is how many bytes of blocks are written at once, about.
	perWrite = 4 << 20
)

func (a *Archive) openPath() string { return filepath.Join(a.dir, "open") }

// openOpen opens the open file and builds its index, or makes the file: a crash may have come after the old one was
// sealed.
func (a *Archive) openOpen() (err error) {
	sealed := uint64(0)
	if n := len(a.sealed); n > 0 {
		sealed = a.sealed[n-1].last
	}
	a.open, err = os.OpenFile(a.openPath(), os.O_RDWR, 0o600)
	if err == nil {
		err = a.load()
	} else if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return err
	}
	if last := max(sealed, a.filed); last < a.marked {
		return &disk.Damaged{Path: a.openPath(), What: fmt.Sprintf("runs from %d to %d are missing", last+1, a.marked)}
	}
	switch {
	case a.open == nil:
		return a.newOpen(sealed)
	case a.after >= sealed:
		return errors.Join(a.open.Truncate(a.length), a.open.Sync())
	case a.index.runs() > 0:
		return &disk.Damaged{Path: a.openPath(), What: fmt.Sprintf("it begins after run %d, but segments go up to %d", a.after, sealed)}
	}
	return errors.Join(a.open.Close(), a.newOpen(max(sealed, a.filed))) // a segment came from another node
}

// load reads the open file, up to an end that is torn: what comes behind it is in the log.
func (a *Archive) load() error {
	info, err := a.open.Stat()
	if err != nil {
		return err
	}
	scan, label := blocks.Scanner{File: a.open, Size: info.Size()}, new(kernel.Run)
	for scan.At < scan.Size {
		at := scan.At
		h, content, err := scan.Next()
		if errors.Is(err, blocks.ErrUnreadable) && at > 0 || err == nil && h.Kind == blocks.Index {
			break // the index is of a segment that did not get its name: it is made again
		}
		if err == nil && (h.Kind == blocks.Begin) != (at == 0) {
			err = blocks.ErrOrder
		}
		switch {
		case err != nil:
		case h.Kind == blocks.Begin:
			a.index, a.after = newBuilding(blocks.Salt(content)), h.After
		case h.Kind == blocks.Runs:
			err = blocks.EachRecord(&h, content, func(in int, number uint64, record []byte) error {
				if _, err := readLabel(number, record, label); err != nil {
					return err
				}
				a.index.add(number, label)
				a.index.wrote(at + blocks.HeadSize + int64(in))
				a.bytes += int64(blocks.RecordHead + len(record))
				return nil
			})
		default:
			err = blocks.ErrUnreadable
		}
		if errors.Is(err, blocks.ErrUnreadable) || errors.Is(err, blocks.ErrOrder) || errors.Is(err, blocks.ErrRecord) {
			return &disk.Damaged{Path: a.openPath(), What: fmt.Sprintf("at byte %d: %v", at, err)}
		}
		if err != nil {
			return err
		}
		a.length, a.filed = scan.At, scan.After
	}
	if a.index == nil {
		return &disk.Damaged{Path: a.openPath(), What: "it is empty"}
	}
	a.last = a.filed
	purged, err := readGone(a.openPath(), a.index.salt, a.index.runs())
	if purged != nil {
		a.index.hide(purged, a.index.count(func(place int) bool { return isSet(purged, place) }))
	}
	return err
}

// newOpen makes an open file without runs. There must be none, or a closed one.
func (a *Archive) newOpen(after uint64) (err error) {
	w, s := blocks.NewFile(after)
	if err := writeFile(a.openPath(), w.B); err != nil {
		return err
	}
	if a.open, err = os.OpenFile(a.openPath(), os.O_RDWR, 0o600); err != nil {
		return err
	}
	a.after, a.filed, a.length = after, after, int64(len(w.B))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.index, a.bytes, a.last = newBuilding(s), 0, max(a.last, after)
	for _, p := range a.buffer {
		a.index.add(p.number, p.row)
	}
	return nil
}

// work writes appended runs until the archive is closed.
func (a *Archive) work() {
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
	batch, err := a.buffer[:len(a.buffer):len(a.buffer)], a.err
	a.mu.RUnlock()
	if len(batch) == 0 || err != nil {
		return false
	}
	w, n := a.blocks(), 0
	var offsets []uint32
	for ; n < len(batch) && len(w.B) < perWrite; n++ {
		p := batch[n]
		at := w.Record(blocks.Runs, p.number, func(b []byte) []byte { return appendRecord(b, p.number, p.row) })
		offsets = append(offsets, uint32(at))
	}
	batch = batch[:n]
	if a.write(w, w.Head.Last) != nil {
		return false
	}
	a.mu.Lock()
	for i, p := range batch {
		a.index.wrote(int64(offsets[i]))
		a.size -= sizeOf(p.row)
	}
	clear(batch)
	a.buffer = a.buffer[n:]
	if len(a.buffer) == 0 {
		a.buffer = nil
	}
	a.bytes += w.Records
	full := a.bytes >= a.sealAt
	a.written.Broadcast()
	a.mu.Unlock()
	if full {
		return a.seal() == nil
	}
	return true
}

// blocks is what is to be written to the open file. filing must be held.
func (a *Archive) blocks() *blocks.Writer {
	return &blocks.Writer{B: a.room[:0], At: a.length, Last: a.filed}
}

// write appends blocks, of which the last covers numbers up to last, to the open file. filing must be held. After an
// error nothing is written any more.
func (a *Archive) write(w *blocks.Writer, last uint64) error {
	w.End(last)
	if a.room = w.B; cap(w.B) > 2*perWrite {
		a.room = nil
	}
	_, err := a.open.WriteAt(w.B, a.length)
	if err == nil {
		err = a.open.Sync()
	}
	if err != nil {
		err = fmt.Errorf("write archive %s: %w", a.dir, err)
		a.fail(err)
		return err
	}
	a.length, a.filed = a.length+int64(len(w.B)), w.Last
	return nil
}

// Sync waits until every run appended so far is on disk: the log may be cut then.
func (a *Archive) Sync() error {
	a.mu.Lock()
	last := a.last
	for a.err == nil && len(a.buffer) > 0 && a.buffer[0].number <= last {
		notify(a.hurry)
		a.written.Wait()
	}
	err := a.err
	a.mu.Unlock()
	if err != nil {
		return err
	}
	a.filing.Lock()
	defer a.filing.Unlock()
	return a.mark()
}
