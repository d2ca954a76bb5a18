package execjob

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/execspec"
	"github.com/carillon-scheduler/carillon/jobs"
)

// App is the default app of workers that run commands.
const App = "exec"

// Config says what a worker lets jobs run.
type Config struct {
	// Allow lists the programs that may run: absolute paths, in which * matches within one folder, such as
	// /opt/jobs/*. Symbolic links to folders are followed first: those of a program, and those before the first * of a
	// path here. One to a program is a program itself, by its own name: many names of one file are different programs.
	// A single * allows every program. Required, unless Shell is set.
	Allow []string
	// Shell runs scripts: an absolute path, such as /bin/sh. "" = jobs with a script are refused.
	Shell string
	// Users are the users as whom jobs may run; the worker must run as root to become one of them. With users, a job
	// must name one: root runs nothing by an omission.
	Users []string
	// Env names variables that jobs may set. Variables such as BASH_ENV make a program run others, so without a shell and
	// without * in Allow, which permit anything, jobs may set no others.
	Env []string
	// Pass names variables of the worker's environment that commands get. PATH, HOME, LANG and TZ are always passed.
	Pass []string
	// Cgroup is a delegated cgroup (v2), in which each attempt gets one of its own; "" = none. Workers may share it.
	Cgroup string
}

// Source reads the command of a job, as it was saved, and the ID of the job that has the key.
type Source func(ctx context.Context, tenant jobs.Tenant, key jobs.Key) (raw []byte, job jobs.ID, err error)

// Runner runs commands. It is safe for concurrent use.
type Runner struct {
	cfg    Config
	source Source

	groups *cgroups // nil without Config.Cgroup

	mu     sync.Mutex
	known  map[identity]known
	now    map[*process]struct{} // those that run
	closed bool
}

// identity is what a job is remembered by. Its key alone may be another tenant's, and tomorrow that of another job.
type identity struct {
	tenant jobs.Tenant
	key    jobs.Key
	job    jobs.ID
}

func identityOf(at jobs.AttemptInfo) identity { return identity{at.Tenant, at.Key, at.Job} }

// known is the command of a job, as it was last read.
type known struct {
	raw     []byte
	command *execspec.Command
	err     error
}

// maxKnown bounds how many are remembered.
const maxKnown = 10_000

// New returns a runner. It refuses a configuration that would run nothing, or more than it seems to. With a cgroup, it
// ends what workers left in it that died. Call Close after the last run.
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
	r := &Runner{cfg: c, source: source, known: map[identity]known{}, now: map[*process]struct{}{}}
	if c.Cgroup != "" {
		var err error
		if r.groups, err = openCgroups(c.Cgroup); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Close kills the commands that still run, or start now: those of a worker that has stopped waiting for them.
func (r *Runner) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for p := range r.now {
		p.kill()
	}
	return r.groups.close()
}

// running registers a command that runs, and returns a function that removes it.
func (r *Runner) running(p *process) func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now[p] = struct{}{}; r.closed { // Close came between its start and this
		p.kill()
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.now, p)
	}
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

// unread is how long a run waits whose command cannot be read now. It uses up no retry.
const unread = 5 * time.Second

// command returns the command of a job as it is now. What is remembered is no substitute: a store that was restored gives
// revisions again. It is for runs that outlive their job, which have the last one that was read.
func (r *Runner) command(ctx context.Context, at jobs.AttemptInfo) (*execspec.Command, error) {
	raw, job, err := r.source(ctx, at.Tenant, at.Key)
	r.mu.Lock()
	defer r.mu.Unlock()
	k, ok := r.known[identityOf(at)]
	switch code := jobs.CodeOf(err); {
	case code == jobs.Unavailable:
		jobs.Log(ctx).Warn("the command of the job cannot be read now: the run waits", "err", err)
		return nil, jobs.Snooze(unread)
	case err == nil && job == at.Job:
		if ok && bytes.Equal(k.raw, raw) {
			return k.command, k.err
		}
	case ok && (err == nil || code == jobs.NotFound):
		return k.command, k.err
	case err == nil:
		return nil, jobs.NoRetry(fmt.Errorf("job %s of this run was deleted, and another one has its key", at.Key))
	default:
		return nil, fmt.Errorf("read the job's definition: %w", err)
	}
	k = known{raw: raw}
	if k.command, k.err = execspec.Parse(raw); k.err != nil {
		k.err = jobs.NoRetry(k.err)
	}
	if len(r.known) >= maxKnown {
		clear(r.known)
	}
	r.known[identityOf(at)] = k
	return k.command, k.err
}

// Codes of failures that begin before the command does.
const (
	codeNotAllowed = "not_allowed"
	codeNotFound   = "not_found"
	codeNotStarted = "not_started"
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
	switch {
	case !strings.ContainsRune(file, filepath.Separator):
		if file, err = exec.LookPath(file); err != nil {
			return "", nil, jobs.Fail(codeNotFound, fmt.Errorf("program %q is not in the PATH of this worker", c.Argv[0]))
		}
	case !filepath.IsAbs(file) && c.Dir == "":
		return "", nil, jobs.Fail(codeNotFound, fmt.Errorf("program %q is relative, and the job has no dir: want an absolute path", file))
	case !filepath.IsAbs(file):
		file = filepath.Join(c.Dir, file)
	}
	if file, err = located(file); err != nil {
		return "", nil, jobs.Fail(codeNotFound, fmt.Errorf("program %q is not on this host: %w", c.Argv[0], err))
	}
	if !slices.ContainsFunc(r.cfg.Allow, func(pattern string) bool { return pattern == "*" || matches(pattern, file) }) {
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

// located returns the path of a program that is checked and started: no link in its folders leads elsewhere between the
// two. The last element stays: a program with many names does by its name what its caller wants, so that its file, under
// the name of one of them, is another program.
func located(file string) (string, error) {
	folder, name := filepath.Split(file) // not Dir, which takes a link and the .. after it away together
	if name == "" || name == "." || name == ".." {
		return "", fmt.Errorf("%s is a folder", file)
	}
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return "", err
	}
	file = filepath.Join(folder, name)
	_, err = os.Stat(file)
	return file, err
}

// matches reports whether a pattern of programs permits a file. The folders before its first * may be links: they are
// the operator's. They are followed each time, as a deployment may move them.
func matches(pattern, file string) bool {
	if ok, _ := filepath.Match(pattern, file); ok {
		return true
	}
	fixed, rest := filepath.Dir(pattern), filepath.Base(pattern)
	for strings.ContainsAny(fixed, `*?[`) {
		fixed, rest = filepath.Dir(fixed), filepath.Join(filepath.Base(fixed), rest)
	}
	fixed, err := filepath.EvalSymlinks(fixed)
	if err != nil || strings.ContainsAny(fixed, `*?[\`) {
		return false
	}
	ok, _ := filepath.Match(filepath.Join(fixed, rest), file)
	return ok
}

// environment returns the variables of a command. Later ones replace earlier ones of the same name.
func (r *Runner) environment(c *execspec.Command, who account, at jobs.AttemptInfo, args []byte, dir string) []string {
	var env []string
	for _, name := range append([]string{"PATH", "HOME", "LANG", "TZ"}, r.cfg.Pass...) {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	env = append(env, who.variables()...)
	if c.Dir == "" {
		env = append(env, "TMPDIR="+dir)
	}
	for name, value := range c.Env {
		env = append(env, name+"="+value)
	}
	return append(env, about(at, args)...)
}
