// Package archive stores finished runs in files, in the order in which they ended.
//
// It is not promised to programs outside this module.
//
// A commit passes its settled runs on and continues: they are written in the background, many at a time, and read
// from memory until then. Each run's key in the file follows from the log entry that settled it, so that a log which
// is replayed after a crash finds its runs there already, or writes the very same ones. Indexes of the open file are
// in memory and are built when it is opened; only readers wait for them.
//
// When the open file has reached a size, its runs, except purged ones, move to a file of their own with its indexes,
// and the open one starts again: such a sealed file takes nearly no memory, and deleting it frees its space. See
// sealed.go, and retain.go for purging.
//
// Every transaction is synced, because a file of pages that were written in no order does not survive the loss of
// power; no caller waits for it.
package archive

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
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
	path string
	db   *bbolt.DB
	cfg  Config

	indexed chan struct{}  // closed when the indexes have the whole file
	stop    chan struct{}  // closed by Close
	wake    chan struct{}  // there is something to write
	hurry   chan struct{}  // a caller waits for it to be written
	working sync.WaitGroup // the goroutine that indexes, then writes

	// Of the committing goroutine.
	entry    uint64
	position uint64

	// Locks are taken in this order.
	filing sync.Mutex     // held while files change
	counts map[job]*count // of the sealed files; guarded by filing
	files  sync.RWMutex   // read-held by readers that must not miss a run while it moves to another file
	sealed []*sealed      // oldest first; guarded by files, and changed under filing only
	sealAt int64          // guarded by filing
	room   []byte         // memory of the last write; guarded by filing

	mu      sync.RWMutex
	written sync.Cond // on mu: the buffer has become shorter, or err was set
	err     error
	index   *index
	last    uint64 // the highest number given
	buffer  []pending
	size    int64  // of the buffer, about
	flushed uint32 // place of the first run in the buffer, once indexed
	bytes   int64  // of the records in the open file
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

// pending is a run that is not in the file yet.
type pending struct {
	number uint64
	row    *kernel.Run
}

var _ metastore.Archive = (*Archive)(nil)

var (
	bucketRuns  = []byte("runs")
	bucketAbout = []byte("about")
	// bucketHidden has the numbers of purged runs of the open file, a list for each pass.
	bucketHidden = []byte("hidden")
	keyTally     = []byte("tally")
)

// Open opens the archive in a file, or makes one.
func Open(path string, c Config) (*Archive, error) {
	if c.Buffer <= 0 {
		c.Buffer = 64 << 20
	}
	if c.SealAt <= 0 {
		c.SealAt = 64 << 20
	}
	if c.Failed == nil {
		c.Failed = func(error) {}
	}
	a := &Archive{path: path, cfg: c, sealAt: c.SealAt, counts: map[job]*count{}, index: newIndex(), indexed: make(chan struct{}), stop: make(chan struct{}),
		wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1)}
	a.written.L = &a.mu
	if err := disk.CheckBolt(path, lockTimeout); err != nil {
		return nil, fmt.Errorf("open archive %s: %w", path, err)
	}
	err := disk.Guard(path, func() (err error) {
		a.db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType, InitialMmapSize: 256 << 20})
		if err != nil {
			return disk.Opened(path, err)
		}
		return a.db.Update(a.begin)
	})
	if err == nil {
		err = a.openSealed()
	}
	if err != nil {
		_ = a.closeFiles()
		return nil, fmt.Errorf("open archive %s: %w", path, err)
	}
	a.working.Go(a.work)
	return a, nil
}

// begin makes the buckets of a new file, or reads those of an old one.
func (a *Archive) begin(tx *bbolt.Tx) error {
	found := map[string]bool{}
	err := tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
		found[string(name)] = true
		return nil
	})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		_, err := tx.CreateBucket(bucketRuns)
		if err == nil {
			_, err = tx.CreateBucket(bucketAbout)
		}
		if err == nil {
			err = tally{}.put(tx)
		}
		return err
	}
	has := 2
	if found[string(bucketHidden)] {
		has++
	}
	if !found[string(bucketRuns)] || !found[string(bucketAbout)] || len(found) != has {
		return &disk.Damaged{Path: a.path, What: "it is not an archive"}
	}
	t, err := a.readTally(tx)
	a.last = t.last
	return err
}

// Close writes the buffer and closes the file.
func (a *Archive) Close() error {
	close(a.stop)
	a.working.Wait()
	if err := a.closeFiles(); err != nil {
		return fmt.Errorf("close archive %s: %w", a.path, err)
	}
	return a.failure()
}

func (a *Archive) closeFiles() error {
	var errs []error
	for _, s := range a.sealed {
		errs = append(errs, s.db.Close())
	}
	if a.db != nil {
		errs = append(errs, a.db.Close())
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
		if a.isIndexed() {
			l := labelOf(run)
			a.index.add(number, &l)
		}
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

func (a *Archive) isIndexed() bool {
	select {
	case <-a.indexed:
		return true
	default:
		return false
	}
}

// ready waits until the indexes are built.
func (a *Archive) ready(ctx context.Context) error {
	select {
	case <-a.indexed:
	case <-ctx.Done():
		return ctx.Err()
	}
	return a.failure()
}

// Len is how many runs there are, and about how many bytes they take.
func (a *Archive) Len(ctx context.Context) (runs int, bytes int64, err error) {
	if err := a.ready(ctx); err != nil {
		return 0, 0, err
	}
	a.files.RLock()
	defer a.files.RUnlock()
	a.mu.RLock()
	defer a.mu.RUnlock()
	runs, bytes = a.index.live, a.bytes
	for _, s := range a.sealed {
		runs, bytes = runs+s.live, bytes+s.size
	}
	return runs, bytes, nil
}

// Size is how many files there are, and how many bytes the runs in them take, as far as is known: it does not wait.
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
