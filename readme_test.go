package carillon_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The README's first program is one: whoever copies it has a worker.
func TestTheFirstWorkerCompiles(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```go\n// worker.go\n")
	program, _, found := strings.Cut(rest, "\n```")
	if !found {
		t.Fatal("README.md has no worker.go")
	}
	file := filepath.Join(t.TempDir(), "worker.go")
	if err := os.WriteFile(file, []byte(program+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
