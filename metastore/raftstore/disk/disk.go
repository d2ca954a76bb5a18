// Package disk turns damage of files into errors.
//
// It is not promised to programs outside this module.
//
// A damaged file that is mapped into memory causes faults and panics in the middle of a read. [Guard] turns both into
// an error that names the file.
package disk

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
)

// Damaged is the error about a file whose content is not what was written.
type Damaged struct {
	Path string
	What string
}

func (d *Damaged) Error() string {
	return fmt.Sprintf("%s is damaged: %s; restore it from a backup", d.Path, d.What)
}

// Guard runs fn, which reads a mapped file, and returns its error, or Damaged if fn panics or reads a missing page.
func Guard(path string, fn func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if r := recover(); r != nil {
			err = &Damaged{Path: path, What: fmt.Sprint(r)}
		}
	}()
	return fn()
}

// SyncFolder makes the names of the files in a folder survive a loss of power.
func SyncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
