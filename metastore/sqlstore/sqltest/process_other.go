//go:build !unix

package sqltest

import "syscall"

func (s *server) attributes() *syscall.SysProcAttr { return nil }
