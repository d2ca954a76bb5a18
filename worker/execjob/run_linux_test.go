package execjob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-scheduler/carillon/execspec"
	"github.com/carillon-scheduler/carillon/internal/outcome"
	"github.com/carillon-scheduler/carillon/jobs"
)

// sink is the log of a run.
type sink struct {
	mu   sync.Mutex
	text bytes.Buffer
	got  chan string // each line, if it is not nil
}

func (s *sink) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.got != nil {
		s.got <- string(b)
	}
	return s.text.Write(b)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *sink) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

var everything = Config{Allow: []string{"*"}, Shell: "/bin/sh"}

var attempt = jobs.AttemptInfo{Key: "ops.backup", Number: 2, Due: time.Date(2026, 11, 24, 2, 30, 0, 0, time.UTC), Index: 1, Total: 3}

// run runs a command in JSON, and returns its error and its log.
func run(ctx context.Context, t *testing.T, c Config, command, args string) (string, error) {
	t.Helper()
	r, err := New(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := execspec.Parse([]byte(command))
	if err != nil {
		t.Fatal(err)
	}
	s := new(sink)
	err = r.run(ctx, parsed, attempt, []byte(args), s.logger())
	return s.String(), errors.Join(err, r.Close())
}

func codeOf(err error) string { return outcome.CodeOf(err) }

func TestOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		command string
		code    string // "" = success
		error   string
		noRetry bool
		snooze  bool
	}{
		"success":               {`{"argv":["true"]}`, "", "", false, false},
		"output and success":    {`{"script":"echo out; echo err >&2"}`, "", "", false, false},
		"an exit code":          {`{"script":"echo first >&2; echo no such customer >&2; exit 3"}`, "exit_3", "exit code 3: no such customer", false, false},
		"no retry":              {`{"script":"exit 64","noRetry":[64,65]}`, "exit_64", "exit code 64", true, false},
		"later":                 {`{"script":"exit 75","snooze":[75]}`, "", "", false, true},
		"a signal":              {`{"script":"kill -SEGV $$"}`, "signal_SIGSEGV", "ended by signal SIGSEGV", false, false},
		"no such program":       {`{"argv":["no-such-program"]}`, "not_found", "is not in the PATH", false, false},
		"no such file":          {`{"argv":["/no/such/program"]}`, "not_found", "is not on this host", false, false},
		"no such directory":     {`{"argv":["true"],"dir":"/no/such/directory"}`, "not_found", "/no/such/directory: no such", false, false},
		"no directory":          {`{"argv":["true"],"dir":"/etc/passwd"}`, "not_found", "/etc/passwd is not a directory", false, false},
		"what it leaves behind": {`{"script":"sleep 600 & echo started"}`, "", "", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			log, err := run(t.Context(), t, everything, c.command, `{}`)
			if (err == nil) != (c.code == "" && c.error == "" && !c.snooze) || codeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.error) {
				t.Errorf("%v, code %q; log: %s", err, codeOf(err), log)
			}
			if got := outcome.IsFinal(err); got != c.noRetry {
				t.Errorf("no retry is %v", got)
			}
			if _, got := outcome.Snoozed(err); got != c.snooze {
				t.Errorf("snoozed is %v: %v", got, err)
			}
		})
	}
}

// The output is the log of the run, line by line, as text.
func TestOutput(t *testing.T) {
	log, _ := run(t.Context(), t, everything, `{"script":"printf 'one\\ntwo\\r\\nthr'; printf 'ee\\n'; printf 'bad \\377 byte\\n' >&2; printf '%9000d\\nend' 7"}`, `{}`)
	for _, want := range []string{"msg=one\n", "msg=two\n", "msg=three", "stream=stderr", "bad \uFFFD byte", "msg=end"} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in %.300q", want, log)
		}
	}
	for line := range strings.Lines(log) {
		if len(line) > longestLine+100 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}

func TestInput(t *testing.T) {
	args := `{"customer":"c 7;$(id)","order-no":12345678901234567890,"gift":true,"items":["a"]}`
	log, err := run(t.Context(), t, everything, `{"script":"cat; echo; env; pwd","env":{"GREETING":"hello"}}`, args)
	if err != nil {
		t.Fatal(err)
	}
	quoted := func(s string) string { return strings.Trim(strconv.Quote(s), `"`) }
	for _, want := range []string{quoted(args), "CARILLON_JOB=ops.backup", "CARILLON_ATTEMPT=2", "CARILLON_DUE=2026-11-24T02:30:00Z", "CARILLON_INDEX=1", "CARILLON_TOTAL=3",
		"CARILLON_ARG_CUSTOMER=c 7;$(id)", "CARILLON_ARG_ORDER_NO=12345678901234567890", "CARILLON_ARG_GIFT=true", "GREETING=hello"} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in %s", want, log)
		}
	}
	if strings.Contains(log, "CARILLON_ARG_ITEMS") {
		t.Error("a list became a variable")
	}
	log, _ = run(t.Context(), t, everything, `{"argv":["cat"],"stdin":"none"}`, args)
	if log != "" {
		t.Errorf("stdin none: %s", log)
	}
}

// A command gets nothing of the worker's environment but what is named, and a directory of its own, which is removed.
func TestEnvironment(t *testing.T) {
	t.Setenv("CARILLON_TOKEN", "secret-1")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-2")
	t.Setenv("AWS_PROFILE", "backup")
	c := everything
	c.Pass = []string{"AWS_PROFILE"}
	log, _ := run(t.Context(), t, c, `{"script":"env; pwd; touch here; ls -d /proc/self/fd/* | wc -l"}`, `{}`)
	if strings.Contains(log, "secret-") || !strings.Contains(log, "AWS_PROFILE=backup") {
		t.Errorf("the environment is %s", log)
	}
	i := strings.Index(log, "TMPDIR=")
	dir, _, _ := strings.Cut(log[i+len("TMPDIR="):], "\"")
	if _, err := os.Stat(dir); !strings.Contains(log, "msg="+dir) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory %s: %v", dir, err)
	}
}

// What may run is decided by the worker; links to folders, the PATH and relative paths lead to nothing else.
func TestAllowed(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"jobs", "jobs/deep", "other"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"jobs/good", "jobs/deep/good", "other/bad"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("#!/bin/sh\necho ran\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "other/bad"), filepath.Join(dir, "jobs/link")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(dir, "jobs")+":"+os.Getenv("PATH"))
	c := Config{Allow: []string{filepath.Join(dir, "jobs/*")}}
	for program, code := range map[string]string{
		filepath.Join(dir, "jobs/good"): "",
		"good":                          "",
		filepath.Join(dir, "jobs/./../jobs/good"):    "",
		filepath.Join(dir, "jobs/deep/good"):         "not_allowed",
		filepath.Join(dir, "jobs/link"):              "", // a program by its own name
		"link":                                       "",
		filepath.Join(dir, "jobs") + "/../other/bad": "not_allowed",
		"sh":      "not_allowed",
		"/bin/sh": "not_allowed",
	} {
		log, err := run(t.Context(), t, c, fmt.Sprintf(`{"argv":[%q]}`, program), `{}`)
		if codeOf(err) != code || strings.Contains(log, "ran") != (code == "") {
			t.Errorf("%s: %v; log: %s", program, err, log)
		}
	}
	// A variable makes bash run what it contains.
	hostile := fmt.Sprintf(`{"argv":[%q],"env":{"BASH_ENV":"$(echo ran >&2)"}}`, filepath.Join(dir, "jobs/good"))
	if log, err := run(t.Context(), t, c, hostile, `{}`); codeOf(err) != "not_allowed" || strings.Contains(log, "ran") {
		t.Errorf("a variable: %v; log: %s", err, log)
	}
	c.Env = []string{"GREETING"}
	if _, err := run(t.Context(), t, c, strings.Replace(hostile, "BASH_ENV", "GREETING", 1), `{}`); err != nil {
		t.Errorf("a variable that is allowed: %v", err)
	}
	if _, err := run(t.Context(), t, c, `{"script":"echo ran"}`, `{}`); codeOf(err) != "not_allowed" {
		t.Errorf("a script without a shell: %v", err)
	}
	if _, err := run(t.Context(), t, everything, `{"argv":["id"],"user":"nobody"}`, `{}`); codeOf(err) != "not_allowed" {
		t.Errorf("a user that is not allowed: %v", err)
	}
	for _, bad := range []Config{{}, {Allow: []string{"backup"}}, {Allow: []string{"/opt/["}}, {Shell: "sh"}, {Shell: "/no/such/shell"}, {Allow: []string{"jobs/*"}}} {
		if _, err := New(nil, bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestUser(t *testing.T) {
	c := everything
	c.Users = []string{"nobody"}
	if os.Geteuid() != 0 { // then the worker cannot become another user
		if _, err := New(nil, c); err == nil {
			t.Error("users are accepted without root")
		}
		return
	}
	log, err := run(t.Context(), t, c, `{"script":"id -un; id -G; touch mine && echo $USER wrote","user":"nobody"}`, `{}`)
	if err != nil || !strings.Contains(log, "msg=nobody\n") || !strings.Contains(log, "nobody wrote") || strings.Contains(log, `msg=0`) || strings.Contains(log, `msg="0 `) {
		t.Errorf("%v; log: %s", err, log)
	}
}

// Limits hold from the first instruction on.
func TestLimits(t *testing.T) {
	log, err := run(t.Context(), t, everything, `{"script":"ulimit -v; ulimit -t; ulimit -f; ulimit -n","limits":{"memory":1073741824,"cpu":60,"fileSize":1048576,"files":64}}`, `{}`)
	for _, want := range []string{"msg=1048576", "msg=60", "msg=2048", "msg=64"} {
		if err != nil || !strings.Contains(log, want) {
			t.Errorf("%v: no %s in %s", err, want, log)
		}
	}
	_, err = run(t.Context(), t, everything, `{"argv":["dd","if=/dev/zero","of=big","bs=65536","count=100"],"limits":{"fileSize":1048576}}`, `{}`)
	if err == nil {
		t.Error("a file grew beyond its limit")
	}
}

// Every process of a command ends when its run does: those that ignore SIGTERM, too, and those of its shells.
func TestEnd(t *testing.T) {
	for name, c := range map[string]struct{ script, killAfter, log string }{
		"it ends by itself":     {`trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 1; done`, "10m", "msg=bye"},
		"it ignores SIGTERM":    {`trap '' TERM; sleep 600 & echo "pid $!"; echo ready; wait; sleep 600`, "100ms", "it is killed"},
		"a process of a shell":  {`sh -c 'trap "" TERM; echo "pid $$"; echo ready; sleep 600' & wait`, "10m", "SIGTERM"},
		"it closes its streams": {`echo ready; exec sleep 600 >&- 2>&- <&-`, "10m", "SIGTERM"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			r, err := New(nil, everything)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := json.Marshal(execspec.Command{Script: c.script, KillAfter: c.killAfter})
			parsed, err := execspec.Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			s := &sink{got: make(chan string, 100)}
			done := make(chan error, 1)
			go func() { done <- r.run(ctx, parsed, attempt, []byte(`{}`), s.logger()) }()
			pid := 0
			for line := range s.got {
				fmt.Sscanf(line, "level=INFO msg=\"pid %d", &pid)
				if strings.Contains(line, "ready") {
					break
				}
			}
			gone := errors.New("the timeout of the attempt")
			cancel(gone)
			err = <-done
			if !strings.Contains(s.String(), c.log) || err != nil && !errors.Is(err, gone) {
				t.Errorf("%v; log: %s", err, s)
			}
			if pid > 0 && alive(pid) {
				t.Errorf("process %d is still there", pid)
			}
		})
	}
}

// What a command leaves behind ends with it.
func TestLeftBehind(t *testing.T) {
	log, err := run(t.Context(), t, everything, `{"script":"sleep 600 & echo $!"}`, `{}`)
	_, text, _ := strings.Cut(strings.TrimSpace(log), "msg=")
	pid, parseErr := strconv.Atoi(text)
	if err != nil || parseErr != nil {
		t.Fatalf("%v, %v: %s", err, parseErr, log)
	}
	if alive(pid) {
		t.Errorf("process %d is still there", pid)
	}
}

// A command ends when its worker is killed: another worker may run it again.
func TestKilledWorker(t *testing.T) {
	if os.Getenv("CARILLON_TEST_WORKER") != "" { // the worker
		_, err := run(t.Context(), t, everything, `{"argv":["sh","-c","echo $$ > $0; exec sleep 600",`+strconv.Quote(os.Getenv("CARILLON_TEST_WORKER"))+`]}`, `{}`)
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pid")
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	worker := exec.Command(os.Args[0], "-test.run=^TestKilledWorker$")
	worker.Env = append(os.Environ(), "CARILLON_TEST_WORKER="+file)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file) // waits for the command
	pid, parseErr := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || parseErr != nil {
		t.Fatalf("%v, %v: %q", err, parseErr, text)
	}
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = worker.Wait() // killed
	if alive(pid) {
		t.Errorf("process %d is still there", pid)
	}
}

// alive reports whether a process that is to be gone still runs, after some patience.
func alive(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(2*time.Minute/time.Millisecond))
	return n == 0 || err != nil
}

// A command is that of the job as it is now, also if a store that was restored gives its revision again, and never that
// of another job of its key: of another tenant, or one that was created when the former job had been deleted. A run that
// outlives its job has the last command that was read. One whose command cannot be read now waits.
func TestCommandOfASuccessor(t *testing.T) {
	type read struct {
		raw string
		job jobs.ID
		err error
	}
	var now read
	r, err := New(func(context.Context, jobs.Tenant, jobs.Key) ([]byte, jobs.ID, error) {
		return []byte(now.raw), now.job, now.err
	}, everything)
	if err != nil {
		t.Fatal(err)
	}
	said := func(text string) string { return `{"argv":["echo","` + text + `"]}` }
	at := jobs.AttemptInfo{Tenant: "acme", Key: "backup", Job: jobs.ID{1}, Revision: 7}
	successor, other := at, at
	successor.Job, successor.Revision = jobs.ID{2}, 1
	other.Tenant, other.Job = "umbrella", jobs.ID{3}
	gone := &outcome.Refusal[jobs.Code]{Code: jobs.NotFound, Text: "there is no job"}
	for _, step := range []struct {
		name string
		read
		at   jobs.AttemptInfo
		want string // "" = none
	}{
		{"first", read{said("lost"), at.Job, nil}, at, "lost"},
		{"restored, of the same revision", read{said("own"), at.Job, nil}, at, "own"},
		{"away", read{err: &outcome.Refusal[jobs.Code]{Code: jobs.Unavailable, Text: "no node leads"}}, at, ""},
		{"deleted", read{err: gone}, at, "own"},
		{"created again", read{said("successor"), successor.Job, nil}, at, "own"},
		{"its successor", read{said("successor"), successor.Job, nil}, successor, "successor"},
		{"of another tenant", read{said("own"), at.Job, nil}, other, ""},
		{"of another tenant, gone", read{err: gone}, other, ""},
	} {
		now = step.read
		switch c, err := r.command(t.Context(), step.at); {
		case step.want == "":
			if snoozes := errors.Is(err, jobs.Snooze(unread)); err == nil || snoozes != (step.name == "away") {
				t.Errorf("%s: %v, %v", step.name, c, err)
			}
		case err != nil || c.Argv[1] != step.want:
			t.Errorf("%s: %v, %v, want %s", step.name, c, err, step.want)
		}
	}
}
