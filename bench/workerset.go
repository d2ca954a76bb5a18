package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Handlers only count, and record their start if the arguments ask for it. This process reads both over the worker's
// standard input and output, outside of measurements.

// start is when a handler began.
type start struct {
	N   int64 `json:"n"`             // of the job, or of the key that is due every second
	Due int64 `json:"due,omitempty"` // Unix nanoseconds; 0 = the system does not pass it to handlers
	At  int64 `json:"at"`
}

// tally has the counts and starts of a worker process.
type tally struct {
	count  atomic.Int64
	mu     sync.Mutex
	starts []start
}

// ran is the handler of all systems.
func (t *tally) ran(a noArgs, due time.Time) {
	if a.Report {
		s := start{N: a.N, At: time.Now().UnixNano()}
		if !due.IsZero() {
			s.Due = due.UnixNano()
		}
		t.mu.Lock()
		t.starts = append(t.starts, s)
		t.mu.Unlock()
	}
	t.count.Add(1)
}

// take returns the starts since the last call.
func (t *tally) take() []start {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.starts
	t.starts = nil
	return all
}

// answer serves the parent's questions until its input ends.
func (t *tally) answer() error {
	fmt.Println("ready")
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		switch s.Text() {
		case "count":
			fmt.Println(t.count.Load())
		case "itself":
			if err := json.NewEncoder(os.Stdout).Encode(aboutItself()); err != nil {
				return err
			}
		case "starts":
			b, err := json.Marshal(t.take())
			if err != nil {
				return err
			}
			fmt.Println(string(b))
		}
	}
	return nil
}

// order is the configuration of a worker process.
type order struct {
	System string
	URL    string
	Tuned  bool
	Keys   int    // jobs that are due every second; 0 = none
	First  int    // number of the first of them
	Cron   string // of ours: when they are due
	Slots  int
	// Profile is where the worker writes its profiles; "" = nowhere.
	Profile string
}

// workProcess is a worker process. It ends when its standard input does.
func workProcess(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	t := &tally{}
	var leave func() // ends what was started, and waits for it
	var err error
	switch o.System {
	case "carillon":
		leave, err = handOurs(ctx, o, t)
	case "replicas":
		leave, err = handReplica(ctx, o, t)
	case "river":
		leave, err = handRiver(ctx, o, t)
	case "asynq":
		leave, err = handAsynq(o, t)
	default:
		err = fmt.Errorf("there is no system %q", o.System)
	}
	if err != nil {
		return err
	}
	*profile = o.Profile
	return profiled("worker", func() error {
		err := t.answer()
		leave()
		return err
	})
}

// workerSet has the worker processes of a system.
type workerSet struct {
	procs []*proc
	own   *tally // of a system that runs handlers in this process; nil = none does
}

// proc is a worker process that answers questions.
type proc struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// hire starts one more and waits until it is ready.
func (h *workerSet) hire(ctx context.Context, o order) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, self)
	c.Env = append(os.Environ(), handEnv+"="+string(text))
	c.Stderr, c.SysProcAttr = os.Stderr, bound()
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	p := &proc{cmd: c, in: in, out: bufio.NewReaderSize(out, 1<<20)}
	h.procs = append(h.procs, p)
	line, err := p.out.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "ready" {
		return fmt.Errorf("the worker process did not become ready: %q %w", line, errors.Join(err, io.ErrUnexpectedEOF))
	}
	return nil
}

// handEnv holds the order of a process that is a worker: so the test binary can be one, too.
const handEnv = "CARILLON_BENCH_HAND"

func (p *proc) ask(question string) (string, error) {
	if _, err := io.WriteString(p.in, question+"\n"); err != nil {
		return "", err
	}
	return p.out.ReadString('\n')
}

// count is how many handlers have run, in all processes.
func (h *workerSet) count() (int, error) {
	sum := 0
	if h.own != nil {
		sum = int(h.own.count.Load())
	}
	for _, p := range h.procs {
		s, err := p.ask("count")
		if err != nil {
			return 0, fmt.Errorf("a worker process has ended: %w", err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// starts returns the starts since the last call.
func (h *workerSet) starts() ([]start, error) {
	var all []start
	if h.own != nil {
		all = h.own.take()
	}
	for _, p := range h.procs {
		s, err := p.ask("starts")
		if err != nil {
			return nil, fmt.Errorf("a worker process has ended: %w", err)
		}
		var some []start
		if err := json.Unmarshal([]byte(s), &some); err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func (h *workerSet) pids() []int {
	var pids []int
	for _, p := range h.procs {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}

// dismiss ends them.
func (h *workerSet) dismiss() {
	for _, p := range h.procs {
		_ = p.in.Close()
		kill := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
		_ = p.cmd.Wait()
		kill.Stop()
	}
	h.procs = nil
}

// cpuOf is the processor time of processes and of what they have started, and of this one.
func cpuOf(pids []int) time.Duration {
	sum := time.Duration(0)
	for _, pid := range pids {
		sum += treeOf(pid)
	}
	var self syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &self) == nil {
		sum += time.Duration(self.Utime.Nano() + self.Stime.Nano())
	}
	return sum
}

// treeOf is the processor time of a process and of all that it has started.
func treeOf(pid int) time.Duration {
	sum := used(pid)
	for _, child := range childrenOf(pid) {
		sum += treeOf(child)
	}
	return sum
}

// memoryOf is what processes and those they have started keep in memory, in MiB; pages that some share count once.
func memoryOf(pids []int) float64 {
	sum := 0.0
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(b), "\nPss:")
		var kib float64
		fmt.Sscan(rest, &kib)
		sum += kib/1024 + memoryOf(childrenOf(pid))
	}
	return sum
}

// childrenOf are the processes that the first thread of a process has started and that live.
func childrenOf(pid int) []int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var children []int
	for _, field := range strings.Fields(string(b)) {
		if child, err := strconv.Atoi(field); err == nil {
			children = append(children, child)
		}
	}
	return children
}
