package execjob

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/carillon-scheduler/carillon/jobs"
)

// account is the user as whom a command runs: on Windows, the worker's own.
type account struct{}

// account refuses users: Windows needs their passwords.
func (r *Runner) account(name string) (account, error) {
	if name != "" {
		return account{}, jobs.Fail(codeNotAllowed, fmt.Errorf("user %q: a worker on Windows runs commands as its own user only", name))
	}
	return account{}, nil
}

func (account) variables() []string  { return nil }
func (account) give(string) error    { return nil }
func (account) become(cmd *exec.Cmd) { cmd.SysProcAttr = new(syscall.SysProcAttr) }
func (account) as() string           { return "" }

func own(*exec.Cmd) {}

// terminate does nothing: Windows has no signal that asks a process to end. It is killed later.
func terminate(*exec.Cmd) {}

func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func signalOf(*os.ProcessState) string { return "unknown" }
