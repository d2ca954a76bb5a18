package execjob

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/carillon-scheduler/carillon/execspec"
	"github.com/carillon-scheduler/carillon/jobs"
)

// App is the default app of workers that run commands.
const App = "exec"

// Config says what a worker lets jobs run.
type Config struct {
	// Allow lists the programs that may run: absolute paths, in which * matches within one folder, such as
	// /opt/jobs/*. Symbolic links are followed first. A single * allows every program. Required.
	Allow []string
	// Shell runs scripts: an absolute path, such as /bin/sh. "" = jobs with a script are refused.
	Shell string
	// Users are the users as whom jobs may run; the worker must run as root to become one of them.
	Users []string
	// Env names variables that jobs may set. Variables such as BASH_ENV make a program run others, so without a shell and
	// without * in Allow, which permit anything, jobs may set no others.
	Env []string
	// Pass names variables of the worker's environment that commands get. PATH, HOME, LANG and TZ are always passed.
	Pass []string
}

// Source reads the command of a job, as it was saved, and the job's revision.
type Source func(ctx context.Context, tenant jobs.Tenant, key jobs.Key) (raw []byte, revision uint64, err error)

// Runner runs commands. It is safe for concurrent use.
type Runner struct {
	cfg    Config
	source Source

	mu    sync.Mutex
	known map[jobs.Key]known
}

// known is the command of a job's revision.
type known struct {
	revision uint64
	command  *execspec.Command
	err      error
}

// New returns a runner. It refuses a configuration that would run nothing, or more than it seems to.
func New(source Source, c Config) (*Runner, error) {
	if len(c.Allow) == 0 && c.Shell == "" {
		return nil, fmt.Errorf("no program is allowed: name them with --exec-allow, such as /opt/jobs/*, or * for all; or a shell for scripts with --exec-shell")
	}
	for _, pattern := range c.Allow {
		if _, err := filepath.Match(pattern, "/"); err != nil || pattern != "*" && !filepath.IsAbs(pattern) {
			return nil, fmt.Errorf("invalid pattern of programs %q: want an absolute path such as /opt/jobs/*, or * for all", pattern)
		}
	}
	if c.Shell != "" {
		info, err := os.Stat(c.Shell)
		if err != nil || !filepath.IsAbs(c.Shell) || info.IsDir() {
			return nil, fmt.Errorf("invalid shell %q: want the absolute path of a program such as /bin/sh", c.Shell)
		}
	}
	if len(c.Users) > 0 && os.Geteuid() != 0 {
		return nil, fmt.Errorf("jobs may run as %s only if the worker runs as root", strings.Join(c.Users, ", "))
	}
	return &Runner{cfg: c, source: source, known: map[jobs.Key]known{}}, nil
}

// Run runs an attempt of any job with a command: use it as worker.Config.Others, with "exec" as Only.
func (r *Runner) Run(ctx context.Context, args []byte) error {
	at := jobs.Attempt(ctx)
	c, err := r.command(ctx, at)
	if err != nil {
		return err
	}
	return r.run(ctx, c, at, args, jobs.Log(ctx))
}

// command returns the command of a job. It is read again for a run of a newer revision.
func (r *Runner) command(ctx context.Context, at jobs.AttemptInfo) (*execspec.Command, error) {
	r.mu.Lock()
	k, ok := r.known[at.Key]
	r.mu.Unlock()
	if ok && k.revision >= at.Revision {
		return k.command, k.err
	}
	raw, revision, err := r.source(ctx, at.Tenant, at.Key)
	if err != nil {
		return nil, fmt.Errorf("read the job's definition: %w", err)
	}
	k = known{revision: revision}
	if k.command, k.err = execspec.Parse(raw); k.err != nil {
		k.err = jobs.NoRetry(k.err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[at.Key] = k
	return k.command, k.err
}

// Codes of failures that begin before the command does.
const (
	codeNotAllowed = "not_allowed"
	codeNotFound   = "not_found"
)

// program returns the path of the program of a command, with its arguments, if it may run here.
func (r *Runner) program(c *execspec.Command) (file string, args []string, err error) {
	if c.Script != "" {
		if r.cfg.Shell == "" {
			return "", nil, jobs.Fail(codeNotAllowed, fmt.Errorf("this worker runs no scripts: start it with --exec-shell, or give argv"))
		}
		return r.cfg.Shell, []string{"-c", c.Script}, nil
	}
	file = c.Argv[0]
	if !strings.ContainsRune(file, filepath.Separator) {
		if file, err = exec.LookPath(file); err != nil {
			return "", nil, jobs.Fail(codeNotFound, fmt.Errorf("program %q is not in the PATH of this worker", c.Argv[0]))
		}
	}
	if file, err = filepath.Abs(file); err == nil {
		file, err = filepath.EvalSymlinks(file)
	}
	if err != nil {
		return "", nil, jobs.Fail(codeNotFound, fmt.Errorf("program %q is not on this host: %w", c.Argv[0], err))
	}
	if !slices.ContainsFunc(r.cfg.Allow, func(pattern string) bool {
		ok, _ := filepath.Match(pattern, file)
		return ok || pattern == "*"
	}) {
		return "", nil, jobs.Fail(codeNotAllowed, fmt.Errorf("program %s is not allowed on this worker: --exec-allow names those that are", file))
	}
	if r.cfg.Shell == "" && !slices.Contains(r.cfg.Allow, "*") {
		for name := range c.Env {
			if !slices.Contains(r.cfg.Env, name) {
				return "", nil, jobs.Fail(codeNotAllowed, fmt.Errorf("variable %s is not allowed on this worker: --exec-env names those that jobs may set", name))
			}
		}
	}
	return file, c.Argv[1:], nil
}

// environment returns the variables of a command.
func (r *Runner) environment(c *execspec.Command, at jobs.AttemptInfo, args []byte, dir string) []string {
	var env []string
	for _, name := range append([]string{"PATH", "HOME", "LANG", "TZ"}, r.cfg.Pass...) {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	env = append(env, "TMPDIR="+dir)
	for name, value := range c.Env {
		env = append(env, name+"="+value)
	}
	return append(env, about(at, args)...)
}
