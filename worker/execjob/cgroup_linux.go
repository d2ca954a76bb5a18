package execjob

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-scheduler/carillon/execspec"
)

const (
	// workerPrefix begins the names of workers' folders in the folder of --exec-cgroup.
	workerPrefix = "worker-"
	// emptyWithin is how long the processes of a cgroup may take to end after SIGKILL: those in a system call that
	// cannot be interrupted take longer.
	emptyWithin = 10 * time.Second
	// cpuPeriod is the kernel's usual period of cpu.max, in microseconds.
	cpuPeriod = 100_000
)

// controllers are those that limits need.
var controllers = []string{"cpu", "memory", "pids"}

// cgroups is the folder of this worker in a delegated cgroup. It has a child for each attempt.
//
// Several workers may share a delegated cgroup. Each locks its own folder (flock) while it lives; the kernel unlocks it
// when the worker dies. A worker that starts removes the folders that it can lock, with their processes.
type cgroups struct {
	folder string
	lock   *os.File
}

// openCgroups makes the folder of a worker, and removes those of workers that died.
func openCgroups(delegated string) (*cgroups, error) {
	if !filepath.IsAbs(delegated) {
		return nil, fmt.Errorf("invalid cgroup %q: want an absolute path such as /sys/fs/cgroup/carillon", delegated)
	}
	var at unix.Statfs_t
	if err := unix.Statfs(delegated, &at); err != nil {
		return nil, fmt.Errorf("cgroup %s: %w: create it, and delegate it to the user of this worker", delegated, err)
	}
	if int64(at.Type) != unix.CGROUP2_SUPER_MAGIC {
		return nil, fmt.Errorf("%s is not a folder of cgroup v2: want one below the mount of the type cgroup2", delegated)
	}
	offered, err := os.ReadFile(filepath.Join(delegated, "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", delegated, err)
	}
	if missing := missingControllers(string(offered)); len(missing) > 0 {
		return nil, fmt.Errorf("cgroup %s lacks the controllers %s: write %q to cgroup.subtree_control in the folder above it", delegated,
			strings.Join(missing, ", "), "+"+strings.Join(missing, " +"))
	}
	if err := enable(delegated); err != nil {
		return nil, err
	}
	all, err := lockFolder(delegated, unix.LOCK_EX) // no worker starts between the creation of a folder and its lock
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", delegated, err)
	}
	defer all.Close()
	if err := sweep(delegated); err != nil {
		return nil, err
	}
	folder, err := makeFolder(delegated, workerPrefix)
	if err != nil {
		return nil, fmt.Errorf("cgroup %s is not writable: %w: delegate it to the user of this worker", delegated, err)
	}
	g := &cgroups{folder: folder}
	if g.lock, err = lockFolder(folder, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		if err = enable(folder); err == nil {
			err = g.probe()
		}
	}
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

// makeFolder makes a folder whose name begins with prefix. All users may read it: programs adapt to their limits.
func makeFolder(in, prefix string) (string, error) {
	folder, err := os.MkdirTemp(in, prefix)
	if err != nil {
		return "", err
	}
	return folder, os.Chmod(folder, 0o755)
}

// missingControllers returns those that a file such as cgroup.controllers does not name.
func missingControllers(text string) []string {
	var missing []string
	for _, name := range controllers {
		if !slices.Contains(strings.Fields(text), name) {
			missing = append(missing, name)
		}
	}
	return missing
}

// enable lets the children of a cgroup have limits.
func enable(folder string) error {
	file := filepath.Join(folder, "cgroup.subtree_control")
	enabled, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("cgroup %s: %w", folder, err)
	}
	missing := missingControllers(string(enabled))
	if len(missing) == 0 {
		return nil
	}
	switch err = writeFile(file, "+"+strings.Join(missing, " +")); {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("cgroup %s has processes of its own: move them, or this worker, to another cgroup", folder)
	case err != nil:
		return fmt.Errorf("cgroup %s: enable the controllers %s: %w: delegate it to the user of this worker", folder, strings.Join(missing, ", "), err)
	}
	return nil
}

// writeFile writes a text to a file that exists.
func writeFile(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func lockFolder(folder string, how int) (*os.File, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", folder, err), f.Close())
	}
	return f, nil
}

// sweep ends what workers left that died.
func sweep(delegated string) error {
	entries, err := os.ReadDir(delegated)
	if err != nil {
		return fmt.Errorf("cgroup %s: %w", delegated, err)
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), workerPrefix) {
			continue
		}
		folder := filepath.Join(delegated, e.Name())
		lock, err := lockFolder(folder, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist): // of a worker that lives, or has just ended
			continue
		case err != nil:
			return err
		}
		err = empty(folder)
		_ = lock.Close() // read only
		if err != nil {
			return fmt.Errorf("remove what a worker left that died: %w", err)
		}
	}
	return nil
}

// probe reports why no command could start in a cgroup: it starts a program without a name in one.
func (g *cgroups) probe() error {
	child, err := g.child("probe-", execspec.Limits{Memory: 1 << 30, Processes: 100, CPUs: 1}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer child.remove()
	if _, err := os.Stat(filepath.Join(child.folder, "cgroup.kill")); err != nil {
		return fmt.Errorf("cgroup %s: %w: commands in cgroups need Linux 5.14 or later", g.folder, err)
	}
	attr := new(syscall.SysProcAttr)
	child.hold(attr)
	_, err = syscall.ForkExec("", []string{""}, &syscall.ProcAttr{Sys: attr})
	if err == syscall.ENOENT { // the process was there, and its program was not
		return nil
	}
	return fmt.Errorf("start a process in cgroup %s: %w: the user of this worker needs write access to cgroup.procs of the lowest "+
		"folder that is above it and the worker's own cgroup", g.folder, err)
}

// close ends all commands of the worker, and removes its folder.
func (g *cgroups) close() error {
	if g == nil {
		return nil
	}
	err := empty(g.folder)
	if g.lock != nil {
		err = errors.Join(err, g.lock.Close())
	}
	return err
}

// cgroup is the one of an attempt. A nil one belongs to a worker without cgroups.
type cgroup struct {
	folder string
	dir    *os.File
	limits execspec.Limits
	runLog *slog.Logger
}

// child makes the cgroup of an attempt, with its limits.
func (g *cgroups) child(name string, l execspec.Limits, runLog *slog.Logger) (*cgroup, error) {
	if g == nil {
		return nil, nil
	}
	folder, err := makeFolder(g.folder, name)
	if err != nil {
		return nil, fmt.Errorf("create a cgroup: %w", err)
	}
	c := &cgroup{folder: folder, limits: l, runLog: runLog}
	for _, f := range files(l) {
		err := writeFile(filepath.Join(folder, f.name), f.text)
		if err != nil && !(f.optional && errors.Is(err, fs.ErrNotExist)) {
			c.remove()
			return nil, fmt.Errorf("limit a cgroup: %w", err)
		}
	}
	if c.dir, err = os.Open(folder); err != nil {
		c.remove()
		return nil, fmt.Errorf("open a cgroup: %w", err)
	}
	return c, nil
}

// limitFile is a file of a cgroup that limits it.
type limitFile struct {
	name, text string
	optional   bool // kernels without swap lack it
}

// files returns the limits as files of a cgroup.
func files(l execspec.Limits) []limitFile {
	// If memory runs out, all processes end: a half of a command does damage, or waits for ever.
	list := []limitFile{{name: "memory.oom.group", text: "1"}}
	if l.Memory > 0 {
		list = append(list, limitFile{name: "memory.max", text: strconv.FormatInt(l.Memory, 10)},
			limitFile{name: "memory.swap.max", text: "0", optional: true})
	}
	if l.Processes > 0 {
		list = append(list, limitFile{name: "pids.max", text: strconv.FormatInt(l.Processes, 10)})
	}
	if l.CPUs > 0 {
		list = append(list, limitFile{name: "cpu.max", text: fmt.Sprintf("%d %d", int64(math.Round(l.CPUs*cpuPeriod)), cpuPeriod)})
	}
	return list
}

// hold makes a command start in the cgroup.
func (c *cgroup) hold(attr *syscall.SysProcAttr) {
	if c != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(c.dir.Fd())
	}
}

// kill ends all processes of the cgroup, whatever their process group is.
func (c *cgroup) kill() {
	if c != nil {
		_ = writeFile(filepath.Join(c.folder, "cgroup.kill"), "1")
	}
}

// remove ends what is left in the cgroup and removes it.
func (c *cgroup) remove() {
	if c == nil {
		return
	}
	if err := empty(c.folder); err != nil {
		c.runLog.Warn("processes of the command did not end", "err", err)
	}
	if c.dir != nil {
		_ = c.dir.Close() // read only
	}
}

// outOfMemory returns why the kernel ended processes of the cgroup, or nil. It reports refused processes, too.
func (c *cgroup) outOfMemory() error {
	if c == nil {
		return nil
	}
	if n := c.event("pids.events", "max"); n > 0 {
		c.runLog.Warn("the kernel refused to start further processes: limits.processes was reached", "processes", c.limits.Processes)
	}
	switch {
	case c.event("memory.events", "oom_kill") == 0:
		return nil
	case c.limits.Memory > 0 && c.event("memory.events", "max") > 0:
		return fmt.Errorf("out of memory: the command needed more than limits.memory (%d bytes)", c.limits.Memory)
	}
	return errors.New("out of memory: the worker's host, or a cgroup above the command, had none left")
}

// event returns a counter of a file such as memory.events.
func (c *cgroup) event(file, name string) int64 {
	f, err := os.Open(filepath.Join(c.folder, file))
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 2 && fields[0] == name {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n
		}
	}
	return 0
}

// empty ends all processes of a cgroup and removes it with its children.
func empty(folder string) error {
	until := time.Now().Add(emptyWithin)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		// Again and again: a process that is being started while the cgroup is killed may survive.
		if err := writeFile(filepath.Join(folder, "cgroup.kill"), "1"); errors.Is(err, fs.ErrNotExist) {
			if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
		}
		err := removeTree(folder)
		if err == nil || time.Now().After(until) {
			return err
		}
		time.Sleep(pause)
	}
}

// removeTree removes a cgroup with its children. Its files disappear with it.
func removeTree(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(folder, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := unix.Rmdir(folder); err != nil && err != unix.ENOENT {
		return &fs.PathError{Op: "remove cgroup", Path: folder, Err: err}
	}
	return nil
}
