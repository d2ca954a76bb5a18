package raftstore

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// A snapshot file is its title, the version of the rules in force, the last entry in it and the last run in the
// archive by then, blocks of rows, each after its length, a length of zero, and the SHA-256 of all that. Restoring
// reads to the end before it uses a row.

const (
	snapshotTitle = "carillon snapshot 3\n"
	blockSize     = 256 << 10
	maxBlock      = 64 << 20
)

// snapshotHead is the head of a snapshot.
type snapshotHead struct {
	rules uint32 // the version that was in force
	index uint64 // of the last entry that is in the rows
	ended uint64 // number of the last run that is in the archive
}

// writeSnapshot writes rows and returns their size in bytes.
func writeSnapshot(to io.Writer, head snapshotHead, rows iter.Seq[kernel.Row]) (size int64, err error) {
	sum := sha256.New()
	w := io.MultiWriter(to, sum)
	write := func(b []byte) {
		if err == nil {
			var n int
			n, err = w.Write(b)
			size += int64(n)
		}
	}
	about := binary.LittleEndian.AppendUint32([]byte(snapshotTitle), head.rules)
	write(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(about, head.index), head.ended))
	block := make([]byte, 4, 4+2*blockSize)
	flush := func() {
		binary.LittleEndian.PutUint32(block, uint32(len(block)-4))
		write(block)
		block = block[:4]
	}
	for row := range rows {
		block = kernel.AppendRow(block, row)
		if len(block) >= blockSize {
			flush()
		}
		if err != nil {
			return size, err
		}
	}
	if len(block) > 4 {
		flush()
	}
	flush() // the empty block at the end
	if err == nil {
		_, err = to.Write(sum.Sum(nil))
	}
	return size + sha256.Size, err
}

var errSnapshot = errors.New("wrong checksum")

// readSnapshot is the rows of a snapshot. Its last yield is an error if the file is damaged, or if a program that
// knows the rules up to a version cannot read it. The head is set when all rows were read.
func readSnapshot(from io.Reader, knows uint32) (*snapshotHead, iter.Seq2[kernel.Row, error]) {
	head := new(snapshotHead)
	return head, func(yield func(kernel.Row, error) bool) {
		// Blocks are decoded in parallel, and yielded in their order.
		parts, stop := make(chan chan part, runtime.GOMAXPROCS(0)), make(chan struct{})
		var reading sync.WaitGroup
		defer reading.Wait()
		defer close(stop)
		reading.Go(func() {
			defer close(parts)
			err := readBlocks(from, knows, head, func(block []byte) bool {
				of := make(chan part, 1)
				select {
				case parts <- of:
					reading.Go(func() { of <- decodeBlock(block) })
					return true
				case <-stop:
					return false
				}
			})
			if err != nil {
				of := make(chan part, 1)
				of <- part{err: err}
				select {
				case parts <- of:
				case <-stop:
				}
			}
		})
		for of := range parts {
			p := <-of
			for _, row := range p.rows {
				if !yield(row, nil) {
					return
				}
			}
			if p.err != nil {
				yield(nil, p.err)
				return
			}
		}
	}
}

// part is the rows of a block, and the error after them.
type part struct {
	rows []kernel.Row
	err  error
}

func decodeBlock(block []byte) (p part) {
	for len(block) > 0 && p.err == nil {
		var row kernel.Row
		if row, block, p.err = kernel.DecodeRow(block); p.err == nil {
			p.rows = append(p.rows, row)
		}
	}
	return p
}

// readBlocks calls take with each block, until it is false.
func readBlocks(from io.Reader, knows uint32, is *snapshotHead, take func(block []byte) bool) error {
	sum := sha256.New()
	in := bufio.NewReaderSize(from, blockSize)
	read := func(b []byte) error {
		if _, err := io.ReadFull(in, b); err != nil {
			return fmt.Errorf("truncated: %w", err)
		}
		sum.Write(b)
		return nil
	}
	title := make([]byte, len(snapshotTitle))
	if err := read(title); err != nil {
		return err
	}
	if string(title) != snapshotTitle {
		return fmt.Errorf("no snapshot: it begins with %q, want %q", title, snapshotTitle)
	}
	var about [20]byte
	if err := read(about[:]); err != nil {
		return err
	}
	is.rules, is.index, is.ended = binary.LittleEndian.Uint32(about[:]), binary.LittleEndian.Uint64(about[4:]), binary.LittleEndian.Uint64(about[12:])
	if err := metastore.Readable("the snapshot", is.rules, knows); err != nil {
		return err
	}
	var head [4]byte
	for {
		if err := read(head[:]); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(head[:])
		if n == 0 {
			break
		}
		if n > maxBlock {
			return errSnapshot
		}
		block := make([]byte, n)
		if err := read(block); err != nil {
			return err
		}
		if !take(block) {
			return nil
		}
	}
	want := sum.Sum(nil)
	got := make([]byte, len(want))
	if err := read(got); err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return errSnapshot
	}
	return nil
}

// newestSnapshot is the newest snapshot in a directory, or nil. A damaged one is an error: raft would continue
// without it, and the log may no longer have what it contained.
func newestSnapshot(store raft.SnapshotStore, dir string) (*raft.SnapshotMeta, error) {
	folder := filepath.Join(dir, "snapshots")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("read snapshots: %w", err)
	}
	list, err := store.List()
	if err != nil {
		return nil, fmt.Errorf("read snapshots: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		path := filepath.Join(folder, e.Name())
		if strings.HasSuffix(e.Name(), ".tmp") { // a crash came between
			if err := os.RemoveAll(path); err != nil {
				return nil, fmt.Errorf("remove unfinished snapshot: %w", err)
			}
			continue
		}
		if !slices.ContainsFunc(list, func(m *raft.SnapshotMeta) bool { return m.ID == e.Name() }) {
			return nil, &disk.Damaged{Path: path, What: "its meta.json cannot be read"}
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	return list[0], nil
}

// restoreNewest fills the machine from the newest snapshot, makes the log fit it, and returns it, or nil if there is
// none.
func (s *Store) restoreNewest(snapshots raft.SnapshotStore) (*raft.SnapshotMeta, error) {
	meta, err := newestSnapshot(snapshots, s.cfg.Dir)
	if err != nil || meta == nil {
		return nil, err
	}
	if err := s.log.follow(meta); err != nil {
		return nil, err
	}
	path := filepath.Join(s.cfg.Dir, "snapshots", meta.ID, "state.bin")
	_, file, err := snapshots.Open(meta.ID)
	if err != nil {
		return nil, &disk.Damaged{Path: path, What: err.Error()}
	}
	if err := s.machine.Restore(file); errors.Is(err, metastore.ErrTooOld) {
		return nil, fmt.Errorf("read snapshot %s: %w", path, err)
	} else if err != nil {
		return nil, &disk.Damaged{Path: path, What: err.Error()}
	}
	if until := s.machine.behind.until.Load(); until > 0 {
		if err := s.completable(until); err != nil {
			return nil, err
		}
	}
	taken := time.Time{}
	if written, err := os.Stat(path); err == nil {
		taken = written.ModTime()
	}
	s.machine.bounds.restored(meta.Index)
	s.machine.bounds.snapshot(meta.Size, taken)
	return meta, nil
}

// watchedSnapshots detects that a snapshot can no longer be read. Raft opens one when a node lags far behind, and
// would try the same one for ever; the rows in memory are intact, and make another.
type watchedSnapshots struct {
	raft.SnapshotStore
	dir string
	bad func(error)
}

func (w watchedSnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, file, err := w.SnapshotStore.Open(id)
	if err != nil {
		w.bad(&disk.Damaged{Path: filepath.Join(w.dir, "snapshots", id), What: err.Error()})
	}
	return meta, file, err
}

// again takes another snapshot in place of one that is damaged.
func (s *Store) again(err error) {
	s.cfg.Logger.Error("snapshot cannot be read, another one is taken", "err", err)
	s.machine.bounds.ask()
}
