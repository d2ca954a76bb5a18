//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// apart keeps a terminal's Ctrl-C from a process: its parent stops it.
func apart(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
