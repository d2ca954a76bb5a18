package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/worker"
)

// fixture is a server process, worker processes, and a client, all made anew for a scenario.
type fixture struct {
	dir, program string
	nats, http   string
	debug        string // address of the server's profiler; "" = there is none
	workerDebug  string // address of the profiler of a worker that is a program of ours; "" = there is none
	setup
	server  *exec.Cmd
	others  []*exec.Cmd // nodes of its cluster
	buses   []string    // their NATS servers
	bus     *exec.Cmd   // NATS outside the server; nil = inside
	workers []*exec.Cmd
	client  *client.Client
	token   string       // with which the server is asked; "" = it requires none
	pushes  atomic.Int64 // messages of pushes, once they are counted
	past    *archived    // what the store was filled with
	filled  time.Duration

	looked sync.WaitGroup // looks of the server at itself

	mu     sync.Mutex
	starts map[jobs.ID]time.Time // when handlers began, as the worker reports
}

// setup configures a cluster.
type setup struct {
	memory   bool    // the store keeps nothing
	store    string  // URL of a database that keeps the rows; "" = the data directory
	external bool    // NATS runs in a process of its own
	nodes    int     // of a cluster; 0 = one server alone
	auth     bool    // the server requires tokens
	db       *server // the database, if it is the fixture's own; nil = there is none
	filling  bool    // the store is filled before the server starts
}

// build starts a server.
func build(ctx context.Context, on setup) (*fixture, error) {
	program, err := compiled()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "carillon-bench-")
	if err != nil {
		return nil, err
	}
	h := &fixture{dir: dir, program: program, setup: on, starts: map[jobs.ID]time.Time{}}
	h.nats, h.http = freeAddress(), freeAddress()
	if on.filling {
		if err := h.fill(ctx); err != nil {
			h.close()
			return nil, err
		}
	}
	if on.external {
		if err := h.serveNATS(ctx); err != nil {
			h.close()
			return nil, err
		}
	}
	if err := h.serve(ctx); err != nil {
		h.close()
		return nil, err
	}
	for len(h.others) < on.nodes-1 {
		if err := h.grow(ctx); err != nil {
			h.close()
			return nil, err
		}
	}
	if on.auth {
		err = h.firstToken(ctx)
	} else {
		h.client, err = carillon.Dial(h.url())
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// compiled is the path of the program, which is built once.
var compiled = sync.OnceValues(func() (string, error) {
	program, err := filepath.Abs("../bin/carillon-measured")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-C", "..", "-trimpath", "-o", program, "./cmd/carillon").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build: %w\n%s", err, out)
	}
	return program, err
})

var given sync.Map // addresses that freeAddress returned and that may not be in use yet

// freeAddress returns a free loopback address, another one at each call. Its port is below those that the kernel gives
// to outgoing connections, and below those of freePair: other systems start meanwhile, and must not take it.
func freeAddress() string {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 12_000+rand.IntN(8_000))
		if _, known := given.LoadOrStore(address, true); known {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
}

// serve starts the server and waits until it leads.
func (h *fixture) serve(ctx context.Context) error {
	args := []string{"server", "--http", h.http}
	if h.external {
		args = append(args, "--nats", "nats://"+h.nats)
	} else {
		args = append(args, "--nats-addr", h.nats)
	}
	if h.memory {
		args = append(args, "--memory")
	} else {
		args = append(args, "--data", filepath.Join(h.dir, "data"))
	}
	if h.store != "" {
		args = append(args, "--store", h.store)
	}
	if h.auth {
		args = append(args, "--auth", "on")
	}
	if h.nodes > 1 {
		args = append(args, "--node", "n1", "--cluster", freePair())
	}
	if *profile != "" {
		h.debug = freeAddress()
		args = append(args, "--debug-addr", h.debug)
	}
	h.server = exec.CommandContext(ctx, h.program, args...)
	h.server.Env, h.server.SysProcAttr = append(os.Environ(), "CARILLON_LOG_LEVEL=warn", "CARILLON_LIMITS_JOBS_PER_APP=1000000"), bound()
	if h.db != nil || h.filling {
		h.server.Env = append(h.server.Env, "CARILLON_RETENTION_BYTES=0") // ten million runs are more than the default
	}
	if *verbose {
		h.server.Stderr, h.server.Stdout = os.Stderr, os.Stderr
	}
	if err := h.server.Start(); err != nil {
		return err
	}
	return ready(ctx, h.http+"/leaderz", h.server) // only the leader opens its bus
}

// ready waits until a server responds 200 to a probe.
func ready(ctx context.Context, probe string, server *exec.Cmd) error {
	for ctx.Err() == nil {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", server.Process.Pid)); err == nil && bytes.Contains(b, []byte(") Z ")) {
			return errors.New("the server has ended; -v shows its output")
		}
		r, err := http.Get("http://" + probe)
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

// serveNATS starts NATS in a process of its own.
func (h *fixture) serveNATS(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	h.bus = exec.CommandContext(ctx, self)
	h.bus.Env = append(os.Environ(), natsEnv+"="+h.nats, "TMPDIR="+h.dir)
	h.bus.Stderr, h.bus.SysProcAttr = os.Stderr, bound()
	if err := h.bus.Start(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		c, err := net.Dial("tcp", h.nats)
		if err == nil {
			return c.Close()
		}
		time.Sleep(5 * time.Millisecond)
	}
	return ctx.Err()
}

// workEnv holds the address of the bus of a process that is a worker of a cluster: so the test binary can be one, too.
const workEnv = "CARILLON_BENCH_WORK"

// postEnv holds the post of that worker.
const postEnv = "CARILLON_BENCH_POST"

// bound makes a process end with this one, even if this one is killed.
func bound() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// post describes a worker process.
type post struct {
	App    string // "" = bench
	Slots  int    // 0 = no limit
	Slower int    // how many times as long as elsewhere its handlers take; 0 = once
}

// hire starts a worker process and reads its output.
func (h *fixture) hire(ctx context.Context) error { return h.hireFor(ctx, post{Slots: *slots}) }

func (h *fixture) hireFor(ctx context.Context, p post) error { return h.hireAt(ctx, h.url(), p) }

// hireAt is hireFor with an address of the bus.
func (h *fixture) hireAt(ctx context.Context, url string, p post) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.App = cmp.Or(p.App, "bench")
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	before, err := h.workersOf(p.App)
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, self, "-profile="+*profile)
	c.Env = append(os.Environ(), workEnv+"="+url, postEnv+"="+string(text))
	c.Stderr, c.SysProcAttr = os.Stderr, bound()
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
		if _, err := h.get("/api/v1/jobs/" + p.App + ".noop"); err == nil {
			if n, err := h.workersOf(p.App); err == nil && n > before {
				return nil
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the worker did not register")
}

// workersOf is how many workers of an app the server knows.
func (h *fixture) workersOf(app string) (int, error) {
	w, err := h.get("/api/v1/workers")
	return strings.Count(w, `"app":"`+app+`"`), err
}

func (h *fixture) listen(out io.Reader) {
	for s := bufio.NewScanner(out); s.Scan(); {
		var at startLine
		if json.Unmarshal(s.Bytes(), &at) == nil {
			h.mu.Lock()
			if _, again := h.starts[at.ID]; !again {
				h.starts[at.ID] = time.Unix(0, at.At)
			}
			h.mu.Unlock()
		}
	}
}

// dismiss ends the workers.
func (h *fixture) dismiss() {
	for _, w := range h.workers {
		_ = w.Process.Signal(syscall.SIGTERM)
		_ = w.Wait()
	}
	h.workers = nil
}

func (h *fixture) get(path string) (string, error) {
	q, err := http.NewRequest("GET", "http://"+h.http+path, nil)
	if err != nil {
		return "", err
	}
	return h.send(q)
}

// send sends a request with the token, if there is one.
func (h *fixture) send(q *http.Request) (string, error) {
	if h.token != "" {
		q.Header.Set("Authorization", "Bearer "+h.token)
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s %s", q.URL.Path, r.Status, b)
	}
	return string(b), err
}

// cpu is the processor time that the server and the workers have used.
func (h *fixture) cpu() time.Duration {
	var sum time.Duration
	for _, c := range append(append([]*exec.Cmd{h.server}, h.others...), h.workers...) {
		sum += used(c.Process.Pid)
	}
	var self syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &self) == nil {
		sum += time.Duration(self.Utime.Nano() + self.Stime.Nano())
	}
	return sum
}

func (h *fixture) close() {
	h.looked.Wait()
	if *profile != "" {
		h.dismiss() // a worker writes its profile when it leaves
	}
	for _, c := range append(append(h.workers, h.others...), h.server, h.bus) {
		if c != nil && c.Process != nil {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	_ = os.RemoveAll(h.dir)
	if h.db != nil {
		h.db.stop()
		_ = os.RemoveAll(filepath.Dir(h.db.dir))
	}
}

// startLine is how a worker reports when a handler began.
type startLine struct {
	ID jobs.ID `json:"id"`
	At int64   `json:"at"`
}

type noArgs struct {
	Customer string `json:"customer"`
	Note     string `json:"note"`
	N        int64  `json:"n"`
	Report   bool   `json:"tell,omitempty"` // report when the handler began
	Millis   int    `json:"ms,omitempty"`   // how long the handler takes
}

// hundred are arguments of about a hundred bytes.
var hundred = noArgs{Customer: "c7", Note: "arguments of about a hundred bytes, as everybody measures it"}

// hundredOf are those of the nth job.
func hundredOf(n int) noArgs {
	a := hundred
	a.N = int64(n)
	return a
}

var (
	noop    = jobs.Trigger[noArgs]("bench.noop")
	oneSlot = jobs.Trigger[noArgs]("bench.one")
)

// work is the worker process.
func work(url string, p post) error {
	out := json.NewEncoder(os.Stdout)
	var mu sync.Mutex
	run := jobs.TriggeredFunc[noArgs](func(ctx context.Context, a noArgs) error {
		if a.Report {
			at := startLine{jobs.Attempt(ctx).Run, time.Now().UnixNano()}
			mu.Lock()
			err := out.Encode(at)
			mu.Unlock()
			if err != nil {
				return err
			}
		}
		if a.Millis > 0 {
			time.Sleep(time.Duration(a.Millis*max(1, p.Slower)) * time.Millisecond)
		}
		return nil
	})
	w, err := carillon.NewWorker(url, worker.Config{App: p.App, Name: p.App, Slots: cmp.Or(p.Slots, worker.Unlimited)},
		jobs.NewTriggered(run, jobs.Options{Key: jobs.Key(p.App + ".noop"), KeepSucceeded: jobs.None}),
		jobs.NewTriggered(run, jobs.Options{Key: jobs.Key(p.App + ".one"), MaxConcurrency: 1}))
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return w.Run(ctx)
}
