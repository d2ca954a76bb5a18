package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// output is what a program prints, read while it runs.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newOutput() *output { return &output{more: make(chan struct{}, 1)} }

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	select {
	case o.more <- struct{}{}:
	default:
	}
	return len(b), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// program is a carillon that runs.
type program struct {
	t    *testing.T
	out  *output
	page string
	bus  string
	stop context.CancelFunc
	code chan int
}

func start(t *testing.T, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &program{t: t, out: newOutput(), stop: cancel, code: make(chan int, 1)}
	go func() { p.code <- execute(ctx, append(args, "--log-level", "error"), p.out, p.out) }()
	for p.page == "" {
		select {
		case <-p.out.more:
			if found := regexp.MustCompile(`page\s+(http://\S+)\s+bus\s+(nats://\S+)\s`).FindStringSubmatch(p.out.String()); found != nil {
				p.page, p.bus = found[1], found[2]
			}
		case code := <-p.code:
			t.Fatalf("it ended with %d: %s", code, p.out)
		}
	}
	return p
}

// end stops the program as Ctrl-C would.
func (p *program) end() {
	p.t.Helper()
	p.stop()
	if code := <-p.code; code != 0 {
		p.t.Errorf("it ended with %d: %s", code, p.out)
	}
}

// get asks until the answer pleases.
func (p *program) get(path string, pleases func(status int, body []byte) bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 30*time.Second)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, "GET", p.page+path, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			p.t.Fatalf("%s: %v: %s", path, err, p.out)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err == nil && pleases(answer.StatusCode, body) {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			p.t.Fatalf("%s: last %d %.500s", path, answer.StatusCode, body)
		}
	}
}

func (p *program) post(path, body string)  { p.t.Helper(); p.send("POST", path, body) }
func (p *program) patch(path, body string) { p.t.Helper(); p.send("PATCH", path, body) }

func (p *program) send(method, path, body string) {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), method, p.page+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("If-Match", "*")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		text, _ := io.ReadAll(answer.Body)
		p.t.Fatalf("%s: %d %s", path, answer.StatusCode, text)
	}
}

func ok(status int, _ []byte) bool { return status == 200 }

// succeeded waits for runs of a job that went well.
func succeeded(n int) func(int, []byte) bool {
	return func(_ int, body []byte) bool {
		var list struct{ Items []struct{ State string } }
		return json.Unmarshal(body, &list) == nil && len(list.Items) >= n
	}
}

// `carillon dev` gets ready, its jobs ring, and what it keeps is there at the next start.
func TestDev(t *testing.T) {
	tests.Long(t)
	dir := t.TempDir()
	args := []string{"dev", "--data", dir, "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0", "--grace", "0s"}
	p := start(t, args...)
	p.get("/readyz", ok)
	p.get("/api/v1/jobs", func(_ int, body []byte) bool { return bytes.Count(body, []byte(`"key":"demo.`)) == 8 })
	p.post("/api/v1/jobs/demo.greet/trigger", `{"args":{"name":"Ann"}}`)
	p.get("/api/v1/runs?job=demo.greet&state=Succeeded", succeeded(1))
	p.get("/api/v1/runs?job=demo.chime&state=Succeeded", succeeded(1))
	p.get("/", func(_ int, body []byte) bool { return bytes.Contains(body, []byte("demo.chime")) })
	p.end()
	p = start(t, args...)
	p.get("/api/v1/runs?job=demo.greet&state=Succeeded", succeeded(1))
	p.end()
}

func TestMemoryIsSaid(t *testing.T) {
	p := start(t, "dev", "--memory", "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0", "--grace", "0s")
	p.get("/readyz", ok)
	p.get("/", func(_ int, body []byte) bool { return bytes.Contains(body, []byte("nothing survives")) })
	if !strings.Contains(p.out.String(), "nothing survives") {
		t.Errorf("no line about memory in: %s", p.out)
	}
	p.end()
}

// A port in use: dev uses the next one and prints that, server fails with what to do.
func TestPortIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	p := start(t, "dev", "--memory", "--http", addr, "--nats-addr", "127.0.0.1:0", "--grace", "0s")
	if want := fmt.Sprintf("port %d is in use", taken.Addr().(*net.TCPAddr).Port); !strings.Contains(p.out.String(), want) || strings.HasSuffix(p.page, addr) {
		t.Errorf("output: %s", p.out)
	}
	p.get("/readyz", ok)
	p.end()

	var out, errs bytes.Buffer
	if code := execute(t.Context(), []string{"server", "--memory", "--http", addr}, &out, &errs); code != 1 || !strings.Contains(errs.String(), "--http") {
		t.Errorf("server: exit code %d: %s", code, errs.String())
	}
}
