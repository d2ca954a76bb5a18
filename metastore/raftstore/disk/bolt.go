package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// CheckBolt walks through a bbolt file, before it is opened in earnest: without a synced freelist, bbolt then goes
// through its pages in a goroutine of its own, where no one can catch what damage does. No file, or an empty one, is
// fine.
func CheckBolt(path string, lockTimeout time.Duration) error {
	if err := checkLength(path); err != nil || !exists(path) {
		return err
	}
	return Guard(path, func() error {
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
		if err != nil {
			return Opened(path, err)
		}
		defer db.Close()
		return db.View(func(tx *bbolt.Tx) error {
			return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
				return b.ForEach(func(key, value []byte) error { return nil })
			})
		})
	})
}

func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}

// Where a bbolt file says how long it is: in either of two meta pages, the valid one with the higher number.
const (
	boltMagic    = 0xED0CDAED
	pageHead     = 16
	metaLength   = 64
	metaPageSize = 8
	metaPages    = 40
	metaNumber   = 48
	metaSum      = 56
)

// checkLength says whether a bbolt file has all its pages.
func checkLength(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	var newest, pages, pageSize uint64
	for _, at := range []int64{0, int64(os.Getpagesize())} {
		b := make([]byte, metaLength)
		if _, err := f.ReadAt(b, at+pageHead); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		sum := fnv.New64a()
		sum.Write(b[:metaSum])
		if binary.NativeEndian.Uint32(b) != boltMagic || binary.NativeEndian.Uint64(b[metaSum:]) != sum.Sum64() {
			continue
		}
		if n := binary.NativeEndian.Uint64(b[metaNumber:]); n >= newest {
			newest, pages = n, binary.NativeEndian.Uint64(b[metaPages:])
			pageSize = uint64(binary.NativeEndian.Uint32(b[metaPageSize:]))
		}
	}
	if pages*pageSize > uint64(info.Size()) {
		return &Damaged{Path: path, What: fmt.Sprintf("it has %d bytes and should have %d", info.Size(), pages*pageSize)}
	}
	return nil // if there is no valid page, bbolt says so
}

// Opened makes the damage of the error with which a file was opened. What the system refuses is none, nor that another
// process has the file.
func Opened(path string, err error) error {
	_, refused := errors.AsType[syscall.Errno](err)
	_, known := errors.AsType[*Damaged](err)
	if err == nil || refused || known || errors.Is(err, berrors.ErrTimeout) {
		return err
	}
	return &Damaged{Path: path, What: err.Error()}
}
