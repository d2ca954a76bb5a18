// Package execspec reads the definition of a job that is a command: the setting exec.
//
// It is not promised to programs outside this module.
//
// Where to start: [Parse], which checks a definition when a job is saved. Package worker/execjob runs it.
//
// Sharp edges: nothing here looks at files. Whether a program may run is decided by the worker alone.
package execspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
	"unicode/utf8"
)

// Command is what a job runs, as users write it. Either Argv or Script is given.
type Command struct {
	Argv   []string          `json:"argv,omitempty"`   // a program, which is looked up in the worker's PATH, and its arguments; no shell
	Script string            `json:"script,omitempty"` // for the worker's shell; $1 and further are not set
	Env    map[string]string `json:"env,omitempty"`    // further environment variables
	Dir    string            `json:"dir,omitempty"`    // absolute working directory; "" = a new one, which is removed
	User   string            `json:"user,omitempty"`   // a user of the worker's host; "" = the worker's own
	Stdin  string            `json:"stdin,omitempty"`  // Args or None; "" = Args
	// KillAfter is how long the command may go on after SIGTERM, before SIGKILL; "" = 10s. A duration such as 30s.
	KillAfter string `json:"killAfter,omitempty"`
	// Exit codes with another meaning than failure: the run's attempt is not repeated, or it is repeated later without
	// using up a retry.
	NoRetry []int  `json:"noRetry,omitempty"`
	Snooze  []int  `json:"snooze,omitempty"`
	Limits  Limits `json:"limits,omitzero"`
}

// The values of Command.Stdin.
const (
	Args = "args" // the run's arguments, as JSON
	None = "none" // nothing
)

// Limits are the resource limits of a command; 0 = those of the worker. Those of the first group are for each process,
// except that a worker with cgroups limits the memory of the whole command. The second group needs such a worker.
type Limits struct {
	Memory   int64 `json:"memory,omitempty"`   // bytes: of address space, or in a cgroup of memory
	CPU      int64 `json:"cpu,omitempty"`      // seconds of processor time
	FileSize int64 `json:"fileSize,omitempty"` // bytes of a file that it writes
	Files    int64 `json:"files,omitempty"`    // open files

	Processes int64   `json:"processes,omitempty"` // processes and threads at a time
	CPUs      float64 `json:"cpus,omitempty"`      // processors that it uses at a time, such as 0.5
}

const (
	maxArgv     = 1_000
	maxEnv      = 200
	defaultKill = 10 * time.Second
	maxKill     = 10 * time.Minute
	leastCPUs   = 0.01 // the kernel's shortest quota in its usual period
	maxCPUs     = 10_000
)

// Fault is the error about a part of a definition, such as env.PATH.
type Fault struct {
	Place string
	Err   error
}

func (f *Fault) Error() string {
	if f.Place == "" {
		return f.Err.Error()
	}
	return f.Place + ": " + f.Err.Error()
}

// Unwrap returns the error without its place.
func (f *Fault) Unwrap() error { return f.Err }

func wrong(place, format string, args ...any) error {
	return &Fault{Place: place, Err: fmt.Errorf(format, args...)}
}

// Check returns what is wrong with a definition, and where ("" = all of it).
func Check(raw []byte) (place string, err error) {
	_, err = Parse(raw)
	if fault, ok := errors.AsType[*Fault](err); ok {
		return fault.Place, fault.Err
	}
	return "", err
}

// Parse reads and checks a definition.
func Parse(raw []byte) (*Command, error) {
	c := new(Command)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(c); err != nil {
		return nil, fmt.Errorf("want an object such as {\"argv\":[\"backup\",\"--all\"]}: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("want one JSON object")
	}
	return c, c.check()
}

func (c *Command) check() error {
	switch {
	case len(c.Argv) == 0 && c.Script == "":
		return wrong("argv", "is missing: want a program and its arguments, or script")
	case len(c.Argv) > 0 && c.Script != "":
		return wrong("script", "is given together with argv: want one of them")
	case len(c.Argv) > maxArgv:
		return wrong("argv", "has %d parts, at most %d are allowed", len(c.Argv), maxArgv)
	case len(c.Argv) > 0 && c.Argv[0] == "":
		return wrong("argv[0]", "is empty: want a program")
	}
	for i, part := range c.Argv {
		if err := text(part); err != nil {
			return wrong(fmt.Sprintf("argv[%d]", i), "%w", err)
		}
	}
	if err := text(c.Script); err != nil {
		return wrong("script", "%w", err)
	}
	if len(c.Env) > maxEnv {
		return wrong("env", "has %d variables, at most %d are allowed", len(c.Env), maxEnv)
	}
	for name, value := range c.Env {
		switch {
		case name == "" || strings.ContainsAny(name, "= ") || text(name) != nil:
			return wrong("env", "invalid name %.60q", name)
		case strings.HasPrefix(name, "CARILLON_") || strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_"):
			return wrong("env."+name, "is reserved: choose another name")
		case text(value) != nil:
			return wrong("env."+name, "%w", text(value))
		}
	}
	switch {
	case c.Dir != "" && (!path.IsAbs(c.Dir) || text(c.Dir) != nil):
		return wrong("dir", "invalid directory %.60q: want an absolute path", c.Dir)
	case len(c.User) > 100 || text(c.User) != nil:
		return wrong("user", "invalid user %.60q", c.User)
	case c.Stdin != "" && c.Stdin != Args && c.Stdin != None:
		return wrong("stdin", "invalid value %.20q: want %q or %q", c.Stdin, Args, None)
	}
	if c.KillAfter != "" {
		if d, err := time.ParseDuration(c.KillAfter); err != nil || d <= 0 || d > maxKill {
			return wrong("killAfter", "invalid duration %.20q: want one such as 30s, at most %v", c.KillAfter, maxKill)
		}
	}
	for place, codes := range map[string][]int{"noRetry": c.NoRetry, "snooze": c.Snooze} {
		for _, code := range codes {
			if code < 1 || code > 255 {
				return wrong(place, "invalid exit code %d: want 1 to 255", code)
			}
		}
	}
	for place, n := range map[string]int64{"memory": c.Limits.Memory, "cpu": c.Limits.CPU, "fileSize": c.Limits.FileSize,
		"files": c.Limits.Files, "processes": c.Limits.Processes} {
		if n < 0 {
			return wrong("limits."+place, "is negative: want a positive number")
		}
	}
	if n := c.Limits.CPUs; n != 0 && (n < leastCPUs || n > maxCPUs) {
		return wrong("limits.cpus", "invalid number %v: want %v to %d processors", n, leastCPUs, maxCPUs)
	}
	return nil
}

// text returns why a text cannot be passed to a process.
func text(s string) error {
	switch {
	case strings.ContainsRune(s, 0):
		return errors.New("contains a NUL")
	case !utf8.ValidString(s):
		return errors.New("is not UTF-8")
	}
	return nil
}

// Grace is how long the command may go on after SIGTERM.
func (c *Command) Grace() time.Duration {
	if d, err := time.ParseDuration(c.KillAfter); err == nil {
		return d
	}
	return defaultKill
}
