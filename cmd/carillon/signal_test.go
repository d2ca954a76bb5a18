package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// A test that needs a process to send signals to runs this very binary as the program.
func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_PROGRAM") != "" {
		main()
	}
	os.Exit(sqltest.Main(m))
}

// child is the program in a process of its own.
type child struct {
	t    *testing.T
	cmd  *exec.Cmd
	page string
}

func startChild(t *testing.T, args ...string) *child {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute) // longer than all that a test waits for it
	t.Cleanup(cancel)
	c := &child{t: t, cmd: exec.CommandContext(ctx, os.Args[0], args...)}
	c.cmd.Env = append(os.Environ(), "BE_THE_PROGRAM=1")
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for c.page == "" && lines.Scan() {
		if found := regexp.MustCompile(`page\s+(http://\S+)`).FindStringSubmatch(lines.Text()); found != nil {
			c.page = found[1]
		}
	}
	if c.page == "" {
		t.Fatalf("it ended: %v", c.cmd.Wait())
	}
	go func() {
		for lines.Scan() { // so that it never waits for a reader
		}
	}()
	return c
}

// until asks for a path until the answer has the status.
func (c *child) until(method, path string, status int) {
	c.t.Helper()
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		request, err := http.NewRequest(method, c.page+path, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err == nil {
			answer.Body.Close()
			if answer.StatusCode == status {
				return
			}
			err = fmt.Errorf("status %d", answer.StatusCode)
		}
		if time.Since(begin) > 2*time.Minute {
			c.t.Fatalf("%s %s: %v", method, path, err)
		}
	}
}

// shows asks for a path until the answer has a text.
func (c *child) shows(path, text string) {
	c.t.Helper()
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		answer, err := http.Get(c.page + path)
		var body []byte
		if err == nil {
			body, err = io.ReadAll(answer.Body)
			answer.Body.Close()
		}
		if strings.Contains(string(body), text) {
			return
		}
		if time.Since(begin) > 2*time.Minute {
			c.t.Fatalf("GET %s: no %s in %s, %v", path, text, body, err)
		}
	}
}

func (c *child) signal() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGINT); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) code() int {
	c.t.Helper()
	err := c.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return 0
}

func TestSignals(t *testing.T) {
	dev := strings.Fields("dev --memory --log-level error --http 127.0.0.1:0 --nats-addr 127.0.0.1:0 --grace")

	// After one signal it returns its runs at the end of the grace, and exits cleanly.
	c := startChild(t, append(dev, "0s")...)
	c.until("GET", "/readyz", 200)
	c.signal()
	if code := c.code(); code != 0 {
		t.Errorf("after one signal: exit code %d", code)
	}

	// After a second signal during a run it exits at once. Meanwhile /readyz fails.
	c = startChild(t, append(dev, "60s")...)
	c.until("GET", "/readyz", 200)
	c.until("POST", "/api/v1/jobs/demo.report/trigger", 201)
	c.shows("/api/v1/runs?job=demo.report&state=Processing", `"job":"demo.report"`)
	c.until("GET", "/", 200)
	c.signal()
	c.until("GET", "/readyz", 503)
	c.signal()
	if code := c.code(); code != interrupted {
		t.Errorf("after two signals: exit code %d", code)
	}
}
