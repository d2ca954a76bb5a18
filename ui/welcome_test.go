package ui

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// What the first page tells a newcomer to copy compiles.
func TestWelcomeWorkerCompiles(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(welcomeWorker), 0o600); err != nil {
		t.Fatal(err)
	}
	vet := exec.CommandContext(t.Context(), "go", "vet", file)
	vet.Dir = root
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
