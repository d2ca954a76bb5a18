//go:build unix

package processtest

import (
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/internal/tests"
)

// TestHTTPJobsPage runs the commands of the example in docs/http.md.
func TestHTTPJobsPage(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		tests.Missing(t, err.Error())
	}
	page, err := os.ReadFile("../../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## An example\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1)
	path, err := carillonProgram()
	if err != nil {
		t.Fatal(err)
	}
	service, err := build("exports", "../../../examples/exports")
	if err != nil {
		t.Fatal(err)
	}
	h, target, nats := &fixture{t: t, http: freeport.Address(t)}, freeport.Address(t), freeport.Address(t)
	dir := t.TempDir()
	if err := os.Symlink(path, dir+"/carillon"); err != nil {
		t.Fatal(err)
	}
	start(t, "examples/exports", service, nil, "--addr", target, "--takes", "1s")
	server := start(t, "carillon dev", path, nil, "dev", "--memory", "--http", h.http, "--nats-addr", nats)
	h.ready(server)
	await(t, "HTTP jobs can be made", func() bool { // the page is read by people, who are slower
		for _, w := range get[list[struct{ App string }]](h, "/api/v1/workers").Items {
			if w.App == "http" {
				return true
			}
		}
		return false
	})

	began := 0
	for i, b := range blocks {
		script := b[1]
		if i < 2 { // the two programs, which run
			if !strings.HasPrefix(script, "go run ./examples/exports\n") && !strings.HasPrefix(script, "carillon dev\n") {
				t.Errorf("a program that the page starts is not started here: %s", script)
			}
			continue
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", strings.NewReplacer("127.0.0.1:8080", h.http, "127.0.0.1:9090", target).Replace(script))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "CARILLON_SERVER=http://"+h.http)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s\n%s", err, script, out)
		}
		began++
		for command, want := range map[string]string{
			"runs show shop.export":                "orders-2026-11-20.csv",
			"runs log shop.export":                 "request 1",
			"jobs show shop.export-night":          "shop-closed",
			"runs tree shop.export-night":          "carillon.notify",
			"jobs trigger shop.export-night":       "Succeeded",
			"apply -f shop.yaml":                   "calendar shop-closed is written",
			"jobs trigger shop.export --args '{\"": "Succeeded",
		} {
			if strings.Contains(script, command) && !strings.Contains(string(out), want) {
				t.Errorf("%s does not print %q:\n%s", command, want, out)
			}
		}
	}
	await(t, "the notification of the page is delivered", func() bool {
		return len(get[list[struct{ ID string }]](h, "/api/v1/runs?job=carillon.notify.http&state=Succeeded").Items) == 1
	})
	if began < 5 {
		t.Errorf("only %d blocks of commands are found", began)
	}
	if raw := string(h.do(http.MethodGet, "/jobs/shop.export", "")); !strings.Contains(raw, "Exports the orders of a day.") {
		t.Errorf("the page of the job does not show it:\n%.2000s", raw)
	}
}
