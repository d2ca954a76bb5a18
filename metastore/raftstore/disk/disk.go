// Package disk keeps damage to files from becoming damage to processes.
//
// Files that are mapped into memory answer damage with faults and panics in the middle of a read. [Guard] turns
// both into an error that names the file.
package disk

import (
	"fmt"
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

// Guard runs fn, which reads a mapped file, and answers with its error, or with a Damaged when fn panics or meets
// a page that is not there.
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
