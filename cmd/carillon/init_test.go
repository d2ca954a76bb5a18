package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/carillon-scheduler/carillon/cmd/carillon/project"
	"github.com/carillon-scheduler/carillon/internal/tests"
)

// goIn runs the go command in a project, without the network: the modules are here, since this test was built of them.
func goIn(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -mod=mod"), "GOPROXY=off", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
}

// newProject makes a project with carillon init, and builds and tests it.
func newProject(t *testing.T, name string, args ...string) (dir, program string) {
	t.Helper()
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), name)
	out := newOutput()
	if code := execute(t.Context(), append([]string{"init", dir, "--replace", checkout}, args...), out, out); code != 0 {
		t.Fatalf("%d: %s", code, out)
	}
	if text := out.String(); !strings.Contains(text, "  jobs_test.go\n") || !strings.Contains(text, "next:\n  cd "+dir+"\n  go mod tidy && go test ./...\n") {
		t.Errorf("it printed %s", text)
	}
	copyModules(t, checkout, dir)
	goIn(t, dir, "vet", "./...")
	goIn(t, dir, "test", "./...")
	program = filepath.Join(dir, "program")
	goIn(t, dir, "build", "-o", program, ".")
	if formatted, err := exec.CommandContext(t.Context(), "gofmt", "-l", dir).CombinedOutput(); err != nil || len(formatted) > 0 {
		t.Errorf("not formatted: %s (%v)", formatted, err)
	}
	return dir, program
}

// copyModules gives a project what go mod tidy would: the indirect requirements and the checksums of this module.
func copyModules(t *testing.T, checkout, dir string) {
	t.Helper()
	sum, err := os.ReadFile(filepath.Join(checkout, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile(filepath.Join(checkout, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile(`(?ms)^require \($.*?^\)$`).FindAll(ours, -1) {
		theirs = append(append(theirs, '\n'), append(block, '\n')...)
	}
	for name, text := range map[string][]byte{"go.mod": theirs, "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// runsProject runs a project's program, and stops it as Ctrl-C would at the end of the test: it must end cleanly.
func runsProject(t *testing.T, program string, env ...string) *output {
	t.Helper()
	out := newOutput()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		kill := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the program ended with %v: %s", err, out)
		}
	})
	return out
}

// A new worker compiles, passes its tests, and runs its jobs for a server. Its files of jobs and settings are valid.
func TestInit(t *testing.T) {
	tests.WithoutRace(t)
	dir, program := newProject(t, "Billing_2", "--module", "example.com/shop/billing")
	p := start(t, "server", "--data", t.TempDir(), "--http", "127.0.0.1:0", "--nats-addr", "127.0.0.1:0")
	t.Cleanup(p.end) // after the worker
	runsProject(t, program, "CARILLON_NATS_URL="+p.bus)
	p.get("/api/v1/jobs/billing.greet", ok)
	p.post("/api/v1/jobs/billing.tidy/trigger", `{}`)
	p.post("/api/v1/jobs/billing.greet/trigger", `{"args":{"name":"Ann"}}`)
	p.get("/api/v1/runs?job=billing.greet&state=Succeeded", contains("Succeeded"))
	p.get("/api/v1/runs?job=billing.tidy&state=Succeeded", contains("Succeeded"))

	for _, args := range [][]string{{"apply", "-f", filepath.Join(dir, "jobs.yaml"), "--server", p.page}, {"config", "print", "--config", filepath.Join(dir, "carillon.yaml")}} {
		out := newOutput()
		if code := execute(t.Context(), args, out, out); code != 0 {
			t.Errorf("%v: %d: %s", args, code, out)
		}
	}
	// With the comments removed, it is valid, too.
	raw, err := os.ReadFile(filepath.Join(dir, "carillon.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(t.TempDir(), "full.yaml")
	if err := os.WriteFile(full, regexp.MustCompile(`(?m)^# ( *[a-z-]+:)`).ReplaceAll(raw, []byte("$1")), 0o600); err != nil {
		t.Fatal(err)
	}
	out := newOutput()
	if code := execute(t.Context(), []string{"config", "print", "--config", full}, out, out); code != 0 || !strings.Contains(out.String(), "jobs.yaml") {
		t.Errorf("%d: %s", code, out)
	}
}

// A new program with a scheduler compiles, passes its tests, and runs its jobs.
func TestInitEmbed(t *testing.T) {
	tests.Long(t) // links all of a scheduler twice
	tests.WithoutRace(t)
	dir, program := newProject(t, "shop", "--embed")
	out := runsProject(t, program, "HTTP_ADDR=127.0.0.1:0", "DATA_DIR="+filepath.Join(dir, "data"))
	address := regexp.MustCompile(`(http://\S+)/jobs/\n`)
	for !address.MatchString(out.String()) {
		select {
		case <-out.more:
		case <-time.After(20 * time.Second):
			t.Fatalf("it prints no address: %s", out)
		}
	}
	page := address.FindStringSubmatch(out.String())[1]
	answer, err := http.PostForm(page+"/greet", map[string][]string{"name": {"Ann"}})
	if err != nil {
		t.Fatal(err)
	}
	id, err := io.ReadAll(answer.Body)
	if answer.Body.Close(); err != nil || answer.StatusCode != 200 {
		t.Fatalf("%s %s %v", answer.Status, id, err)
	}
	for last := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		answer, err := http.Get(page + "/jobs/api/v1/runs/" + strings.TrimSpace(string(id)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if strings.Contains(string(body), `"Succeeded"`) {
			break
		}
		if time.Now().After(last) {
			t.Fatalf("%s: %s %v", answer.Status, body, err)
		}
	}
}

// The settings in a project's compose.yaml are those of the program.
func TestComposeOfAProject(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "billing")
	if _, err := project.Make(project.Config{Dir: dir, Version: "v1.2.3"}); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Environment map[string]string
			Command     []string
		}
		Volumes, Secrets map[string]any
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	if s := file.Services["server"]; len(file.Services) != 3 || !slices.Equal(s.Command, []string{"server"}) || len(s.Environment) == 0 {
		t.Errorf("%+v", file)
	}
	var known []string
	for _, s := range settings {
		known = append(known, s.env())
	}
	for _, name := range regexp.MustCompile(`CARILLON_[A-Z_]+`).FindAllString(string(raw), -1) {
		if !slices.Contains(known, name) {
			t.Errorf("compose.yaml has %s, which is no setting", name)
		}
	}
	main, err := os.ReadFile(filepath.Join(dir, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range file.Services["worker"].Environment {
		if !strings.Contains(string(main), name) {
			t.Errorf("compose.yaml has %s for the worker, which main.go does not read", name)
		}
	}
}
