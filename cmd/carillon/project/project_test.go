package project

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/jobs"
)

// A directory with files is refused by their names, and stays as it is.
func TestNothingIsOverwritten(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{".git", "a", "b", "c", "d"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Make(Config{Dir: dir, Version: "v1.0.0"})
	if jobs.CodeOf(err) != jobs.Conflict || !strings.Contains(err.Error(), "is not empty (a, b, c, 1 more): want an empty or missing one") {
		t.Errorf("%v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 5 {
		t.Errorf("%v, %v", entries, err)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := Make(Config{Dir: dir, Version: "v1.0.0", Module: "example.com/shop"}); err != nil || len(names) != 10 {
		t.Errorf("beside .git: %v, %v", names, err)
	}
	file := filepath.Join(dir, "go.mod")
	if _, err := Make(Config{Dir: file, Version: "v1.0.0"}); err == nil || !strings.Contains(err.Error(), "want an empty or missing directory") {
		t.Errorf("a file: %v", err)
	}
}

// go.mod requires a release, or names a checkout.
func TestRequire(t *testing.T) {
	checkout, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config Config
		want   string // in go.mod, or the error
	}{
		"a release":              {Config{Version: "v1.2.3"}, "module example.com/shop-1\n\ngo " + goVersion + "\n\nrequire " + library + " v1.2.3\n"},
		"a release and checkout": {Config{Version: "v1.2.3", Replace: checkout}, "\nreplace " + library + " => "},
		"around the working one": {Config{Version: "v0.0.0-20260101000000-abcdefabcdef"}, " v0.0.0\n\n// Carillon comes from a checkout."},
		"a module":               {Config{Version: "v1.2.3", Module: "git.example.com/Ops/Night.Jobs"}, "module git.example.com/Ops/Night.Jobs\n"},
		"no checkout":            {Config{Version: "v1.2.3", Replace: "."}, "--replace . is no checkout"},
		"an invalid module":      {Config{Version: "v1.2.3", Module: "a b"}, `invalid module path "a b": want one such as`},
		"a module without name":  {Config{Version: "v1.2.3", Module: "a/_"}, "its last part needs a letter"},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Dir = filepath.Join(t.TempDir(), "Shop_1")
			_, err := Make(c.config)
			if err != nil {
				if !strings.Contains(err.Error(), c.want) {
					t.Error(err)
				}
				return
			}
			raw, err := os.ReadFile(filepath.Join(c.config.Dir, "go.mod"))
			if err != nil || !strings.Contains(string(raw), c.want) {
				t.Errorf("%s %v", raw, err)
			}
		})
	}
	t.Chdir(t.TempDir())
	if _, err := Make(Config{Dir: "shop", Version: "unknown"}); err == nil || !strings.Contains(err.Error(), "give it with --replace") {
		t.Errorf("no release and no checkout: %v", err)
	}
	if _, err := os.Stat("shop"); err == nil {
		t.Error("a refused project has a directory")
	}
}

// A project needs the version of Go that this module needs.
func TestGoVersion(t *testing.T) {
	raw, err := os.ReadFile("../../../go.mod")
	if err != nil || !strings.Contains(string(raw), "\ngo "+goVersion+"\n") {
		t.Errorf("go.mod has not go %s (%v)", goVersion, err)
	}
}
