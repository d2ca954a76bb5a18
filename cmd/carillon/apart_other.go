//go:build !unix

package main

import "os/exec"

// apart does nothing here: a terminal's Ctrl-C reaches the process, too.
func apart(*exec.Cmd) {}
