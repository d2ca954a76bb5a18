package processtest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// inTutorial marks the process that follows the tutorial, in a network of its own.
const inTutorial = "CARILLON_TEST_TUTORIAL"

// A reader who follows the tutorial sees what it shows: the test runs its commands and writes its files in their order,
// as they are written, in a home directory of its own.
func TestTutorial(t *testing.T) {
	tests.Long(t)
	tests.WithoutRace(t)
	t.Parallel()
	if os.Getuid() == 0 && os.Getenv(inTutorial) == "" { // its ports may be in use here
		self := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTutorial$", "-test.v")
		self.Env = append(os.Environ(), inTutorial+"=1")
		self.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET}
		if out, err := self.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if os.Getenv(inTutorial) != "" {
		raiseLoopback(t)
	}
	for _, port := range []int{8080, 8081, 8082, 4222, 4223, 4224} {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			tests.Missing(t, fmt.Sprintf("the tutorial needs port %d: %v", port, err))
		}
		l.Close()
	}
	r := newReader(t)
	page, err := os.ReadFile("../../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		switch text := block[2]; block[1] {
		case "sh":
			r.output = ""
			for line := range strings.Lines(text) {
				r.enter(strings.TrimSpace(line))
			}
		case "go":
			r.write(text)
		case "text":
			r.sees(text)
		}
	}
	r.losesANode()
}

// raiseLoopback brings up the loopback interface of a new network.
func raiseLoopback(t *testing.T) {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	lo, err := unix.NewIfreq("lo")
	if err == nil {
		lo.SetUint16(unix.IFF_UP)
		err = unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// reader is a person at some terminals.
type reader struct {
	*testing.T
	home   string
	dir    string // of the terminal
	env    []string
	output string // of the last block
	last   string // the last run
	jobs   map[string]*job
}

// job is a command that goes on in a terminal of its own.
type job struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	out bytes.Buffer
}

func (j *job) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.out.Write(b)
}

func (j *job) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.out.String()
}

func newReader(t *testing.T) *reader {
	t.Helper()
	checkout, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	known, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	caches := strings.Fields(string(known))
	home := t.TempDir()
	env := append(os.Environ(), "HOME="+home, "GOBIN="+home+"/bin", "PATH="+home+"/bin:"+os.Getenv("PATH"), "GOCACHE="+caches[0], "GOMODCACHE="+caches[1],
		"GOPROXY=off",                   // nothing is downloaded
		"CARILLON_DATA="+home+"/server") // not in the checkout
	return &reader{T: t, home: home, dir: checkout, env: env, jobs: map[string]*job{}}
}

var runID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// enter runs a line of shell. Lines that go on run until they are ready.
func (r *reader) enter(line string) {
	r.Helper()
	switch line {
	case "carillon dev":
		r.begin(line, "carillon jobs list", "demo.")
		return
	case "go run .":
		r.begin(line, "carillon jobs list --app billing", "billing.remind")
		return
	case "carillon dev --nodes 3": // "stop carillon dev", "replace the address by all three, and start the worker again"
		r.end("go run .")
		r.end("carillon dev")
		main := filepath.Join(r.dir, "main.go")
		raw, err := os.ReadFile(main)
		if err != nil {
			r.Fatal(err)
		}
		all := []byte("nats://127.0.0.1:4222,nats://127.0.0.1:4223,nats://127.0.0.1:4224")
		if err := os.WriteFile(main, bytes.ReplaceAll(raw, []byte("nats://127.0.0.1:4222"), all), 0o600); err != nil {
			r.Fatal(err)
		}
		r.begin(line, "carillon cluster status", "one node may fail")
		r.begin("go run .", "carillon jobs list --app billing", "billing.remind")
		return
	}
	line = runID.ReplaceAllString(line, r.last) // "give it the ID of the second"
	out, err := r.shell(line)
	if err != nil {
		r.Fatalf("$ %s\n%s%v", line, out, err)
	}
	if strings.HasPrefix(line, "carillon jobs trigger") {
		r.last = runID.FindString(out)
	}
	if strings.HasPrefix(line, "cd ~/billing") {
		r.dir = filepath.Join(r.home, "billing")
	}
	r.output += out
}

func (r *reader) command(line string) *exec.Cmd {
	c := exec.CommandContext(r.Context(), "bash", "-c", line)
	c.Dir, c.Env = r.dir, r.env
	return c
}

func (r *reader) shell(line string) (string, error) {
	out, err := r.command(line).CombinedOutput()
	return string(out), err
}

// begin starts a command that goes on, and waits until another command prints that it is ready.
func (r *reader) begin(line, look, ready string) {
	r.Helper()
	j := &job{cmd: r.command("exec " + line)}
	j.cmd.Stdout, j.cmd.Stderr = j, j
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal stops all of its processes
	if err := j.cmd.Start(); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL) })
	r.jobs[line] = j
	r.until(look, ready)
	r.output += j.text()
}

// until repeats a command until it prints a text.
func (r *reader) until(line, want string) {
	r.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(200 * time.Millisecond) { // between two tries
		out, err := r.shell(line)
		if err == nil && strings.Contains(out, want) {
			return
		}
		if time.Now().After(deadline) {
			for name, j := range r.jobs {
				r.Logf("$ %s\n%s", name, j.text())
			}
			r.Fatalf("$ %s\n%s%v", line, out, err)
		}
	}
}

// end presses Ctrl-C.
func (r *reader) end(line string) {
	r.Helper()
	j := r.jobs[line]
	if err := syscall.Kill(-j.cmd.Process.Pid, syscall.SIGINT); err != nil {
		r.Fatal(err)
	}
	if err := j.cmd.Wait(); err != nil && line != "go run ." { // go run itself ends with an error
		r.Errorf("%s ended with %v:\n%s", line, err, j.text())
	}
}

// write writes a file that the page names in its first line.
func (r *reader) write(text string) {
	r.Helper()
	first, rest, _ := strings.Cut(text, "\n")
	file := filepath.Join(r.dir, strings.TrimPrefix(first, "// "))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(rest), 0o600); err != nil {
		r.Fatal(err)
	}
}

// varies is what differs from reader to reader: IDs, times, durations and the width of columns.
var varies = regexp.MustCompile(runID.String() + `|\d{4}-\d\d-\d\dT[\d:]+(Z|[+-][\d:]+)|\d\d:\d\d:\d\d\.\d+|\b(in )?\d+(\.\d+)?s\b|\bnow\b| {2,}`)

// sees compares the lines of the last block with what the page shows.
func (r *reader) sees(text string) {
	r.Helper()
	seen := varies.ReplaceAllString(r.output, "  ")
	for line := range strings.Lines(varies.ReplaceAllString(text, "  ")) {
		if line = strings.TrimSpace(line); line != "data  ./.carillon" && !strings.Contains(seen, line) {
			r.Errorf("the page shows %q; the reader sees\n%s", line, r.output)
		}
	}
}

// losesANode does what the last step says after its commands: it kills the leader, and asks another node.
func (r *reader) losesANode() {
	r.Helper()
	leader := regexp.MustCompile(`(?m)^(n\d) +leads`).FindStringSubmatch(r.output)
	nodes := regexp.MustCompile(`(n\d) +(http://\S+) +bus \S+ +process (\d+)`).FindAllStringSubmatch(r.jobs["carillon dev --nodes 3"].text(), -1)
	if leader == nil || len(nodes) != 3 {
		r.Fatalf("no leader, or no nodes:\n%s", r.output)
	}
	other := ""
	for _, n := range nodes {
		if n[1] != leader[1] {
			other = n[2]
			continue
		}
		if out, err := r.shell("kill -9 " + n[3]); err != nil {
			r.Fatalf("%s%v", out, err)
		}
	}
	r.until("carillon cluster status --server "+other+" | grep -v '^"+leader[1]+"'", "leads")
	runs := "carillon runs list --job billing.remind -o name --server " + other
	before, _ := r.shell(runs + " | head -1")
	r.until("test \"$("+runs+" | head -1)\" != '"+strings.TrimSpace(before)+"' && echo more", "more")
}
