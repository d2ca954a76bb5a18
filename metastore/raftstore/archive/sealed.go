package archive

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// sealed is a file of runs that gets no more of them. Purged runs are marked in hidden; when all are, the file is
// deleted, and when most are, it is rewritten without them. All fields except file are guarded by Archive.files.
type sealed struct {
	path        string
	db          *bbolt.DB
	size        int64  // of the file
	runs        int    // that lie in it
	live        int    // of those, not hidden
	hidden      []byte // a bit a run
	first, last uint64 // its range of numbers; some may have no run
	begins      int64  // when the first of them ended
	damaged     bool   // it has a damaged run, so it is not rewritten; guarded by Archive.filing
}

var (
	bucketFind   = []byte("find")
	keyNumbers   = []byte("numbers")
	keyStates    = []byte("states")
	keyLists     = []byte("lists")
	keyGroups    = []byte("groups")
	keySalt      = []byte("salt")
	keyHidden    = []byte("hidden")
	keySpan      = []byte("span") // first, last, begins, and the checksum of these and the columns
	sealedSuffix = ".db"
)

// nameOf is the name of the sealed file that begins with a number.
func nameOf(first uint64) string { return fmt.Sprintf("%016x%s", first, sealedSuffix) }

// folderOf is the folder of the sealed files of an archive.
func folderOf(path string) string { return strings.TrimSuffix(path, ".db") + ".sealed" }

func (f *finder) checksum(span []byte) uint32 {
	sum := crc32.Checksum(span, castagnoli)
	for _, column := range [][]byte{f.numbers, f.states, f.lists, f.groups, f.salt} {
		sum = crc32.Update(sum, castagnoli, column)
	}
	return sum
}

// view reads the file.
func (s *sealed) view(fn func(runs *bbolt.Bucket, f *finder) error) error {
	err := disk.Guard(s.path, func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			runs, find := tx.Bucket(bucketRuns), tx.Bucket(bucketFind)
			if runs == nil || find == nil {
				return &disk.Damaged{Path: s.path, What: "it has no runs"}
			}
			return fn(runs, &finder{find.Get(keyNumbers), find.Get(keyStates), find.Get(keyLists), find.Get(keyGroups), find.Get(keySalt)})
		})
	})
	if err != nil {
		return fmt.Errorf("read archive %s: %w", s.path, err)
	}
	return nil
}

func (s *sealed) isHidden(place uint32) bool { return s.hidden[place/8]&(1<<(place%8)) != 0 }

// openSealed opens a file and checks its indexes.
func openSealed(path string) (*sealed, error) {
	s := &sealed{path: path}
	err := disk.Guard(path, func() (err error) {
		s.db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open archive %s: %w", path, err)
	}
	err = s.view(func(runs *bbolt.Bucket, f *finder) error {
		find := runs.Tx().Bucket(bucketFind)
		span := find.Get(keySpan)
		if len(span) != 28 || len(f.numbers) != 8*len(f.states) || binary.BigEndian.Uint32(span[24:]) != f.checksum(span[:24]) {
			return &disk.Damaged{Path: path, What: "its index has a wrong checksum"}
		}
		s.first, s.last, s.begins = binary.BigEndian.Uint64(span), binary.BigEndian.Uint64(span[8:]), int64(binary.BigEndian.Uint64(span[16:]))
		s.runs = f.runs()
		if s.runs == 0 {
			return &disk.Damaged{Path: path, What: "it has no runs"}
		}
		if want := nameOf(s.first); filepath.Base(path) != want {
			return &disk.Damaged{Path: path, What: "its content is that of " + want}
		}
		hidden, ok := unsummed(find.Get(keyHidden))
		if !ok || len(hidden) != (s.runs+7)/8 {
			return &disk.Damaged{Path: path, What: "the list of purged runs has a wrong checksum"}
		}
		s.hidden = slices.Clone(hidden)
		for place := range uint32(s.runs) {
			if !s.isHidden(place) {
				s.live++
			}
		}
		return nil
	})
	if err != nil {
		_ = s.db.Close()
		return nil, err
	}
	if info, err := os.Stat(path); err == nil {
		s.size = info.Size()
	}
	return s, nil
}

// writer writes a sealed file beside its place.
type writer struct {
	path  string
	db    *bbolt.DB
	tx    *bbolt.Tx
	make  *maker
	runs  *bbolt.Bucket // of the transaction
	room  []byte        // keys and records of the transaction: their sources may change before the commit
	begin int64
	named bool // the file has its name
}

// sealedPage is how large the pages of a sealed file are: each is written by a call of its own, and once, so they may
// be as large as the file justifies.
func (c Config) sealedPage() int {
	if c.SealAt < 4<<20 {
		return 4 << 10
	}
	return 64 << 10
}

// portion is how many bytes of runs go into one transaction.
const portion = 4 << 20

func newWriter(folder string, page int) (*writer, error) {
	if err := makeFolder(folder); err != nil {
		return nil, err
	}
	salt := make([]byte, 16)
	if _, err := rand.Read(salt); err != nil {
		return nil, err
	}
	w := &writer{path: filepath.Join(folder, unfinished), make: newMaker(salt)}
	if err := os.Remove(w.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var err error
	// The file is used only once it has its name, so it is synced once, at the end.
	w.db, err = bbolt.Open(w.path, 0o600, &bbolt.Options{Timeout: lockTimeout, NoSync: true, NoGrowSync: true, FreelistType: bbolt.FreelistMapType,
		PageSize: page, InitialMmapSize: 128 << 20}) // else the map is copied each time the file outgrows it
	return w, err
}

func (w *writer) add(number uint64, record []byte) (err error) {
	l, _, err := readLabel(number, record)
	if err != nil {
		return fmt.Errorf("run %d: %w", number, err)
	}
	if len(w.make.states) == 0 {
		w.begin = l.ended
	}
	w.make.add(number, &l)
	if need := 8 + len(record); need > cap(w.room)-len(w.room) {
		if w.tx != nil {
			err, w.tx = w.tx.Commit(), nil
		}
		if err != nil {
			return err
		}
		w.room = slices.Grow(w.room[:0], max(portion, need))
	}
	if w.tx == nil {
		if w.tx, err = w.db.Begin(true); err != nil {
			return err
		}
		if w.runs, err = w.tx.CreateBucketIfNotExists(bucketRuns); err != nil {
			return err
		}
		w.runs.FillPercent = 1
	}
	at := len(w.room)
	w.room = append(binary.BigEndian.AppendUint64(w.room, number), record...)
	return w.runs.Put(w.room[at:at+8:at+8], w.room[at+8:])
}

// finish gives the file its name, or removes it if it has no run; then it returns nil.
func (w *writer) finish(first, last uint64) (_ *sealed, err error) {
	defer func() {
		if w.tx != nil {
			_ = w.tx.Rollback()
		}
		if w.db != nil {
			_ = w.db.Close()
		}
		if err != nil {
			_ = os.Remove(w.path)
		}
	}()
	if len(w.make.states) == 0 {
		err := w.db.Close()
		w.db = nil
		return nil, errors.Join(err, os.Remove(w.path))
	}
	f := w.make.columns()
	if w.tx == nil {
		if w.tx, err = w.db.Begin(true); err != nil {
			return nil, err
		}
	}
	find, err := w.tx.CreateBucketIfNotExists(bucketFind)
	if err != nil {
		return nil, err
	}
	span := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, first), last)
	span = binary.BigEndian.AppendUint64(span, uint64(w.begin))
	span = binary.BigEndian.AppendUint32(span, f.checksum(span))
	for _, column := range []struct{ key, value []byte }{{keyNumbers, f.numbers}, {keyStates, f.states}, {keyLists, f.lists}, {keyGroups, f.groups},
		{keySalt, f.salt}, {keyHidden, summed(make([]byte, (f.runs()+7)/8))}, {keySpan, span}} {
		if err := find.Put(column.key, column.value); err != nil {
			return nil, err
		}
	}
	err = w.tx.Commit()
	w.tx = nil
	if err = errors.Join(err, w.db.Sync(), w.db.Close()); err != nil {
		w.db = nil
		return nil, err
	}
	w.db = nil
	path := filepath.Join(filepath.Dir(w.path), nameOf(first))
	if err := os.Rename(w.path, path); err != nil {
		return nil, err
	}
	w.named = true
	// The folder may be new: without a sync of its own parent a loss of power deletes it with all its files.
	folder := filepath.Dir(path)
	if err := errors.Join(syncDir(folder), syncDir(filepath.Dir(folder))); err != nil {
		return nil, err
	}
	return openSealed(path)
}

// give up removes an unfinished file.
func (w *writer) giveUp() {
	if w.tx != nil {
		_ = w.tx.Rollback()
	}
	_ = w.db.Close()
	_ = os.Remove(w.path)
}

// each visits the runs that are not hidden and have numbers above after, in order, until fn stops it.
func (s *sealed) each(after uint64, fn func(number uint64, record []byte) (goOn bool, err error)) error {
	return s.view(func(runs *bbolt.Bucket, f *finder) error {
		for place := f.from(after + 1); place < f.runs(); place++ {
			if s.isHidden(uint32(place)) {
				continue
			}
			number := f.number(uint32(place))
			record := runs.Get(keyOf(number))
			if record == nil {
				return &disk.Damaged{Path: s.path, What: fmt.Sprintf("run %d is missing", number)}
			}
			if goOn, err := fn(number, record); err != nil || !goOn {
				return err
			}
		}
		return nil
	})
}

// get is the run of an id, or nil.
func (s *sealed) get(tenant jobs.Tenant, id jobs.ID) (run *kernel.Run, err error) {
	err = s.view(func(runs *bbolt.Bucket, f *finder) error {
		l := f.list(hashOf(f.salt, byID, []byte(tenant), id[:]))
		for i := range l.len() {
			if s.isHidden(l.at(i)) {
				continue
			}
			number := f.number(l.at(i))
			row, err := decode(number, runs.Get(keyOf(number)))
			if err != nil {
				return damagedRun(s.path, number, err)
			}
			if row.ID == id && row.Tenant == tenant {
				run = row
			}
		}
		return nil
	})
	return run, err
}

// unfinished is the name of a sealed file that is being written.
const unfinished = "unfinished"

// makeFolder makes the folder of sealed files, if there is none. It is on disk before any file moves into it, because
// the file's sources are deleted then.
func makeFolder(folder string) error {
	err := os.Mkdir(folder, 0o700)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(folder))
}

// syncDir is a variable for a test, in which the disk fails.
var syncDir = func(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
