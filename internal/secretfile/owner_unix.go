//go:build unix

package secretfile

import (
	"io/fs"
	"syscall"
)

// enforced is false where files have no modes.
const enforced = true

func ofRoot(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid == 0
}
