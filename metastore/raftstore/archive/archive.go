// Package archive stores finished runs in files, in the order in which they ended.
//
// It is not promised to programs outside this module.
//
// A commit passes its settled runs on and continues: they are written in the background, many at a time, and read
// from memory until then. Each run's number follows from the log entry that settled it, so that a log which is
// replayed after a crash finds its runs there already, or writes the very same ones.
//
// Where to start: block.go for the files, open.go for the one that grows. When that has reached a size, it gets an
// index, is a segment from then on and never changes: it takes nearly no memory, other nodes take it as bytes, and
// deleting it frees its space. See segment.go, seal.go, and retain.go for purging.
//
// Sharp edges: nothing is deleted because of what an unverified block says; whatever was synced and is missing or
// changed is a disk.Damaged.
package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Config configures an archive; its zero value works.
type Config struct {
	// Buffer is about how many bytes of runs may wait to be written. Beyond, commits wait. Default 64 MiB.
	Buffer int64
	// SealAt is how many bytes of runs the open file may take before it is sealed. Default 64 MiB.
	SealAt int64
	// Failed is called with the one error after which the archive writes and reads nothing more.
	Failed func(error)
}

// Archive stores runs in files. All methods may be called at the same time, but Begin and Append only by the
// committer.
type Archive struct {
	dir  string
	cfg  Config
	lock *os.File

	stop    chan struct{}  // closed by Close
	wake    chan struct{}  // there is something to write
	hurry   chan struct{}  // a caller waits for it to be written
	working sync.WaitGroup // the goroutine that writes

	// Of the committing goroutine.
	entry    uint64
	position uint64

	// Locks are taken in this order.
	purging sync.Mutex     // held by Retain, which alone deletes segments
	filing  sync.Mutex     // held while files change
	counts  map[job]*count // of the segments; nil until they are needed; guarded by filing
	sealAt  int64          // guarded by filing
	room    []byte         // memory of the last write; guarded by filing
	after   uint64         // the number after which the open file begins; guarded by filing
	length  int64          // of the open file; guarded by filing
	filed   uint64         // the number up to which the files go; guarded by filing
	marked  uint64         // guarded by filing
	files   sync.RWMutex   // read-held by readers that must not miss a run while it moves to another file
	sealed  []*segment     // oldest first; guarded by files, and changed under filing only
	open    *os.File       // guarded by files, and changed under filing only

	mu      sync.RWMutex
	written sync.Cond // on mu: the buffer has become shorter, or err was set
	err     error
	index   *building // of the open file, and the buffer
	last    uint64    // the highest number given
	buffer  []pending
	size    int64 // of the buffer, about
	bytes   int64 // of the records in the open file
}

// job names a job.
type job struct {
	tenant jobs.Tenant
	key    jobs.Key
}

// count is how many runs of a job there are.
type count struct{ succeeded, others int }

func (c *count) add(state jobs.State, n int) {
	if state == jobs.Succeeded {
		c.succeeded += n
	} else {
		c.others += n
	}
}

func (c *count) take(n count) { c.succeeded, c.others = c.succeeded-n.succeeded, c.others-n.others }

// pending is a run that is not in the file yet.
type pending struct {
	number uint64
	row    *kernel.Run
}

var _ metastore.Archive = (*Archive)(nil)

// Open opens the archive in a folder, or makes one.
func Open(dir string, c Config) (*Archive, error) {
	if c.Buffer <= 0 {
		c.Buffer = 64 << 20
	}
	if c.SealAt <= 0 {
		c.SealAt = 64 << 20
	}
	c.SealAt = min(c.SealAt, 1<<30) // places in files have 4 bytes
	if c.Failed == nil {
		c.Failed = func(error) {}
	}
	a := &Archive{dir: dir, cfg: c, sealAt: c.SealAt, stop: make(chan struct{}), wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1)}
	a.written.L = &a.mu
	err := makeFolder(dir)
	if err == nil {
		err = a.readMark()
	}
	if err == nil {
		err = a.openSegments()
	}
	if err == nil {
		err = a.openOpen()
	}
	if err != nil {
		_ = a.closeFiles()
		return nil, fmt.Errorf("open archive %s: %w", dir, err)
	}
	a.working.Go(a.work)
	return a, nil
}

// makeFolder makes the folder of an archive, if there is none. It is on disk before any file is made in it.
func makeFolder(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// Close writes the buffer and closes the files.
func (a *Archive) Close() error {
	close(a.stop)
	a.working.Wait()
	if err := a.failure(); err != nil {
		return errors.Join(err, a.closeFiles())
	}
	if err := errors.Join(a.mark(), a.closeFiles()); err != nil {
		return fmt.Errorf("close archive %s: %w", a.dir, err)
	}
	return nil
}

func (a *Archive) closeFiles() error {
	var errs []error
	for _, s := range a.sealed {
		errs = append(errs, s.file.Close())
	}
	if a.open != nil {
		errs = append(errs, a.open.Close())
	}
	if a.lock != nil { // last
		errs = append(errs, a.lock.Close())
	}
	return errors.Join(errs...)
}

func (a *Archive) failure() error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.err
}

// fail stores the first error and reports it.
func (a *Archive) fail(err error) {
	a.mu.Lock()
	first := a.err == nil
	if first {
		a.err = err
	}
	a.written.Broadcast()
	a.mu.Unlock()
	if first {
		a.cfg.Failed(err)
	}
}

// Runs of one log entry are numbered from the entry's index on.
const positionBits = 24

// Begin sets the log entry that settles the runs appended from now on. Their keys follow from its index.
func (a *Archive) Begin(entry uint64) { a.entry, a.position = entry, 0 }

// Append adds settled runs, in the order in which they ended. It waits only when the buffer is full.
func (a *Archive) Append(rows []*kernel.Run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, run := range rows {
		a.position++
		number := a.entry<<positionBits | a.position
		if number <= a.last {
			continue // the log is being replayed
		}
		for a.size > a.cfg.Buffer && a.err == nil {
			notify(a.hurry)
			a.written.Wait()
		}
		a.buffer, a.last = append(a.buffer, pending{number, run}), number
		a.size += sizeOf(run)
		a.index.add(number, run)
	}
	notify(a.wake)
}

// sizeOf is about how much memory a run takes.
func sizeOf(run *kernel.Run) int64 {
	return int64(1200 + len(run.Args) + len(run.Result) + len(run.Checkpoint) + len(run.Error) + 160*len(run.Moves))
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Len is how many runs there are, and about how many bytes they take.
func (a *Archive) Len(context.Context) (runs int, bytes int64, err error) {
	if err := a.failure(); err != nil {
		return 0, 0, err
	}
	_, bytes = a.Size()
	a.files.RLock()
	defer a.files.RUnlock()
	for _, s := range a.sealed {
		runs += s.live
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return runs + a.index.live, bytes, nil
}

// Size is how many files there are, and how many bytes the runs in them take.
func (a *Archive) Size() (files int, bytes int64) {
	a.files.RLock()
	defer a.files.RUnlock()
	a.mu.RLock()
	defer a.mu.RUnlock()
	files, bytes = 1, a.bytes
	for _, s := range a.sealed {
		files, bytes = files+1, bytes+s.size
	}
	return files, bytes
}
