package execjob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-scheduler/carillon/execspec"
	"github.com/carillon-scheduler/carillon/internal/tests"
)

// TestCgroup runs its parts in a delegated cgroup: CARILLON_TEST_CGROUP, or one of a kernel of its own, User-mode
// Linux, so that it needs neither root nor a machine with cgroup v2.
func TestCgroup(t *testing.T) {
	tests.WithoutRace(t)
	tests.Long(t)
	delegated := os.Getenv("CARILLON_TEST_CGROUP")
	if delegated == "" {
		inKernel(t)
		return
	}
	for _, part := range []struct {
		name string
		run  func(*testing.T, Config)
	}{
		{"limits", cgroupLimits}, {"memory", cgroupMemory}, {"no limit", cgroupWithout}, {"what leaves its group", cgroupLeavers}, {"nested", cgroupNested},
		{"a user", cgroupUser}, {"killed worker", cgroupKilledWorker}, {"ended worker", cgroupEndedWorker}, {"refused", cgroupRefused},
	} {
		t.Run(part.name, func(t *testing.T) {
			c := everything
			c.Cgroup = delegated
			part.run(t, c)
			if left := workersIn(t, delegated); len(left) > 0 {
				t.Errorf("folders are left: %q", left)
			}
		})
	}
}

// inKernel runs TestCgroup as the only program of a kernel in a process.
func inKernel(t *testing.T) {
	kernel, err := exec.LookPath("linux.uml")
	if err != nil {
		tests.Missing(t, "cgroup v2: install user-mode-linux, or set CARILLON_TEST_CGROUP to a delegated cgroup")
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "init")
	text := fmt.Sprintf(`#!/bin/sh
export PATH='%s' CARILLON_TESTS=all TMPDIR=/mnt/tmp CARILLON_TEST_CGROUP=/mnt/cgroup/carillon
mount -t proc proc /proc
mount -t tmpfs tmpfs /mnt
mkdir -m 1777 /mnt/tmp
mkdir /mnt/cgroup
mount -t cgroup2 cgroup2 /mnt/cgroup
mkdir "$CARILLON_TEST_CGROUP"
echo '+cpu +memory +pids' >/mnt/cgroup/cgroup.subtree_control
cd '%s'
'%s' -test.v -test.timeout 4m -test.run '^TestCgroup$'
echo "the tests ended with $?"
echo o >/proc/sysrq-trigger
`, os.Getenv("PATH"), dir, os.Args[0])
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, kernel, "mem=512M", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "con=null", "con0=null,fd:1", "panic=-1", "init="+script)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close() // read by its name
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // now and then a process of the kernel stays that would hold a pipe
	out, readErr := os.ReadFile(output.Name())
	if readErr != nil {
		t.Fatal(readErr)
	}
	if !strings.Contains(string(out), "--- PASS: TestCgroup ") || !strings.Contains(string(out), "the tests ended with 0") {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// workersIn returns the folders of workers.
func workersIn(t *testing.T, delegated string) []string {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(delegated, workerPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return folders
}

// runIn runs a command by a worker of its own, with root's file system in view: cg is the path of its cgroup.
func runIn(ctx context.Context, t *testing.T, c Config, command string) (string, error) {
	t.Helper()
	command = strings.ReplaceAll(command, "CG", "cg="+filepath.Dir(c.Cgroup)+"$(cut -d: -f3 /proc/self/cgroup)")
	return run(ctx, t, c, command, `{}`)
}

// pidIn waits for a line "pid N".
func pidIn(s *sink) (pid int) {
	for pid == 0 {
		fmt.Sscanf(<-s.got, "level=INFO msg=\"pid %d", &pid)
	}
	return pid
}

// The limits hold before the first instruction, and memory is that of the whole command.
func cgroupLimits(t *testing.T, c Config) {
	log, err := runIn(t.Context(), t, c, `{"script":"CG; cd $cg && pwd && cat memory.max memory.swap.max memory.oom.group pids.max cpu.max; ulimit -v; ulimit -n",
		"limits":{"memory":104857600,"processes":20,"cpus":0.5,"files":64}}`)
	for _, want := range []string{"/carillon/worker-", "-2-", "msg=104857600\n", "msg=0\n", "msg=1\n", "msg=20\n", `msg="50000 100000"`, "msg=unlimited\n", "msg=64\n"} {
		if err != nil || !strings.Contains(log, want) {
			t.Errorf("%v: no %q in %s", err, want, log)
		}
	}
	log, err = runIn(t.Context(), t, c, `{"script":"for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & done; exit 3","limits":{"processes":5}}`)
	if codeOf(err) == "" || !strings.Contains(log, "limits.processes was reached\" processes=5") {
		t.Errorf("%v, %s", err, log)
	}
}

// A command that needs more than its memory ends as a whole, with a code of its own. The shell itself needs the memory:
// User-mode Linux fails now and then if it is out of memory while it copies for a process (read of /dev/zero).
func cgroupMemory(t *testing.T, c Config) {
	const grow = `x=0123456789; while :; do x=$x$x; done`
	for name, script := range map[string]string{
		"the command itself": grow,
		"a child":            `(` + grow + `) & echo started; wait; echo went on`,
	} {
		log, err := runIn(t.Context(), t, c, `{"script":`+strconv.Quote(script)+`,"limits":{"memory":10485760}}`)
		if codeOf(err) != "out_of_memory" || !strings.Contains(err.Error(), "limits.memory (10485760 bytes)") || strings.Contains(log, "went on") {
			t.Errorf("%s: %v, code %q: %s", name, err, codeOf(err), log)
		}
	}
	if _, err := runIn(t.Context(), t, c, `{"script":"head -c 2000000 /dev/zero | tail -c 2000000 >/dev/null; exit 3","limits":{"memory":10485760}}`); codeOf(err) != "exit_3" {
		t.Errorf("enough memory: %v", err)
	}
}

func cgroupWithout(t *testing.T, c Config) {
	log, err := runIn(t.Context(), t, c, `{"script":"CG; cd $cg && cat memory.max pids.max cpu.max"}`)
	if err != nil || strings.Count(log, "max") != 3 {
		t.Errorf("%v, %s", err, log)
	}
}

// Processes that left the session of the command end with it, too: at its end, and when it is cancelled.
func cgroupLeavers(t *testing.T, c Config) {
	for name, end := range map[string]string{"its end": "", "a cancellation": "; exec sleep 600"} {
		r, err := New(nil, c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		s := &sink{got: make(chan string, 100)}
		done := make(chan error, 1)
		go func() {
			done <- r.run(ctx, &execspec.Command{Script: `setsid sh -c 'trap "" TERM; echo "pid $$"; touch ready; sleep 600; :' & until [ -e ready ]; do sleep 0.1; done` + end, KillAfter: "100ms"}, attempt, []byte(`{}`), s.logger())
		}()
		pid := pidIn(s)
		cause := errors.New("cancelled")
		if end != "" {
			cancel(cause)
		}
		if err := <-done; end != "" && !errors.Is(err, cause) {
			t.Errorf("%s: %v", name, err)
		}
		if alive(pid) {
			t.Errorf("%s: process %d is still there", name, pid)
		}
		if left, _ := filepath.Glob(filepath.Join(r.groups.folder, "*-2-*")); len(left) > 0 {
			t.Errorf("%s: %q is left", name, left)
		}
		cancel(nil)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A command of root may make cgroups in its own, which are removed with it.
func cgroupNested(t *testing.T, c Config) {
	if os.Geteuid() != 0 {
		return
	}
	log, err := runIn(t.Context(), t, c, `{"script":"CG; mkdir $cg/a $cg/a/b && sh -c 'echo $$ >'$cg'/a/b/cgroup.procs && exec sleep 600' >/dev/null & until grep -q a/b /proc/$!/cgroup; do :; done; echo moved"}`)
	if err != nil || !strings.Contains(log, "moved") {
		t.Errorf("%v, %s", err, log)
	}
}

// Another user cannot change the limits, and can read them.
func cgroupUser(t *testing.T, c Config) {
	if os.Geteuid() != 0 {
		return
	}
	c.Users = []string{"nobody"}
	log, err := runIn(t.Context(), t, c, `{"script":"CG; id -un; cat $cg/memory.max; echo max >$cg/memory.max || echo kept; echo $$ >$cg/../../../cgroup.procs || echo stays","user":"nobody","limits":{"memory":104857600}}`)
	for _, want := range []string{"msg=nobody\n", "msg=104857600\n", "msg=kept\n", "msg=stays\n"} {
		if err != nil || !strings.Contains(log, want) {
			t.Errorf("%v: no %q in %s", err, want, log)
		}
	}
}

// A worker that was killed leaves its commands to the next one that starts. Workers that live keep theirs.
func cgroupKilledWorker(t *testing.T, c Config) {
	fifo := filepath.Join(t.TempDir(), "pid")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	worker := exec.Command(os.Args[0], "-test.run=^TestCgroupWorker$")
	worker.Env = append(os.Environ(), "CARILLON_TEST_WORKER="+fifo)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(fifo) // waits for the command
	pid, parseErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || parseErr != nil {
		t.Fatalf("%v, %v: %q", err, parseErr, text)
	}
	second, err := New(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(workersIn(t, c.Cgroup)); n != 2 || unix.Kill(pid, 0) != nil {
		t.Errorf("a worker ended the commands of another: %d folders", n)
	}
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = worker.Wait() // killed
	if unix.Kill(pid, 0) != nil {
		t.Fatal("the process ended with its worker: the test shows nothing")
	}
	third, err := New(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Errorf("process %d is still there", pid)
	}
	if got, want := workersIn(t, c.Cgroup), []string{second.groups.folder, third.groups.folder}; !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("folders %q, want %q", got, want)
	}
	for _, r := range []*Runner{second, third} {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestCgroupWorker is the worker that cgroupKilledWorker kills.
func TestCgroupWorker(t *testing.T) {
	fifo, delegated := os.Getenv("CARILLON_TEST_WORKER"), os.Getenv("CARILLON_TEST_CGROUP")
	if fifo == "" || delegated == "" {
		return
	}
	c := everything
	c.Cgroup = delegated
	_, err := run(t.Context(), t, c, `{"argv":["sh","-c","setsid sh -c 'echo $$ > $0; exec sleep 600' $0 & wait",`+strconv.Quote(fifo)+`]}`, `{}`)
	t.Fatal(err)
}

// A worker that ends although a command has not, ends the command.
func cgroupEndedWorker(t *testing.T, c Config) {
	r, err := New(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{got: make(chan string, 100)}
	done := make(chan error, 1)
	go func() {
		done <- r.run(t.Context(), &execspec.Command{Script: `setsid sleep 600 & echo "pid $!"; wait`}, attempt, []byte(`{}`), s.logger())
	}()
	pid := pidIn(s)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; codeOf(err) != "signal_SIGKILL" || alive(pid) {
		t.Errorf("%v", err)
	}
}

// A folder in which a command would not be limited, or could not start, is refused when the worker starts.
func cgroupRefused(t *testing.T, c Config) {
	above := filepath.Dir(c.Cgroup)
	make := func(name string) string {
		folder := filepath.Join(above, name)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := empty(filepath.Join(above, strings.SplitN(name, "/", 2)[0])); err != nil {
				t.Error(err)
			}
		})
		return folder
	}
	busy, bare := make("busy"), make("bare/child")
	p := exec.Command("sleep", "600")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill() // it runs
		_ = p.Wait()         // killed
	})
	if err := writeFile(filepath.Join(busy, "cgroup.procs"), strconv.Itoa(p.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]string{
		"carillon":                         "want an absolute path",
		filepath.Join(above, "no", "such"): "no such file or directory: create it",
		t.TempDir():                        "is not a folder of cgroup v2",
		busy:                               "has processes of its own",
		bare:                               `lacks the controllers cpu, memory, pids: write "+cpu +memory +pids" to cgroup.subtree_control in the folder above it`,
	} {
		c.Cgroup = folder
		if r, err := New(nil, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", folder, err, want)
			if err == nil {
				_ = r.Close()
			}
		}
	}
}

// What a kernel is given and gives, without one.
func TestCgroupFiles(t *testing.T) {
	got := files(execspec.Limits{Memory: 1 << 20, CPU: 60, Processes: 7, CPUs: 0.015})
	want := []limitFile{{"memory.oom.group", "1", false}, {"memory.max", "1048576", false}, {"memory.swap.max", "0", true}, {"pids.max", "7", false}, {"cpu.max", "1500 100000", false}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := missingControllers("cpuset cpu io memory hugetlb pids\n"); len(got) > 0 {
		t.Errorf("missing: %q", got)
	}
	if got := missingControllers("cpuset io memory\n"); !slices.Equal(got, []string{"cpu", "pids"}) {
		t.Errorf("missing: %q", got)
	}
	c := &cgroup{folder: t.TempDir()}
	for name, text := range map[string]string{"memory.events": "low 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n", "pids.events": "max 0\n"} {
		if err := os.WriteFile(filepath.Join(c.folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.event("memory.events", "oom_kill"); n != 1 {
		t.Errorf("oom_kill is %d", n)
	}
	if err := c.outOfMemory(); err == nil || !strings.Contains(err.Error(), "a cgroup above the command") {
		t.Error(err)
	}
	c.limits.Memory = 1 << 20
	if err := c.outOfMemory(); err == nil || !strings.Contains(err.Error(), "limits.memory (1048576 bytes)") {
		t.Error(err)
	}
	if err := writeFile(filepath.Join(c.folder, "pids.max"), "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was created: %v", err)
	}
	// Limits that need a cgroup are refused without one, and a folder that is none is refused.
	for _, limits := range []string{`{"processes":5}`, `{"cpus":0.5}`} {
		if _, err := run(t.Context(), t, everything, `{"argv":["true"],"limits":`+limits+`}`, `{}`); codeOf(err) != "not_allowed" || !strings.Contains(err.Error(), "--exec-cgroup") {
			t.Errorf("%s: %v", limits, err)
		}
	}
	with := everything
	with.Cgroup = t.TempDir()
	if _, err := New(nil, with); err == nil || !strings.Contains(err.Error(), "is not a folder of cgroup v2") {
		t.Error(err)
	}
}
