// Package secretfile refuses files with secrets that others can read.
package secretfile

import (
	"io/fs"
	"os"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// Check refuses a file that users besides its owner can read: its secret is compromised. Files of root may be readable
// by their group, too: so Kubernetes mounts a Secret for a process that is not root.
func Check(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); enforced && !private(mode, ofRoot(info)) {
		return kernel.Invalid("%s is readable by other users (%v): chmod 600 it, and treat its content as compromised", path, mode)
	}
	return nil
}

// private reports whether a mode keeps a secret.
func private(mode fs.FileMode, ofRoot bool) bool {
	if ofRoot {
		mode &^= 0o040
	}
	return mode&0o077 == 0
}
