package tests

import (
	"os"
	"syscall"
)

// InMemory has the tests of a package write their files to memory by default, where it has room for them: thousands of
// syncs to a disk are most of the system time of tests. CI writes to the disk, too. Call it in TestMain.
func InMemory() {
	const dir, room, noExec = "/dev/shm", 1 << 30, 8
	var fs syscall.Statfs_t
	if level() > 0 || os.Getenv("TMPDIR") != "" || syscall.Statfs(dir, &fs) != nil {
		return
	}
	if int64(fs.Bavail)*int64(fs.Bsize) < room || fs.Flags&noExec != 0 { // tests also build programs
		return
	}
	if err := os.Setenv("TMPDIR", dir); err != nil {
		panic(err)
	}
}
