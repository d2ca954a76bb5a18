//go:build unix

package disk

import (
	"os"
	"syscall"
)

const errLocked = syscall.EWOULDBLOCK

func tryLock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
