//go:build unix && !linux

package processtest

import "os/exec"

// dieWithUs needs a system that can do it; elsewhere, a test that runs into its timeout leaves processes behind.
func dieWithUs(*exec.Cmd) {}
