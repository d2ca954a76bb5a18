//go:build unix

package main

import "syscall"

// umask sets the umask and returns what restores it.
func umask(mask int) func() {
	former := syscall.Umask(mask)
	return func() { syscall.Umask(former) }
}
