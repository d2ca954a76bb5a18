package processtest

import (
	"os/exec"
	"syscall"
)

// dieWithUs has the system end a process when ours is gone, however that came about: a test that runs into its
// timeout ends without cleaning up.
func dieWithUs(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
