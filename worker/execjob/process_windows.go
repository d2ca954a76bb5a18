package execjob

import (
	"fmt"
	"os"
	"os/exec"
)

// as refuses users: Windows needs their passwords.
func (r *Runner) as(_ *exec.Cmd, name, _ string, _ bool) error {
	if name != "" {
		return fmt.Errorf("user %q: a worker on Windows runs commands as its own user only", name)
	}
	return nil
}

func own(*exec.Cmd) {}

// terminate does nothing: Windows has no signal that asks a process to end. It is killed later.
func terminate(*exec.Cmd) {}

func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }

func signalOf(*os.ProcessState) string { return "unknown" }
