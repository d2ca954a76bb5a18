package carillon_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// The programs in the README and in the tutorial compile as a reader would copy them, and the tutorial's tests pass: by
// default they are only compiled.
func TestProgramsInTheDocuments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		page, verb string
		files      []string
	}{
		{"README.md", "vet", []string{"worker.go"}},
		{"docs/tutorial.md", tests.Size("vet", "test", "test"), []string{"main.go", "main_test.go"}},
		{"docs/tutorial.md", "vet", []string{"enqueue/main.go"}},
	} {
		page, err := os.ReadFile(c.page)
		if err != nil {
			t.Fatal(err)
		}
		dir, args := t.TempDir(), []string{c.verb}
		for _, name := range c.files {
			_, rest, _ := strings.Cut(string(page), "```go\n// "+name+"\n")
			program, _, found := strings.Cut(rest, "\n```")
			if !found {
				t.Fatalf("%s has no %s", c.page, name)
			}
			file := filepath.Join(dir, filepath.Base(name))
			if err := os.WriteFile(file, []byte(program+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			args = append(args, file)
		}
		if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
			t.Errorf("%s, %s: %v\n%s", c.page, c.files, err, out)
		}
	}
}
