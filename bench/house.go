package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// house is a server process, worker processes, and a client, all made anew for a scenario.
type house struct {
	dir, program string
	nats, http   string
	server       *exec.Cmd
	workers      []*exec.Cmd
	client       *carillon.Client
	offers       atomic.Int64 // messages of offers, once they are counted

	mu     sync.Mutex
	starts map[jobs.ID]time.Time // when handlers began, by the worker's word
}

// build compiles the program and starts a server.
func build(ctx context.Context) (*house, error) {
	dir, err := os.MkdirTemp("", "carillon-bench-")
	if err != nil {
		return nil, err
	}
	h := &house{dir: dir, program: filepath.Join(dir, "carillon"), starts: map[jobs.ID]time.Time{}}
	out, err := exec.CommandContext(ctx, "go", "build", "-C", "..", "-o", h.program, "./cmd/carillon").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, out)
	}
	h.nats, h.http = freeAddress(), freeAddress()
	if err := h.serve(ctx); err != nil {
		h.close()
		return nil, err
	}
	if h.client, err = carillon.Dial("nats://" + h.nats); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// serve starts the server and waits until it leads.
func (h *house) serve(ctx context.Context) error {
	args := []string{"server", "--nats-addr", h.nats, "--http", h.http}
	if *memory {
		args = append(args, "--memory")
	} else {
		args = append(args, "--data", filepath.Join(h.dir, "data"))
	}
	h.server = exec.CommandContext(ctx, h.program, args...)
	h.server.Env = append(os.Environ(), "CARILLON_LOG_LEVEL=warn")
	if *verbose {
		h.server.Stderr, h.server.Stdout = os.Stderr, os.Stderr
	}
	if err := h.server.Start(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		r, err := http.Get("http://" + h.http + "/readyz")
		if err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return errors.New("the server did not become ready")
}

// hire starts a worker process and listens to what it says.
func (h *house) hire(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, self, fmt.Sprintf("-slots=%d", *slots), "worker", "nats://"+h.nats)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	h.workers = append(h.workers, c)
	go h.listen(out)
	for ctx.Err() == nil { // until its jobs are known
		if _, err := h.get("/api/v1/jobs/bench.noop"); err == nil {
			if w, err := h.get("/api/v1/workers"); err == nil && strings.Contains(w, "bench") {
				return nil
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the worker did not register")
}

func (h *house) listen(out io.Reader) {
	for s := bufio.NewScanner(out); s.Scan(); {
		var at startLine
		if json.Unmarshal(s.Bytes(), &at) == nil {
			h.mu.Lock()
			h.starts[at.ID] = time.Unix(0, at.At)
			h.mu.Unlock()
		}
	}
}

// dismiss ends the workers.
func (h *house) dismiss() {
	for _, w := range h.workers {
		_ = w.Process.Signal(syscall.SIGTERM)
		_ = w.Wait()
	}
	h.workers = nil
}

func (h *house) get(path string) (string, error) {
	r, err := http.Get("http://" + h.http + path)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s %s", path, r.Status, b)
	}
	return string(b), err
}

// cpu is the processor time that the server and the workers have used.
func (h *house) cpu() time.Duration {
	var sum time.Duration
	for _, c := range append([]*exec.Cmd{h.server}, h.workers...) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		var f [15]string
		copy(f[:], strings.Fields(rest))
		var user, system int64
		fmt.Sscan(f[11], &user)
		fmt.Sscan(f[12], &system)
		sum += time.Duration(user+system) * 10 * time.Millisecond
	}
	var self syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &self) == nil {
		sum += time.Duration(self.Utime.Nano() + self.Stime.Nano())
	}
	return sum
}

func (h *house) close() {
	for _, c := range append(h.workers, h.server) {
		if c != nil && c.Process != nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	_ = os.RemoveAll(h.dir)
}

// startLine is how a worker tells when a handler began.
type startLine struct {
	ID jobs.ID `json:"id"`
	At int64   `json:"at"`
}

type noArgs struct {
	Customer string `json:"customer"`
	Note     string `json:"note"`
	Tell     bool   `json:"tell,omitempty"` // say when the handler began
}

// hundred are arguments of about a hundred bytes.
var hundred = noArgs{Customer: "c7", Note: "arguments of about a hundred bytes, as everybody measures it"}

var (
	noop    = jobs.Trigger[noArgs]("bench.noop")
	oneSlot = jobs.Trigger[noArgs]("bench.one")
)

// work is the worker process.
func work(url string, slots int) error {
	out := json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	run := jobs.TriggeredFunc[noArgs](func(ctx context.Context, a noArgs) error {
		if a.Tell {
			at := time.Now().UnixNano()
			mu.Lock()
			defer mu.Unlock()
			return out.Encode(startLine{jobs.Attempt(ctx).Run, at})
		}
		return nil
	})
	w, err := carillon.NewWorker(url, worker.Config{App: "bench", Name: "bench", Slots: slots},
		jobs.NewTriggered(run, jobs.Options{Key: "bench.noop"}),
		jobs.NewTriggered(run, jobs.Options{Key: "bench.one", MaxConcurrency: 1}))
	if err != nil {
		return err
	}
	return w.Run(context.Background())
}
