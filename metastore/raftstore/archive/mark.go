package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
)

// A crash may leave the end of the open file torn, and the log, which is replayed, has those runs. What a caller of
// Sync relies on must not be mistaken for that: the log may be cut then. So Sync notes the number up to which the
// files go, in a file of its own: if they end before it, they are damaged.

const (
	lockFile = "lock"
	markFile = "mark"
	// lockTimeout is how long Open waits for another process to release the archive.
	lockTimeout = 500 * time.Millisecond
)

// readMark locks the archive and reads its mark.
func (a *Archive) readMark() (err error) {
	if a.lock, err = os.OpenFile(filepath.Join(a.dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := disk.Lock(a.lock, lockTimeout); err != nil {
		return err
	}
	b, err := os.ReadFile(a.markPath())
	if errors.Is(err, os.ErrNotExist) {
		others, err := os.ReadDir(a.dir)
		if len(others) > 1 && !(len(others) == 2 && others[1].Name() == unfinished) {
			return &disk.Damaged{Path: a.markPath(), What: "it is missing"}
		}
		return errors.Join(err, a.writeMark(0))
	}
	if err != nil {
		return err
	}
	b, ok := unsummed(b)
	if !ok || len(b) != len(blocks.Title)+8 || string(b[:len(blocks.Title)]) != blocks.Title {
		return &disk.Damaged{Path: a.markPath(), What: "its checksum is wrong"}
	}
	a.marked = binary.BigEndian.Uint64(b[len(blocks.Title):])
	return nil
}

func (a *Archive) markPath() string { return filepath.Join(a.dir, markFile) }

func (a *Archive) writeMark(last uint64) error {
	return writeFile(a.markPath(), summed(binary.BigEndian.AppendUint64([]byte(blocks.Title), last)))
}

// mark notes how far the files go. filing must be held.
func (a *Archive) mark() error {
	if a.filed == a.marked {
		return nil
	}
	if err := a.writeMark(a.filed); err != nil {
		err = fmt.Errorf("write archive %s: %w", a.dir, err)
		a.fail(err)
		return err
	}
	a.marked = a.filed
	return nil
}
