//go:build unix

package sqltest

import "syscall"

func (s *server) credential() *syscall.Credential {
	if s.uid == 0 {
		return nil
	}
	return &syscall.Credential{Uid: uint32(s.uid), Gid: uint32(s.gid)}
}
