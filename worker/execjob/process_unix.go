//go:build unix

package execjob

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carillon-scheduler/carillon/jobs"
)

// account is the user as whom a command runs. The zero account is the worker's own user.
type account struct {
	name, home string
	credential *syscall.Credential // nil = the worker's
}

// account returns the account of a user, if commands may run as this user; "" = the worker's own.
func (r *Runner) account(name string) (account, error) {
	own, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	if err != nil { // containers have users without a name
		own = new(user.User)
	}
	switch {
	case name == "" && len(r.cfg.Users) > 0 && !slices.Contains(r.cfg.Users, own.Username):
		return account{}, jobs.Fail(codeNotAllowed, fmt.Errorf("a job without user is not allowed on this worker: set one of --exec-users: %s", strings.Join(r.cfg.Users, ", ")))
	case name == "":
		return account{}, nil
	case name == own.Username && len(r.cfg.Users) == 0:
		return account{name: name, home: own.HomeDir}, nil
	case !slices.Contains(r.cfg.Users, name):
		return account{}, jobs.Fail(codeNotAllowed, fmt.Errorf("user %q is not allowed on this worker: --exec-users names those that are", name))
	}
	u, err := user.Lookup(name)
	if err != nil {
		return account{}, jobs.Fail(codeNotFound, fmt.Errorf("user %q: %w", name, err))
	}
	groups, err := u.GroupIds()
	if err != nil {
		return account{}, fmt.Errorf("groups of user %q: %w", name, err)
	}
	ids := make([]uint32, 0, 2+len(groups))
	for _, text := range append([]string{u.Uid, u.Gid}, groups...) {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("user %q has the ID %q, which is no number", name, text)
		}
		ids = append(ids, uint32(n))
	}
	return account{name, u.HomeDir, &syscall.Credential{Uid: ids[0], Gid: ids[1], Groups: ids[2:]}}, nil
}

// variables returns those that describe the user.
func (a account) variables() []string {
	if a.name == "" {
		return nil
	}
	return []string{"HOME=" + a.home, "USER=" + a.name, "LOGNAME=" + a.name}
}

// give makes the user the owner of a new directory.
func (a account) give(dir string) error {
	if a.credential == nil {
		return nil
	}
	return os.Chown(dir, int(a.credential.Uid), int(a.credential.Gid))
}

// become makes a command run as the user.
func (a account) become(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential}
}

// as describes the user in an error.
func (a account) as() string {
	if a.name == "" {
		return ""
	}
	return " as " + a.name
}

// own puts a command into a session of its own, and so into a process group. A worker that runs in a terminal does not
// lend it: a program that asks for a password there would wait until its timeout.
func own(cmd *exec.Cmd) {
	cmd.SysProcAttr.Setsid = true
	endWithWorker(cmd.SysProcAttr)
}

// terminate asks all processes of the group to end.
func terminate(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

// kill ends all processes of the group that are left.
func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// signalOf returns the name of the signal that ended a process, such as SIGKILL.
func signalOf(state *os.ProcessState) string {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return cmp.Or(unix.SignalName(status.Signal()), strconv.Itoa(int(status.Signal()))) // real-time signals have no name
	}
	return "unknown"
}
