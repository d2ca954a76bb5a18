// Package clienttest shows that a client which a generator makes of the API's own description compiles and works.
//
// It is a module of its own, so that users of Carillon do not need the generator.
package clienttest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/oapi-codegen/runtime" // what generated clients import

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/jobs"
)

type order struct {
	Customer string `json:"customer"`
}

// The program in testdata is built with a generated client and works with a scheduler: it starts a run and reads it,
// edits a job under If-Match, is refused an old ETag and wrong arguments, and cancels a run.
func TestGeneratedClient(t *testing.T) {
	s, err := embed.Start(t.Context(), embed.Config{},
		jobs.NewTriggered(jobs.TriggeredFunc[order](func(ctx context.Context, o order) error {
			return jobs.Result(ctx, "charged "+o.Customer)
		}), jobs.Options{Key: "billing.charge"}))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		server.Close()
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	// The program is built within this module, whose go.mod knows what a generated client imports.
	dir, err := os.MkdirTemp(".", "generated-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	description := filepath.Join(dir, "openapi.json")
	fetch(t, server.URL+"/openapi-3.0.json", description)
	program, err := os.ReadFile("testdata/walk.go")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "walk.go"), program, 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "main", "-o", filepath.Join(dir, "client.go"), description)
	run(t, "go", "run", "./"+dir, server.URL)
}

func fetch(t *testing.T, url, to string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d (%v)", url, r.StatusCode, err)
	}
	if err := os.WriteFile(to, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}
