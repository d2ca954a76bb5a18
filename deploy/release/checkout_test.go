package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

func tryBuild(t *testing.T, dir, version string) (out string, err error) {
	t.Helper()
	out = filepath.Join(t.TempDir(), "dist")
	return out, build(release{dir: dir, version: version, out: out, systems: all[:1], log: io.Discard})
}

// A version that is not complete, or that Go could not stamp, is refused.
func TestVersions(t *testing.T) {
	for _, version := range []string{"", "0.1.0", "v0.1", "v1", "v01.0.0", "v0.1.0+x", "v0.1.0-", "latest", "v0.1.0 "} {
		refused(t, checkVersion(version), "invalid version", "vMAJOR.MINOR.PATCH")
	}
	refused(t, checkVersion("v2.0.0"), "invalid version", "/v2")
	for _, version := range []string{"v0.0.1", "v0.1.0", "v1.20.3", "v0.1.0-rc.1"} {
		if err := checkVersion(version); err != nil {
			t.Error(err)
		}
	}
	_, err := tryBuild(t, toy(t), "0.1.0")
	refused(t, err, `invalid version "0.1.0"`)
}

// A checkout with changes is refused, with the names of the changed files, and nothing is written.
func TestDirtyCheckout(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, dir string) (want []string){
		"changed": func(t *testing.T, dir string) []string {
			put(t, filepath.Join(dir, "README.md"), "changed")
			put(t, filepath.Join(dir, "cmd/carillon/main.go"), "changed")
			return []string{"README.md", "cmd/carillon/main.go"}
		},
		"staged": func(t *testing.T, dir string) []string {
			put(t, filepath.Join(dir, "LICENSE"), "changed")
			gitDo(t, dir, "add", "LICENSE")
			return []string{"LICENSE"}
		},
		"new": func(t *testing.T, dir string) []string {
			put(t, filepath.Join(dir, "new/file.go"), "package x")
			return []string{"new/file.go"}
		},
		"deleted": func(t *testing.T, dir string) []string {
			if err := os.Remove(filepath.Join(dir, "SECURITY.md")); err != nil {
				t.Fatal(err)
			}
			return []string{"SECURITY.md"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := toy(t)
			want := change(t, dir)
			out, err := tryBuild(t, filepath.Join(dir, "cmd"), "v0.1.0")
			refused(t, err, append(want, "no commit contains")...)
			if _, err := os.Stat(out); err == nil {
				t.Error("the refused release left files")
			}
		})
	}
	dir := toy(t)
	put(t, filepath.Join(dir, "dist/former"), "ignored")
	if _, err := inspect(dir, "v0.1.0"); err != nil {
		t.Errorf("a checkout with ignored files: %v", err)
	}
}

// A version that contradicts a tag is refused.
func TestTags(t *testing.T) {
	dir := toy(t)
	gitDo(t, dir, "tag", "nightly") // not a version
	if _, err := inspect(dir, "v0.1.0"); err != nil {
		t.Errorf("without a tag of a version: %v", err)
	}
	gitDo(t, dir, "tag", "-a", "-m", "release", "v0.1.0")
	if _, err := inspect(dir, "v0.1.0"); err != nil {
		t.Errorf("with its own tag: %v", err)
	}
	_, err := inspect(dir, "v0.2.0")
	refused(t, err, "HEAD has the tag v0.1.0, not v0.2.0")
	commit(t, dir)
	_, err = inspect(dir, "v0.1.0")
	refused(t, err, "tag v0.1.0 names commit")
	if _, err := inspect(dir, "v0.2.0"); err != nil {
		t.Errorf("a new version after a tag: %v", err)
	}
}

// git and go do not get the signing key.
func TestSecretsStayHere(t *testing.T) {
	t.Setenv("CARILLON_SIGNING_KEY", "secret")
	t.Setenv("CARILLON_SIGNING_PASSWORD", "secret")
	t.Setenv("GIT_DIR", "elsewhere")
	for _, v := range environment() {
		if v == "CARILLON_SIGNING_KEY=secret" || v == "CARILLON_SIGNING_PASSWORD=secret" || v == "GIT_DIR=elsewhere" {
			t.Errorf("a command gets %s", v)
		}
	}
}
