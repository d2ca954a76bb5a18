package processtest

import (
	"os/exec"
	"syscall"
)

// dieWithUs makes the kernel kill a process when ours ends, even if the test times out without cleaning up.
func dieWithUs(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
