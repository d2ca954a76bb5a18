//go:build unix && !linux

package sqltest

import "syscall"

// attributes starts a server as its own user. Only Linux ends it with a test that is killed.
func (s *server) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: s.credential()}
}
