//go:build unix

package execjob

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carillon-scheduler/carillon/jobs"
)

// as makes a command run as a user. dir is its working directory, and fresh that nothing is in it yet.
func (r *Runner) as(cmd *exec.Cmd, name, dir string, fresh bool) error {
	cmd.SysProcAttr = new(syscall.SysProcAttr)
	if name == "" {
		return nil
	}
	if !slices.Contains(r.cfg.Users, name) {
		return jobs.Fail(codeNotAllowed, fmt.Errorf("user %q is not allowed on this worker: --exec-users names those that are", name))
	}
	u, err := user.Lookup(name)
	if err != nil {
		return jobs.Fail(codeNotFound, fmt.Errorf("user %q: %w", name, err))
	}
	groups, err := u.GroupIds()
	if err != nil {
		return fmt.Errorf("groups of user %q: %w", name, err)
	}
	ids := make([]uint32, 0, 2+len(groups))
	for _, text := range append([]string{u.Uid, u.Gid}, groups...) {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return fmt.Errorf("user %q has the ID %q, which is no number", name, text)
		}
		ids = append(ids, uint32(n))
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: ids[0], Gid: ids[1], Groups: ids[2:]}
	cmd.Env = append(cmd.Env, "HOME="+u.HomeDir, "USER="+name, "LOGNAME="+name)
	if fresh {
		err = os.Chown(dir, int(ids[0]), int(ids[1]))
	}
	return err
}

// own puts a command into a process group of its own.
func own(cmd *exec.Cmd) {
	cmd.SysProcAttr.Setpgid = true
	endWithWorker(cmd.SysProcAttr)
}

// terminate asks all processes of the group to end.
func terminate(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

// kill ends all processes of the group that are left.
func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// signalOf returns the name of the signal that ended a process, such as SIGKILL.
func signalOf(state *os.ProcessState) string {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return unix.SignalName(status.Signal())
	}
	return "unknown"
}
