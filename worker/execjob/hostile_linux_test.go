package execjob

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/execspec"
)

// place makes a file with a script below a folder, and returns its path.
func place(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return file
}

func linked(t *testing.T, target, link string) {
	t.Helper()
	_ = os.Remove(link) // it may be there
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
}

// A pattern may lead through links of the operator, such as /bin and a deployment's current release, also after they
// have moved. A link to a program is a program of its own, allowed by its own name only.
func TestAllowedLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const script = "#!/bin/sh\necho ran\n"
	for _, name := range []string{"releases/1/bin/good", "releases/2/bin/good", "releases/2/bin/new", "usr/tool-2.1", "other/bad"} {
		place(t, dir, name, script, 0o755)
	}
	current := filepath.Join(dir, "current")
	linked(t, "releases/1", current)
	linked(t, "tool-2.1", filepath.Join(dir, "usr/tool"))
	linked(t, filepath.Join(dir, "other/bad"), filepath.Join(dir, "releases/2/bin/link"))
	r, err := New(nil, Config{Allow: []string{current + "/bin/*", filepath.Join(dir, "usr/tool"), filepath.Join(dir, "gone/*")}})
	if err != nil {
		t.Fatal(err)
	}
	try := func(program, code string) {
		t.Helper()
		s := new(sink)
		err := r.run(t.Context(), &execspec.Command{Argv: []string{program}}, attempt, []byte(`{}`), s.logger())
		if codeOf(err) != code || strings.Contains(s.String(), "ran") != (code == "") {
			t.Errorf("%s: %v; log: %s", program, err, s)
		}
	}
	try(current+"/bin/good", "")
	try(filepath.Join(dir, "releases/1/bin/good"), "")
	try(filepath.Join(dir, "releases/2/bin/good"), "not_allowed")
	try(filepath.Join(dir, "usr/tool"), "")
	try(filepath.Join(dir, "usr/tool-2.1"), "not_allowed")
	linked(t, "releases/2", current)
	try(current+"/bin/new", "")
	try(current+"/bin/link", "")
	try(filepath.Join(dir, "releases/1/bin/good"), "not_allowed")
	try(filepath.Join(dir, "other/bad"), "not_allowed")
}

// A relative path is one of the job's directory, not of the worker's.
func TestRelativeProgram(t *testing.T) {
	dir := t.TempDir()
	place(t, dir, "bin/job", "#!/bin/sh\necho \"$0 ran\"\n", 0o755)
	if log, err := run(t.Context(), t, everything, fmt.Sprintf(`{"argv":["bin/job"],"dir":%q}`, dir), `{}`); err != nil || !strings.Contains(log, "ran") {
		t.Errorf("%v; log: %s", err, log)
	}
	t.Chdir(dir)
	for _, program := range []string{"bin/job", "./bin/job"} {
		if _, err := run(t.Context(), t, everything, fmt.Sprintf(`{"argv":[%q]}`, program), `{}`); codeOf(err) != "not_found" || !strings.Contains(err.Error(), "want an absolute path") {
			t.Errorf("%s: %v", program, err)
		}
	}
}

// What cannot start is reported as that, with the directory and the user.
func TestNotStarted(t *testing.T) {
	dir := t.TempDir()
	c := everything
	for name, file := range map[string]string{
		"permission denied": place(t, dir, "plain", "#!/bin/sh\n", 0o644),
		"no such file":      place(t, dir, "strange", "#!/no/such/interpreter\n", 0o755),
		"exec format":       place(t, dir, "binary", "\x7fELF\x00\x01", 0o755),
	} {
		if _, err := run(t.Context(), t, c, fmt.Sprintf(`{"argv":[%q]}`, file), `{}`); codeOf(err) != "not_started" || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, code %q", name, err, codeOf(err))
		}
	}
	if os.Geteuid() != 0 {
		return
	}
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	c.Users = []string{"nobody"}
	_, err := run(t.Context(), t, c, fmt.Sprintf(`{"argv":["/bin/true"],"user":"nobody","dir":%q}`, closed), `{}`)
	if codeOf(err) != "not_started" || !strings.Contains(err.Error(), closed+" as nobody") || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("%v, code %q", err, codeOf(err))
	}
}

// With users, a job without one does not run as root.
func TestUserIsRequired(t *testing.T) {
	if os.Geteuid() != 0 {
		if _, err := run(t.Context(), t, everything, `{"argv":["id"],"user":"root"}`, `{}`); codeOf(err) != "not_allowed" {
			t.Errorf("another user: %v", err)
		}
		return
	}
	c := everything
	c.Users = []string{"nobody"}
	if log, err := run(t.Context(), t, c, `{"argv":["id"]}`, `{}`); codeOf(err) != "not_allowed" || !strings.Contains(err.Error(), "nobody") || log != "" {
		t.Errorf("no user: %v; log: %s", err, log)
	}
	c.Users = []string{"nobody", "root"}
	if _, err := run(t.Context(), t, c, `{"argv":["id"]}`, `{}`); err != nil {
		t.Errorf("root is permitted: %v", err)
	}
	c.Users = nil // the worker's own user, by name
	if log, err := run(t.Context(), t, c, `{"script":"id -un; echo $LOGNAME $HOME","user":"root"}`, `{}`); err != nil || !strings.Contains(log, `"root /`) {
		t.Errorf("its own user: %v; log: %s", err, log)
	}
}

// The job's variables replace those of its user; a directory of the job is not one for temporary files.
func TestVariablesOfTheJob(t *testing.T) {
	dir := t.TempDir()
	log, err := run(t.Context(), t, everything, fmt.Sprintf(`{"script":"echo home $HOME; echo tmp ${TMPDIR-unset}","env":{"HOME":"/srv/app"},"dir":%q}`, dir), `{}`)
	if err != nil || !strings.Contains(log, "home /srv/app") || !strings.Contains(log, "tmp unset") {
		t.Errorf("%v; log: %s", err, log)
	}
	if os.Geteuid() != 0 {
		return
	}
	c := everything
	c.Users = []string{"nobody"}
	if log, err = run(t.Context(), t, c, `{"script":"echo home $HOME","env":{"HOME":"/srv/app"},"user":"nobody"}`, `{}`); err != nil || !strings.Contains(log, "home /srv/app") {
		t.Errorf("%v; log: %s", err, log)
	}
}

// A command is in a session of its own: it cannot ask for passwords on the worker's terminal.
func TestSession(t *testing.T) {
	log, err := run(t.Context(), t, everything, `{"script":"read pid name state parent group session rest </proc/$$/stat; echo $pid $group $session; (: </dev/tty) 2>/dev/null || echo no terminal"}`, `{}`)
	var pid, group, session int
	_, _ = fmt.Sscanf(log, `level=INFO msg="%d %d %d`, &pid, &group, &session) // zeros fail
	if err != nil || pid == 0 || group != pid || session != pid || !strings.Contains(log, "no terminal") {
		t.Errorf("%v; log: %s", err, log)
	}
}

// A signal without a name has its number.
func TestSignalWithoutName(t *testing.T) {
	if _, err := run(t.Context(), t, everything, `{"script":"kill -36 $$; sleep 600"}`, `{}`); codeOf(err) != "signal_36" {
		t.Errorf("%v, code %q", err, codeOf(err))
	}
	if _, err := run(t.Context(), t, everything, `{"script":"ulimit -c unlimited; kill -ABRT $$"}`, `{}`); codeOf(err) != "signal_SIGABRT" {
		t.Errorf("%v, code %q", err, codeOf(err))
	}
}

// A process that left the session keeps the output open: the command has ended all the same, with its own exit code.
func TestPipesKeptOpen(t *testing.T) {
	for _, code := range []int{0, 3} {
		log, err := run(t.Context(), t, everything, fmt.Sprintf(`{"script":"setsid sh -c 'echo \"pid $$\"; echo >ready; exec sleep 600' & until [ -s ready ]; do :; done; exit %d"}`, code), `{}`)
		if (err == nil) != (code == 0) || code > 0 && codeOf(err) != "exit_3" {
			t.Errorf("%v; log: %s", err, log)
		}
		pid := 0
		if _, err := fmt.Sscanf(log, `level=INFO msg="pid %d`, &pid); err != nil {
			t.Fatalf("%v: %s", err, log)
		}
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill() // without a cgroup, it lives on
		}
	}
}

// Arguments that the command does not read do not hold it up.
func TestInputNotRead(t *testing.T) {
	args := `{"text":"` + strings.Repeat("x", 250<<10) + `"}`
	for _, command := range []string{`{"script":"echo done"}`, `{"script":"exec <&-; sleep 1; echo done"}`, `{"script":"head -c 1 >/dev/null; echo done"}`} {
		if log, err := run(t.Context(), t, everything, command, args); err != nil || !strings.Contains(log, "msg=done") {
			t.Errorf("%s: %v; log: %.200s", command, err, log)
		}
	}
}

// Output of any size and kind becomes lines of a bounded length, without a character that is cut.
func TestLargeOutput(t *testing.T) {
	log, err := run(t.Context(), t, everything, `{"script":"printf x; yes é | head -n 30001 | tr -d '\\n'; echo; head -c 3000000 /dev/urandom; printf '\\000\\033[31m last'; printf 'a\\000b' >&2; exit 4"}`, `{}`)
	if codeOf(err) != "exit_4" || !strings.HasSuffix(err.Error(), "exit code 4: a\uFFFDb") {
		t.Errorf("%.200q", err)
	}
	n := 0
	for line := range strings.Lines(log) {
		if strings.Contains(line, "ééé") {
			n += strings.Count(line, "é")
			if strings.Contains(line, "\uFFFD") {
				t.Errorf("a character is cut: %.100q", line)
			}
		}
	}
	if n != 30001 {
		t.Errorf("%d characters of 30001", n)
	}
	l := &lines{runLog: slog.New(slog.DiscardHandler)}
	for range 100 {
		_, _ = l.Write(make([]byte, 1<<20)) // it cannot fail
	}
	if len(l.rest) > longestLine || cap(l.tail) > 4<<20 {
		t.Errorf("%d bytes are kept of a line, and %d of the end", len(l.rest), cap(l.tail))
	}
}

// A worker that ends although a command has not, ends all processes of the command.
func TestClose(t *testing.T) {
	r, err := New(nil, everything)
	if err != nil {
		t.Fatal(err)
	}
	s := &sink{got: make(chan string, 100)}
	done := make(chan error, 1)
	go func() {
		done <- r.run(t.Context(), &execspec.Command{Script: `trap "" TERM; sh -c 'trap "" TERM; echo "pid $$"; sleep 600; :' & wait`}, attempt, []byte(`{}`), s.logger())
	}()
	pid := 0
	for pid == 0 {
		_, _ = fmt.Sscanf(<-s.got, "level=INFO msg=\"pid %d", &pid) // another line
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; codeOf(err) != "signal_SIGKILL" || alive(pid) {
		t.Errorf("%v", err)
	}
}

// A command that starts while the runner is closed is killed, too.
func TestStartedAtClose(t *testing.T) {
	r, err := New(nil, everything)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s := &sink{got: make(chan string, 100)}
	if err := r.run(ctx, &execspec.Command{Script: `sleep 600`}, attempt, []byte(`{}`), s.logger()); codeOf(err) != "signal_SIGKILL" {
		t.Errorf("%v", err)
	}
}

// A variable that loads code reaches no program that is on the list.
func TestVariablesThatLoadCode(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	good := place(t, dir, "good", "#!/bin/sh\necho ran\n", 0o755)
	c := Config{Allow: []string{filepath.Join(dir, "*")}}
	for _, name := range []string{"BASH_ENV", "ENV", "IFS", "PATH", "PYTHONSTARTUP", "PYTHONPATH", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT", "GIT_SSH_COMMAND", "GCONV_PATH", "JAVA_TOOL_OPTIONS", "PS4",
		"SHELLOPTS", "BASH_FUNC_echo%%", "HOME", "TMPDIR"} {
		log, err := run(t.Context(), t, c, fmt.Sprintf(`{"argv":[%q],"env":{%q:"x"}}`, good, name), `{}`)
		if codeOf(err) != "not_allowed" || !strings.Contains(err.Error(), name) || strings.Contains(log, "ran") {
			t.Errorf("%s: %v; log: %s", name, err, log)
		}
	}
	// Arguments become variables of their own names only.
	log, err := run(t.Context(), t, Config{Allow: []string{"*"}}, `{"argv":["env"]}`, `{"BASH_ENV":"x","PATH":"y","=":"z","A=B":"c","a\nb":"d","":"e","LD_PRELOAD":"f"}`)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(log) {
		if name, _, _ := strings.Cut(strings.Trim(strings.TrimPrefix(line, "level=INFO msg="), "\"\n"), "="); !strings.HasPrefix(name, "CARILLON_") && name != "PATH" && name != "HOME" && name != "LANG" && name != "TZ" && name != "TMPDIR" {
			t.Errorf("an argument became a variable: %s", line)
		}
	}
}

// One file may have many names, and does by each what it says, as busybox and the commands of PostgreSQL on Debian do. A
// name that is allowed permits no other, and is the one that runs, also within limits.
func TestProgramWithManyNames(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	box := place(t, dir, "box/box", "#!/bin/sh\necho \"${0##*/} ran\"\n", 0o755)
	for _, name := range []string{"date", "sh"} {
		linked(t, box, filepath.Join(dir, "box", name))
	}
	date := filepath.Join(dir, "box/date")
	c := Config{Allow: []string{date}}
	for argv, want := range map[string]string{
		fmt.Sprintf(`{"argv":[%q]}`, date):                          "date ran",
		fmt.Sprintf(`{"argv":[%q],"limits":{"files":50}}`, date):    "date ran",
		fmt.Sprintf(`{"argv":[%q]}`, dir+"/box/../box/./date"):      "date ran",
		fmt.Sprintf(`{"argv":["./date"],"dir":%q}`, dir+"/box"):     "date ran",
		fmt.Sprintf(`{"argv":[%q,"-c","echo ran"]}`, dir+"/box/sh"): "",
		fmt.Sprintf(`{"argv":[%q,"sh"]}`, box):                      "",
		fmt.Sprintf(`{"argv":[%q]}`, date+"/"):                      "",
		fmt.Sprintf(`{"argv":[%q]}`, dir+"/box/sh/../date"):         "",
	} {
		log, err := run(t.Context(), t, c, argv, `{}`)
		if want == "" && (err == nil || strings.Contains(log, "ran")) || want != "" && (err != nil || !strings.Contains(log, want)) {
			t.Errorf("%s: %v; log: %s", argv, err, log)
		}
	}
}

// A link to a folder that is moved between check and start leads nowhere else: what starts is what was checked.
func TestReplacedLink(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	good := place(t, dir, "jobs/good", "#!/bin/sh\necho good\n", 0o755)
	bad := place(t, dir, "other/good", "#!/bin/sh\necho bad\n", 0o755)
	link := filepath.Join(dir, "link")
	linked(t, filepath.Dir(good), link)
	r, err := New(nil, Config{Allow: []string{filepath.Join(dir, "jobs/*")}})
	if err != nil {
		t.Fatal(err)
	}
	file, _, err := r.program(&execspec.Command{Argv: []string{link + "/good"}})
	linked(t, filepath.Dir(bad), link)
	if err != nil || file != good {
		t.Errorf("%s, %v", file, err)
	}
	stop := make(chan bool)
	swapped := make(chan error, 1)
	go func() {
		other := filepath.Join(dir, "new")
		for i := 0; ; i++ {
			select {
			case <-stop:
				swapped <- nil
				return
			default:
			}
			target := good
			if i%2 == 0 {
				target = bad
			}
			if err := errors.Join(os.Symlink(filepath.Dir(target), other), os.Rename(other, link)); err != nil {
				swapped <- err
				return
			}
		}
	}()
	n := map[string]int{}
	for range 50 {
		s := new(sink)
		err := r.run(t.Context(), &execspec.Command{Argv: []string{link + "/good"}}, attempt, []byte(`{}`), s.logger())
		if strings.Contains(s.String(), "bad") {
			t.Fatal("the other program ran")
		}
		n[codeOf(err)]++
	}
	close(stop)
	if err := <-swapped; err != nil {
		t.Error(err)
	}
	t.Log(strconv.Itoa(n[""])+" ran, refused:", n["not_allowed"])
}
