package execjob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/execspec"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
)

const (
	// pipesOpen is how long output is read after the command has ended, from processes that it left behind.
	pipesOpen = 500 * time.Millisecond
	// snooze is when a command whose exit code asks for it runs again.
	snooze = 30 * time.Second
	// longestValue is how long an argument may be to become a variable. All are on standard input.
	longestValue = 32 << 10
	// longestError is how much of the end of standard error becomes part of the run's error.
	longestError = 2 << 10
	// longestLine is how long a line of output may be; the rest begins another one.
	longestLine = 8 << 10
)

// run runs a command to its end. When ctx ends, its process group gets SIGTERM, and later SIGKILL.
func (r *Runner) run(ctx context.Context, c *execspec.Command, at jobs.AttemptInfo, args []byte, runLog *slog.Logger) error {
	file, rest, err := r.program(c)
	if err != nil {
		return err
	}
	who, err := r.account(c.User)
	if err != nil {
		return err
	}
	dir := c.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "carillon-exec-"); err != nil {
			return fmt.Errorf("create a working directory: %w", err)
		}
		defer func() {
			if err := os.RemoveAll(dir); err != nil {
				runLog.Warn("the working directory of the command was not removed", "err", err)
			}
		}()
		if err := who.give(dir); err != nil {
			return fmt.Errorf("create a working directory: %w", err)
		}
	} else if info, err := os.Stat(dir); err != nil {
		return jobs.Fail(codeNotFound, fmt.Errorf("dir is not usable on this host: %w", err))
	} else if !info.IsDir() {
		return jobs.Fail(codeNotFound, fmt.Errorf("dir %s is not a directory", dir))
	}
	limits := c.Limits
	if r.groups != nil {
		limits.Memory = 0 // it limits the cgroup
	} else if limits.Processes > 0 || limits.CPUs > 0 {
		return jobs.Fail(codeNotAllowed, errors.New("limits.processes and limits.cpus need a worker with cgroups: start it with --exec-cgroup"))
	}
	if limits.Memory+limits.CPU+limits.FileSize+limits.Files > 0 {
		if file, rest, err = limited(limits, file, rest); err != nil {
			return err
		}
	}
	cmd := exec.Command(file, rest...) // argv[0] is the path that was checked, too
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, r.environment(c, who, at, args, dir), pipesOpen
	if c.Stdin != execspec.None {
		cmd.Stdin = bytes.NewReader(args)
	}
	who.become(cmd)
	out, errs := &lines{runLog: runLog}, &lines{runLog: runLog, stream: "stderr"}
	cmd.Stdout, cmd.Stderr = out, errs
	box, err := r.groups.child(fmt.Sprintf("%s-%d-", at.Run, at.Number), c.Limits, runLog)
	if err != nil {
		return err
	}
	defer box.remove()
	err = r.live(ctx, &process{cmd: cmd, as: who.as(), box: box}, c.Grace(), runLog)
	out.end()
	errs.end()
	starved := box.outOfMemory()
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return cause
	}
	return ending(c, err, starved, errs.last())
}

// process is a command that runs.
type process struct {
	cmd *exec.Cmd
	as  string // " as USER", or nothing
	box *cgroup

	mu     sync.Mutex
	reaped bool // another process group may have its number from now on
}

// terminate asks the command to end.
func (p *process) terminate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		terminate(p.cmd)
	}
}

// kill ends all processes of the command.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		kill(p.cmd)
	}
	p.box.kill()
}

// gone marks that the number of the command is not its own any more.
func (p *process) gone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
}

// live starts a command and waits for its end. The thread that starts it stays until then: the operating system ends
// the command with it, when the worker is killed.
func (r *Runner) live(ctx context.Context, p *process, grace time.Duration, runLog *slog.Logger) error {
	own(p.cmd)
	p.box.hold(p.cmd.SysProcAttr)
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		if started <- err; err == nil {
			ended <- reap(p)
		}
	}()
	if err := <-started; err != nil {
		return jobs.Fail(codeNotStarted, fmt.Errorf("start %s in %s%s: %w", p.cmd.Path, p.cmd.Dir, p.as, err))
	}
	defer r.running(p)()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	runLog.Warn("the command is asked to end (SIGTERM)", "cause", context.Cause(ctx).Error())
	p.terminate()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		runLog.Warn("the command did not end: it is killed (SIGKILL)", "grace", grace.String())
		p.kill()
	}
	return <-ended
}

// ending converts the end of a command to the outcome of the attempt. starved is why the kernel ended it, or nil.
func ending(c *execspec.Command, err, starved error, last string) error {
	if err == nil || errors.Is(err, exec.ErrWaitDelay) { // something that it left behind had its output open
		return nil
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return err
	}
	if last != "" {
		last = ": " + last
	}
	number := exit.ExitCode()
	if starved != nil {
		return jobs.Fail("out_of_memory", fmt.Errorf("%w%s", starved, last))
	}
	if number < 0 {
		name := signalOf(exit.ProcessState)
		return jobs.Fail("signal_"+name, fmt.Errorf("ended by signal %s%s", name, last))
	}
	failed := jobs.Fail("exit_"+strconv.Itoa(number), fmt.Errorf("exit code %d%s", number, last))
	switch {
	case slices.Contains(c.Snooze, number):
		return jobs.Snooze(snooze)
	case slices.Contains(c.NoRetry, number):
		return jobs.NoRetry(failed)
	}
	return failed
}

// about returns the variables that describe an attempt.
func about(at jobs.AttemptInfo, args []byte) []string {
	env := []string{"CARILLON_JOB=" + string(at.Key), "CARILLON_RUN=" + at.Run.String(), fmt.Sprintf("CARILLON_ATTEMPT=%d", at.Number),
		"CARILLON_DUE=" + at.Due.UTC().Format(time.RFC3339Nano), fmt.Sprintf("CARILLON_INDEX=%d", at.Index), fmt.Sprintf("CARILLON_TOTAL=%d", max(1, at.Total))}
	var fields map[string]any
	d := json.NewDecoder(bytes.NewReader(args))
	d.UseNumber()
	if d.Decode(&fields) != nil {
		return env
	}
	for name, value := range fields {
		switch value.(type) {
		case string, bool, json.Number:
			if text := fmt.Sprint(value); len(text) <= longestValue && !strings.ContainsRune(text, 0) {
				env = append(env, "CARILLON_ARG_"+variable(name)+"="+text)
			}
		}
	}
	slices.Sort(env)
	return env
}

// variable converts a name of an argument to one of a variable: customerId becomes CUSTOMERID, and order-no ORDER_NO.
func variable(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name)
}

// lines logs output line by line. Its end is kept for the error of the run.
type lines struct {
	runLog *slog.Logger
	stream string // "" = standard output
	rest   []byte
	tail   []byte
}

var _ io.Writer = (*lines)(nil)

func (l *lines) Write(b []byte) (int, error) {
	n := len(b)
	l.tail = append(l.tail, b...)
	l.tail = l.tail[max(0, len(l.tail)-longestError):]
	l.rest = append(l.rest, b...)
	for {
		i := bytes.IndexByte(l.rest[:min(len(l.rest), longestLine+1)], '\n')
		switch {
		case i >= 0:
			l.line(l.rest[:i])
			l.rest = l.rest[i+1:]
		case len(l.rest) > longestLine:
			end := whole(l.rest[:longestLine])
			l.line(l.rest[:end])
			l.rest = l.rest[end:]
		default:
			l.rest = append([]byte(nil), l.rest...) // or it would hold on to all that was written
			return n, nil
		}
	}
}

// whole returns the length of b without a character that continues behind it.
func whole(b []byte) int {
	for i := len(b) - 1; i >= max(0, len(b)-utf8.UTFMax); i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}

func (l *lines) line(b []byte) {
	text := plain.Readable(strings.TrimRight(string(b), "\r"))
	if l.stream != "" {
		l.runLog.Info(text, "stream", l.stream)
		return
	}
	l.runLog.Info(text)
}

// end logs what has no line break.
func (l *lines) end() {
	if len(l.rest) > 0 {
		l.line(l.rest)
		l.rest = nil
	}
}

// last returns the last line that is not blank.
func (l *lines) last() string {
	text := strings.TrimSpace(plain.Readable(string(l.tail)))
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// limited returns a shell that sets limits and then becomes the program: they hold from its first instruction on.
func limited(l execspec.Limits, file string, args []string) (string, []string, error) {
	const shell = "/bin/sh"
	if _, err := os.Stat(shell); err != nil {
		return "", nil, fmt.Errorf("limits need %s on the worker's host: %w", shell, err)
	}
	var script strings.Builder
	for _, limit := range []struct {
		flag string
		n    int64
		unit int64
	}{{"v", l.Memory, 1 << 10}, {"t", l.CPU, 1}, {"f", l.FileSize, 512}, {"n", l.Files, 1}} {
		if limit.n > 0 {
			fmt.Fprintf(&script, "ulimit -%s %d && ", limit.flag, max(1, limit.n/limit.unit))
		}
	}
	script.WriteString(`exec "$0" "$@"`)
	return shell, append([]string{"-c", script.String(), file}, args...), nil
}
