package sqltest

import "syscall"

// attributes starts a server as its own user, and ends it with the test, whatever ends the test.
func (s *server) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: s.credential(), Pdeathsig: syscall.SIGKILL}
}
