//go:build unix

package processtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	// Linked for its own sake: a result of this package is stale as soon as anything below the program changes.
	_ "github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// workerVariable makes this program a worker, with this configuration.
const workerVariable = "PROCESSTEST_WORKER"

func TestMain(m *testing.M) {
	if raw := os.Getenv(workerVariable); raw != "" {
		os.Exit(beWorker(raw))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	var err error
	if binaries, err = os.MkdirTemp("", "carillon-processtest-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(binaries)
	// Tests that run side by side wait for leases most of the time, so more of them than processors may do so.
	tests.Parallel(8)
	return sqltest.Main(m)
}

// binaries is where programs are built to, once for all tests.
var binaries string

var (
	carillonProgram = sync.OnceValues(func() (string, error) { return build("carillon", "..") })
	// The server's own program is in the module that we link anyway, so nothing is downloaded.
	natsProgram = sync.OnceValues(func() (string, error) { return build("nats-server", "github.com/nats-io/nats-server/v2") })
)

func build(name, path string, tags ...string) (string, error) {
	// The go command remembers which files a test has looked at, and runs it again when one has changed.
	sources, err := filepath.Glob("../*.go")
	if err != nil {
		return "", err
	}
	for _, s := range sources {
		if _, err := os.Stat(s); err != nil {
			return "", err
		}
	}
	to := filepath.Join(binaries, name)
	if out, err := tests.Go("build", "-tags", strings.Join(tags, ","), "-o", to, path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return to, nil
}

// process is a running program. It is killed when its test ends; a failed test logs its output.
type process struct {
	name  string
	cmd   *exec.Cmd
	out   *output
	began time.Time
	ended chan struct{} // closed when it is gone
	err   error         // how it ended, after that
}

// start starts a program. Its environment has no settings of ours but those given.
func start(t *testing.T, name, path string, env []string, args ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(path, args...), out: &output{}, began: time.Now(), ended: make(chan struct{})}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "CARILLON_") {
			p.cmd.Env = append(p.cmd.Env, e)
		}
	}
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	dieWithUs(p.cmd)
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("output of %s (process %d):\n%s", name, p.pid(), p.out.tail(16<<10))
		}
	})
	return p
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill is kill -9. It returns when the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("%v to %s: %v", s, p.name, err)
	}
}

// stop signals the process and requires a clean exit.
func (p *process) stop(t *testing.T, s os.Signal) {
	t.Helper()
	p.signal(t, s)
	p.ends(t)
}

// ends waits until a signalled process has ended, and requires a clean exit.
func (p *process) ends(t *testing.T) {
	t.Helper()
	await(t, p.name+" ends", p.over)
	if p.err != nil {
		t.Errorf("%s got a signal and ended with %v", p.name, p.err)
	}
}

func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// code is the exit code of a process that has ended by itself.
func (p *process) code() int {
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok {
		return exit.ExitCode()
	}
	return 0
}

// freeze stops the process as a laptop's lid does, until thaw.
func (p *process) freeze(t *testing.T) { t.Helper(); p.signal(t, syscall.SIGSTOP) }
func (p *process) thaw(t *testing.T)   { t.Helper(); p.signal(t, syscall.SIGCONT) }

// output is what a process prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) has(text string) bool { return strings.Contains(o.String(), text) }

func (o *output) tail(n int) string {
	s := o.String()
	return s[max(0, len(s)-n):]
}

// await looks until something is so. How long that takes is the machine's affair: the test fails after two minutes.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	patience := tests.Size(2*time.Minute, 2*time.Minute, 10*time.Minute)
	deadline := time.Now().Add(patience)
	for !so() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
