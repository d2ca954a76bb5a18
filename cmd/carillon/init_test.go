package main

import (
	"context"
	"io"
	"maps"
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

// goIn runs the go command in a project as it is, without the network.
func goIn(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off")
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
	if text := out.String(); !strings.Contains(text, "  jobs_test.go\n") || !strings.Contains(text, "next:\n  cd "+dir+"\n  go test ./...\n") {
		t.Errorf("it printed %s", text)
	}
	goIn(t, dir, "vet", "./...")
	goIn(t, dir, "test", "./...")
	program = filepath.Join(dir, "program")
	goIn(t, dir, "build", "-o", program, ".")
	if formatted, err := exec.CommandContext(t.Context(), "gofmt", "-l", dir).CombinedOutput(); err != nil || len(formatted) > 0 {
		t.Errorf("not formatted: %s (%v)", formatted, err)
	}
	return dir, program
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
	t.Cleanup(p.end)                      // after the worker
	goIn(t, dir, "list", "-deps", "tool") // the server's packages, for its image
	runsProject(t, program, "BUS_ADDRESS="+p.bus)
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

// composeFile is what compose.yaml says, as far as it must fit other files.
type composeFile struct {
	Services map[string]struct {
		Image string
		Build struct{ Dockerfile, Target string }
		Command, Volumes, Ports,
		Secrets []string
		Environment map[string]string
	}
	Volumes map[string]any
}

// What carillon init writes, the chart and the documents fit each other without an edit: names of variables, images,
// directories and addresses.
func TestContainersOfAProject(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "billing")
	if _, err := project.Make(project.Config{Dir: dir, Version: "v1.2.3"}); err != nil {
		t.Fatal(err)
	}
	read := func(path string) string {
		t.Helper()
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	names := func(pattern, text string) (list []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			list = append(list, m[1])
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	var compose composeFile
	text := read(filepath.Join(dir, "compose.yaml"))
	if err := yaml.Unmarshal([]byte(text), &compose); err != nil {
		t.Fatal(err)
	}
	server, worker, database := compose.Services["server"], compose.Services["worker"], compose.Services["postgres"]

	// The variables of a worker.
	reads := names(`os\.Getenv\("(\w+)"\)`, read(filepath.Join(dir, "main.go")))
	workerSettings, serverSettings := []string{}, []string{}
	for _, s := range settings {
		serverSettings = append(serverSettings, s.env())
		if slices.Contains(workerFlags, s.flag) {
			workerSettings = append(workerSettings, s.env())
		}
	}
	chart := names(`- name: ([A-Z_]+)\n`, read("../../deploy/chart/carillon/templates/workers.yaml"))
	for where, sets := range map[string][]string{
		"compose.yaml":  slices.Sorted(maps.Keys(worker.Environment)),
		"the chart":     slices.DeleteFunc(chart, func(name string) bool { return slices.Contains(workerSettings, name) }), // for carillon worker
		"kubernetes.md": names(`os\.Getenv\("(\w+)"\)`, read("../../docs/kubernetes.md")),
		"carillon.yaml": names(`workers connect here: (\w+)`, read(filepath.Join(dir, "carillon.yaml"))),
	} {
		if !slices.Equal(sets, reads) {
			t.Errorf("%s has %q for a worker, main.go reads %q", where, sets, reads)
		}
	}

	// The variables of the server.
	for name := range server.Environment {
		if !slices.Contains(serverSettings, name) {
			t.Errorf("compose.yaml has %s, which is no setting", name)
		}
	}
	outside := names(`\$\{(\w+)[:}]`, text)
	if known := names(`(?m)^#   (\w+)=`, text); !slices.Equal(slices.DeleteFunc(known, func(n string) bool { return n == "COMPOSE_PROFILES" }), outside) {
		t.Errorf("compose.yaml takes %q from outside, and explains %q", outside, known)
	}
	if !strings.Contains(read(filepath.Join(dir, ".gitignore")), "\n.env\n") {
		t.Error(".gitignore has no .env, in which compose.yaml wants a password")
	}

	// Images are built here, of stages that exist, and can write where a volume is.
	build := read(filepath.Join(dir, "Containerfile"))
	for name, s := range compose.Services {
		if len(s.Secrets) > 0 {
			t.Errorf("%s has secrets: files keep their owner, so the container's user cannot read those that only their owner can", name)
		}
		if s.Image == "" && s.Build.Dockerfile != "Containerfile" || strings.Contains(s.Image, "carillon") {
			t.Errorf("%s has image %q, and is built by %q", name, s.Image, s.Build.Dockerfile)
		}
		if s.Build.Target != "" && !strings.Contains(build, " AS "+s.Build.Target+"\n") {
			t.Errorf("Containerfile has no stage %s of %s", s.Build.Target, name)
		}
		for _, v := range s.Volumes {
			volume, at, _ := strings.Cut(v, ":")
			if _, known := compose.Volumes[volume]; !known {
				t.Errorf("%s has volume %s, which is not declared", name, v)
			}
			if s.Image == "" && !strings.Contains(build, "COPY --from=build --chown=65532:65532 /empty "+at+"\n") {
				t.Errorf("%s has volume %s: its image has no such directory for user 65532", name, v)
			}
		}
	}
	if !strings.Contains(read(filepath.Join(dir, "go.mod")), "\ntool "+"github.com/carillon-scheduler/carillon/cmd/carillon\n") {
		t.Error("go.mod does not name the program that Containerfile builds")
	}

	// The server accepts these settings, and the worker gets the address on which it listens.
	if bus := worker.Environment["BUS_ADDRESS"]; bus != "nats://"+server.Environment["CARILLON_NATS_ADDR"] {
		t.Errorf("the worker connects to %s", bus)
	}
	for _, url := range []string{"", strings.Replace(regexp.MustCompile(`#   CARILLON_STORE_URL=(\S+)`).FindStringSubmatch(text)[1], "...", "Passw0rd", 1)} {
		for name, value := range server.Environment {
			t.Setenv(name, value)
		}
		t.Setenv("CARILLON_STORE_URL", url)
		out := newOutput()
		if code := execute(t.Context(), []string{"config", "print"}, out, out); code != 0 || strings.Contains(out.String(), "Passw0rd") {
			t.Errorf("store %q: %d: %s", url, code, out)
		}
	}
	if ports := database.Ports; !slices.Equal(ports, []string{"127.0.0.1:5432:5432"}) || database.Environment["POSTGRES_USER"] != "carillon" {
		t.Errorf("the database: %+v", database)
	}
	if !slices.Equal(server.Command, []string{"server"}) || len(compose.Services) != 3 {
		t.Errorf("%+v", compose)
	}
}
