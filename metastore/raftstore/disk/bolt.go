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

// CheckBolt checks a bbolt file before it is opened: damage makes bbolt panic in goroutines of its own, where no
// caller can recover, or loop for ever. No file, or an empty one, is fine.
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
		return checkPages(path) // while no process writes
	})
}

func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}

// Where a bbolt file has its length: in either of two meta pages, the valid one with the higher number.
const (
	boltMagic    = 0xED0CDAED
	metaLength   = 64
	metaPageSize = 8
	metaRoot     = 16
	metaFree     = 32
	metaPages    = 40
	metaNumber   = 48
	metaSum      = 56
)

// boltMeta is the content of a meta page.
type boltMeta struct {
	valid                               bool
	root, free, pages, number, pageSize uint64
}

func readMetas(f *os.File) (metas [2]boltMeta, err error) {
	for i := range metas {
		b := make([]byte, metaLength)
		if _, err := f.ReadAt(b, int64(i*os.Getpagesize())+pageHead); err != nil && !errors.Is(err, io.EOF) {
			return metas, err
		}
		sum := fnv.New64a()
		sum.Write(b[:metaSum])
		at := func(offset int) uint64 { return binary.NativeEndian.Uint64(b[offset:]) }
		metas[i] = boltMeta{
			valid: binary.NativeEndian.Uint32(b) == boltMagic && at(metaSum) == sum.Sum64(),
			root:  at(metaRoot), free: at(metaFree), pages: at(metaPages), number: at(metaNumber),
			pageSize: uint64(binary.NativeEndian.Uint32(b[metaPageSize:])),
		}
	}
	return metas, nil
}

// checkLength checks that a bbolt file has all its pages.
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
	metas, err := readMetas(f)
	if err != nil {
		return err
	}
	newest := newestMeta(metas)
	if newest.pages*newest.pageSize > uint64(info.Size()) {
		return &Damaged{Path: path, What: fmt.Sprintf("it has %d bytes and should have %d", info.Size(), newest.pages*newest.pageSize)}
	}
	return nil // if there is no valid page, bbolt returns the error
}

func newestMeta(metas [2]boltMeta) (newest boltMeta) {
	for _, meta := range metas {
		if meta.valid && meta.number >= newest.number {
			newest = meta
		}
	}
	return newest
}

// Opened turns an error of opening a file into Damaged, except the system's refusals and a file locked by another
// process.
func Opened(path string, err error) error {
	_, refused := errors.AsType[syscall.Errno](err)
	_, known := errors.AsType[*Damaged](err)
	if err == nil || refused || known || errors.Is(err, berrors.ErrTimeout) {
		return err
	}
	return &Damaged{Path: path, What: err.Error()}
}
