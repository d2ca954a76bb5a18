//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// apart keeps a terminal's Ctrl-C from a process: whoever started it tells it to stop.
func apart(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
