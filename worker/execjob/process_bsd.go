//go:build unix && !linux

package execjob

import "syscall"

// endWithWorker does nothing: only Linux ends a command with its worker.
func endWithWorker(*syscall.SysProcAttr) {}
