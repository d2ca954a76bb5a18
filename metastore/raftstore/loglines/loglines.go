// Package loglines stores log lines of handlers in files of blocks, as they arrive.
//
// It is not promised to programs outside this module.
//
// Lines are appended to one file. At 64 MiB it gets an index and never changes again: it takes nearly no memory, and is
// deleted as a whole. Where to start: record.go for what is in blocks, file.go for files, index.go for finding lines.
//
// Sharp edges: files are synced once a second: a loss of power may cost the lines since. Damage costs a block, is
// reported, and stays in its file.
package loglines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
)

// Config configures Logs; its zero value works.
type Config struct {
	// SealAt is how many bytes the file that grows may reach. Default 64 MiB.
	SealAt int64
	// Now is the clock by which files become old. Default time.Now.
	Now func() time.Time
	// Damaged is called once for each place of a file that is unreadable.
	Damaged func(error)
}

// Logs stores lines in a folder.
type Logs struct {
	dir string
	cfg Config

	writing sync.Mutex          // held while files change; taken before mu
	sealAt  int64               // guarded by writing
	lately  lately              // guarded by writing
	dirty   bool                // there are lines that are not synced; guarded by writing
	err     error               // of a sync: no write follows it; guarded by writing
	last    uint64              // the number of the last record; guarded by writing
	lines   []metastore.LogLine // memory of the last write; guarded by writing
	bytes   []byte              // the same
	opened  time.Time

	mu     sync.RWMutex // what readers use is changed under writing and mu
	files  []*file      // oldest first
	open   *file        // the file that grows; nil = none yet
	closed bool
}

var _ metastore.Logs = (*Logs)(nil)

const (
	// mostRoom is how many bytes of memory are kept for the next write.
	mostRoom = 1 << 20
	// syncEvery is how long lines may wait until they survive a loss of power.
	syncEvery = time.Second
	// resend is how long after a restart the first lines of an attempt may be sent again.
	resend = 5 * time.Minute
)

// Open opens a folder of lines, or makes one.
func Open(dir string, c Config) (*Logs, error) {
	if c.SealAt <= 0 {
		c.SealAt = 64 << 20
	}
	c.SealAt = min(c.SealAt, 1<<30) // places in files have 4 bytes
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Damaged == nil {
		c.Damaged = func(error) {}
	}
	l := &Logs{dir: dir, cfg: c, sealAt: c.SealAt, opened: c.Now()}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = l.openFiles()
	}
	if err != nil {
		return nil, fmt.Errorf("open logs: %w", errors.Join(err, l.Close()))
	}
	return l, nil
}

// Close syncs and closes the files.
func (l *Logs) Close() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	errs := []error{l.err}
	for _, f := range l.files {
		if f.file != nil {
			errs = append(errs, f.file.Close())
		}
	}
	l.files, l.open = nil, nil
	return errors.Join(errs...)
}

var errClosed = kernel.Refuse(jobs.Unavailable, "the logs are closed")

// Append stores lines.
func (l *Logs) Append(_ context.Context, lines []metastore.LogLine) error {
	return l.store(lines, l.cfg.Now())
}

// store stores lines as if they arrived at a time.
func (l *Logs) store(lines []metastore.LogLine, at time.Time) error {
	if len(lines) == 0 {
		return nil
	}
	stored := max(0, at.Unix())
	l.writing.Lock()
	defer l.writing.Unlock()
	lines = append(l.lines[:0], lines...)
	defer clear(lines)
	if l.lines = lines; len(lines) > mostRoom/entrySize {
		l.lines = nil
	}
	slices.SortStableFunc(lines, func(a, b metastore.LogLine) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), slices.Compare(a.Run[:], b.Run[:]), a.Compare(b.LogPosition))
	})
	if err := l.ready(); err != nil {
		return err
	}
	f := l.open
	w := blocks.Writer{B: l.bytes[:0], At: f.length, Last: f.last}
	var hashes []uint32
	var entries []entry
	for len(lines) > 0 {
		n := leading(lines, sameAttempt)
		r := label{attempt: attempt{name{lines[0].Tenant, lines[0].Run}, lines[0].Attempt}, stored: stored}
		known, err := l.known(r.attempt, lines[0].Sequence)
		if err != nil {
			l.lately.forget() // what is noted there is not written
			return err
		}
		kept := l.lately.keep(known, lines[:n])
		for lines = lines[n:]; len(kept) > 0; {
			size := 0
			n := leading(kept, func(a, b *metastore.LogLine) bool {
				size += a.Size()
				return size < perRecord && a.Sequence+1 == b.Sequence
			})
			r.first, r.count, r.account = kept[0].Sequence, uint64(n), known.account
			l.last++
			place := w.Record(blocks.Lines, l.last, func(b []byte) []byte { return appendRecord(b, &f.salt, &r, kept[:n]) })
			hashes = append(hashes, f.hash(r.name))
			entries = append(entries, entry{place: uint32(place), number: r.number, count: uint32(n), first: r.first})
			kept = kept[n:]
		}
	}
	w.End(0)
	if l.bytes = w.B; len(w.B) > mostRoom {
		l.bytes = nil
	}
	if _, err := f.file.WriteAt(w.B, f.length); err != nil {
		l.lately.forget()
		return fmt.Errorf("write log file: %w", err)
	}
	l.mu.Lock()
	for i, h := range hashes {
		f.index.add(h, entries[i])
	}
	f.length, f.last, f.newest = f.length+int64(len(w.B)), w.Last, max(f.newest, stored)
	l.mu.Unlock()
	if len(w.B) > 0 && !l.dirty {
		l.dirty = true
		time.AfterFunc(syncEvery, func() {
			l.writing.Lock()
			defer l.writing.Unlock()
			l.sync()
		})
	}
	return nil
}

// ready makes a file ready for lines.
func (l *Logs) ready() error {
	if l.closed || l.err != nil {
		return cmp.Or(l.err, error(errClosed))
	}
	if l.open != nil && l.open.length >= l.sealAt {
		if err := l.seal(); err != nil {
			return err
		}
	}
	if l.open == nil {
		return l.begin()
	}
	return nil
}

// sync syncs the file that grows. After a failed sync nothing is written: its content is unknown.
func (l *Logs) sync() {
	if !l.dirty || l.err != nil {
		return
	}
	l.dirty = false
	if l.open != nil {
		if err := l.open.file.Sync(); err != nil {
			l.err = fmt.Errorf("sync log file: %w", err)
		}
	}
}

// leading is how many lines at the front belong together.
func leading(lines []metastore.LogLine, together func(a, b *metastore.LogLine) bool) int {
	n := 1
	for n < len(lines) && together(&lines[n-1], &lines[n]) {
		n++
	}
	return n
}

func sameAttempt(a, b *metastore.LogLine) bool {
	return a.Tenant == b.Tenant && a.Run == b.Run && a.Attempt == b.Attempt
}

// Size is how many bytes the files take.
func (l *Logs) Size() (bytes int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, f := range l.files {
		bytes += f.length
	}
	return bytes
}

// Bound deletes the oldest files while all of them take more than some bytes (0 = any number), but not the one that
// grows: that is sealed while it is small compared with those bytes.
func (l *Logs) Bound(most int64) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if l.sealAt = l.cfg.SealAt; most <= 0 {
		return nil
	}
	l.sealAt = min(l.sealAt, max(most/8, 64<<10))
	if l.open != nil && l.open.length >= l.sealAt && l.err == nil {
		if err := l.seal(); err != nil {
			return err
		}
	}
	size := l.Size()
	return l.drop(func(f *file) bool {
		tooMany := size > most && f != l.open
		if tooMany {
			size -= f.length
		}
		return tooMany
	})
}

// Prune deletes the files whose last line was stored before a time.
func (l *Logs) Prune(before time.Time) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.drop(func(f *file) bool { return f.newest < before.Unix() })
}

// drop deletes files. Readers skip those that they have not read yet. writing must be held.
func (l *Logs) drop(gone func(*file) bool) error {
	var dropped []*file
	l.mu.Lock()
	l.files = slices.DeleteFunc(slices.Clone(l.files), func(f *file) bool {
		if !gone(f) {
			return false
		}
		if dropped = append(dropped, f); f == l.open {
			l.open = nil
		}
		return true
	})
	l.mu.Unlock()
	var errs []error
	for _, f := range dropped {
		errs = append(errs, f.file.Close(), os.Remove(f.path))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete log files: %w", err)
	}
	return nil
}
