package execjob

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithWorker makes the operating system kill the command if the worker dies.
func endWithWorker(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// reap waits for the end of a command and kills what it left behind: before Wait, after which another process group
// may have its number.
func reap(p *process) error {
	for unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.kill()
	p.gone()
	return p.cmd.Wait()
}
