package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// action is what the go command did for a package, as in its action graph, or a test program that was played.
type action struct {
	Package         string
	CmdUser, CmdSys time.Duration
}

func (a action) took() time.Duration { return a.CmdUser + a.CmdSys }

func (a action) String() string {
	return fmt.Sprintf("%.1f s (%.1f user, %.1f system)", a.took().Seconds(), a.CmdUser.Seconds(), a.CmdSys.Seconds())
}

// read returns the actions of a file: arrays, as the go command writes them, or one after the other.
func read(file string) ([]action, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []action
	for d := json.NewDecoder(f); ; {
		var graph []action
		if err := d.Decode(&graph); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, graph...)
	}
}

// judge prints the sum of the actions and the dearest packages. More than most CPU seconds are an error.
func judge(to io.Writer, name string, actions []action, most float64) error {
	var all action
	packages := map[string]action{}
	for _, a := range actions {
		all.CmdUser += a.CmdUser
		all.CmdSys += a.CmdSys
		p := packages[a.Package]
		packages[a.Package] = action{a.Package, p.CmdUser + a.CmdUser, p.CmdSys + a.CmdSys}
	}
	fmt.Fprintf(to, "%s: %v, at most %.0f s of CPU\n", name, all, most)
	var dearest []action
	for _, p := range packages {
		dearest = append(dearest, p)
	}
	slices.SortFunc(dearest, func(a, b action) int { return int(b.took() - a.took()) })
	for _, p := range dearest[:min(20, len(dearest))] {
		fmt.Fprintf(to, "  %v: %s\n", p, p.Package)
	}
	if took := all.took().Seconds(); took > most {
		return fmt.Errorf("%s take %.1f CPU seconds, want at most %.0f: see the dearest packages above", name, took, most)
	}
	return nil
}

// play runs a test program, which go test starts in the directory of its package, and returns its exit code.
func play(to string, command []string) (int, error) {
	c := exec.Command(command[0], command[1:]...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGTERM, os.Interrupt) // go test sends one after the timeout
	if err := c.Start(); err != nil {
		return 1, err
	}
	go func() {
		for s := range signals {
			_ = c.Process.Signal(s)
		}
	}()
	_ = c.Wait() // its exit code says it
	dir, err := os.Getwd()
	if err != nil {
		return 1, err
	}
	line, err := json.Marshal([]action{{dir, c.ProcessState.UserTime(), c.ProcessState.SystemTime()}})
	if err != nil {
		return 1, err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 1, err
	}
	if _, err := f.Write(append(line, '\n')); err != nil { // one write, so that lines of several programs do not mix
		return 1, err
	}
	return c.ProcessState.ExitCode(), f.Close()
}
