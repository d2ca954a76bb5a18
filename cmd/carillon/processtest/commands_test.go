//go:build unix

package processtest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/tests"
)

// hireExec starts a worker of commands.
func (h *fixture) hireExec(name string, flags ...string) *process {
	h.t.Helper()
	path, err := carillonProgram()
	if err != nil {
		h.t.Fatal(err)
	}
	p := start(h.t, "carillon worker "+name, path, nil, append([]string{"worker", "--exec", "--name", name, "--nats", "nats://" + h.nats}, flags...)...)
	h.known(p)
	return p
}

// command creates a job that is a command, and triggers it.
func (h *fixture) command(key, exec, more string) (run string) {
	h.t.Helper()
	h.do(http.MethodPost, "/api/v1/jobs", fmt.Sprintf(`{"key":%q,"kind":"triggered","app":"exec","exec":%s%s}`, key, exec, more))
	return decode[api.Run](h.t, h.do(http.MethodPost, "/api/v1/jobs/"+key+"/trigger", `{}`)).ID
}

// log is the text of a run's log.
func (h *fixture) log(id string) string {
	h.t.Helper()
	var text strings.Builder
	for _, l := range get[list[api.LogLine]](h, "/api/v1/runs/"+id+"/log").Items {
		fmt.Fprintln(&text, l.Text)
	}
	return text.String()
}

// Workers run the commands that they allow, and refuse others, which the run states; a command ends with its run and
// with its worker.
func TestCommands(t *testing.T) {
	tests.Long(t)
	h := newFixture(t, "")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pids := filepath.Join(dir, "pids")
	for name, text := range map[string]string{
		"jobs/hello":    `echo "hello $CARILLON_JOB"; echo warning >&2`,
		"jobs/stubborn": `trap "" TERM; sh -c 'trap "" TERM; echo $$ >>` + pids + `; echo started; sleep 600; :' & wait`,
		"other/secret":  `echo secret`,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	allow := filepath.Join(dir, "jobs/*")
	first := h.hireExec("w1", "--exec-allow", allow, "--tags", "db", "--grace", "1s")
	h.hireExec("w2", "--exec-allow", allow)

	id := h.command("hello", fmt.Sprintf(`{"argv":[%q]}`, dir+"/jobs/hello"), "")
	h.reaches(id, "Succeeded", 1)
	await(t, "the log of the run is there", func() bool { return strings.Contains(h.log(id), "hello hello\n") })

	in := h.reaches(h.command("secret", fmt.Sprintf(`{"argv":[%q]}`, dir+"/jobs/../other/secret"), ""), "Terminated", 1)
	if in.Code != "not_allowed" || !strings.Contains(in.Error, dir+"/other/secret is not allowed on this worker") || strings.Contains(h.log(in.ID), "secret\n") {
		t.Errorf("%+v", in)
	}
	in = h.reaches(h.command("script", `{"script":"echo secret"}`, ""), "Terminated", 1)
	if in.Code != "not_allowed" || !strings.Contains(in.Error, "--exec-shell") {
		t.Errorf("%+v", in)
	}

	// On one of those with a tag, and on every host.
	in = h.reaches(h.command("tagged", fmt.Sprintf(`{"argv":[%q]}`, dir+"/jobs/hello"), `,"needs":["db"]`), "Succeeded", 1)
	if !strings.HasPrefix(in.Worker, "w1") {
		t.Errorf("it ran on %s", in.Worker)
	}
	h.command("everywhere", fmt.Sprintf(`{"argv":[%q]}`, dir+"/jobs/hello"), `,"route":"broadcast"`)
	await(t, "the command has run on both workers", func() bool {
		ran := map[string]bool{}
		for _, r := range get[list[api.Run]](h, "/api/v1/runs?job=everywhere").Items {
			if r.State == "Succeeded" {
				ran[r.Worker] = true
			}
		}
		return len(ran) == 2
	})

	// A command that ignores SIGTERM ends all the same: with its run, and with its worker.
	stubborn := fmt.Sprintf(`{"argv":[%q],"killAfter":%%q}`, dir+"/jobs/stubborn")
	id = h.command("cancelled", fmt.Sprintf(stubborn, "100ms"), `,"needs":["db"]`)
	h.has(id)
	h.do(http.MethodPost, "/api/v1/runs/"+id+"/cancel", `{}`)
	h.reaches(id, "Cancelled", 1)
	gone(t, pids, 1)
	id = h.command("timedout", fmt.Sprintf(stubborn, "100ms"), `,"needs":["db"],"timeout":"2s"`)
	if in := h.reaches(id, "Terminated", 1); in.Code != "timeout" {
		t.Errorf("%+v", in)
	}
	gone(t, pids, 2)
	id = h.command("left", fmt.Sprintf(stubborn, "10m"), `,"needs":["db"]`)
	h.has(id)
	first.signal(t, syscall.SIGTERM)
	first.ends(t)
	gone(t, pids, 3)
}

// gone waits until the n-th process that wrote its number into a file is gone.
func gone(t *testing.T, file string, n int) {
	t.Helper()
	raw, err := os.ReadFile(file)
	numbers := strings.Fields(string(raw))
	if err != nil || len(numbers) != n {
		t.Fatalf("%q, %v: want %d processes", numbers, err, n)
	}
	pid, err := strconv.Atoi(numbers[n-1])
	if err != nil {
		t.Fatal(err)
	}
	await(t, "process "+numbers[n-1]+" is gone", func() bool { return !alive(pid) })
}

// alive reports whether a process runs: one that has ended may wait for init, which this machine may lack.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}
