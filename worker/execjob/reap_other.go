//go:build !linux

package execjob

import "os/exec"

// reap waits for the end of a command and kills what it left behind.
func reap(cmd *exec.Cmd) error {
	err := cmd.Wait()
	kill(cmd)
	return err
}
