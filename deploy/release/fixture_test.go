package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// toyDay is the time of the toy's commit.
var toyDay = time.Date(2026, 3, 4, 5, 6, 8, 0, time.UTC)

// toyProgram imports nothing, so that it compiles in a moment. TestCarillon checks what the real program prints.
const toyProgram = `package main

func main() { println("toy") }
`

// toy is a checkout with a small program in place of Carillon's, so that all systems are built in seconds.
func toy(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "toy")
	for name, text := range map[string]string{
		"go.mod": "module " + module + "\n\ngo 1.26.0\n", "cmd/carillon/main.go": toyProgram, ".gitignore": "/dist/\n",
		"README.md": "# Toy\n", "LICENSE": "toy licence\n", "CHANGELOG.md": "# Changelog\n", "SECURITY.md": "# Security\n",
	} {
		put(t, filepath.Join(dir, name), text)
	}
	if err := os.CopyFS(filepath.Join(dir, packageFiles), os.DirFS("files")); err != nil {
		t.Fatal(err)
	}
	gitDo(t, dir, "init", "--quiet", "--initial-branch=main")
	commit(t, dir)
	return dir
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, dir string) {
	t.Helper()
	gitDo(t, dir, "add", "-A")
	gitDo(t, dir, "commit", "--quiet", "--allow-empty", "-m", "toy")
}

func gitDo(t *testing.T, dir string, args ...string) {
	t.Helper()
	c := exec.Command("git", append([]string{"-c", "user.name=toy", "-c", "user.email=toy@example.com"}, args...)...)
	c.Dir = dir
	c.Env = environment("GIT_COMMITTER_DATE="+toyDay.Format(time.RFC3339), "GIT_AUTHOR_DATE="+toyDay.Format(time.RFC3339))
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

// refused fails the test unless an error contains all parts.
func refused(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v\ndoes not contain %q", err, part)
		}
	}
}

// member is a file or folder that was read from an archive.
type member struct {
	tar.Header
	data []byte
}

// readTar returns what a tar file has, by names without a leading "./" or "/" or a closing "/".
func readTar(t *testing.T, from io.Reader) map[string]member {
	t.Helper()
	all := map[string]member{}
	for r := tar.NewReader(from); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[clean(head.Name)] = member{*head, raw}
	}
}

func clean(name string) string {
	return strings.Trim(strings.TrimPrefix(name, "."), "/")
}

func readTarGz(t *testing.T, from io.Reader) map[string]member {
	t.Helper()
	z, err := gzip.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	return readTar(t, z)
}

// readAr returns the files of an ar archive, which a deb is.
func readAr(t *testing.T, raw []byte) map[string][]byte {
	t.Helper()
	rest, ok := bytes.CutPrefix(raw, []byte("!<arch>\n"))
	if !ok {
		t.Fatal("not an ar archive")
	}
	all := map[string][]byte{}
	for len(rest) >= 60 {
		name := strings.TrimRight(string(rest[:16]), " /")
		size := 0
		for _, digit := range strings.TrimSpace(string(rest[48:58])) {
			size = size*10 + int(digit-'0')
		}
		all[name] = rest[60 : 60+size]
		rest = rest[60+size+size%2:]
	}
	return all
}

func readZip(t *testing.T, file string) map[string]*zip.File {
	t.Helper()
	z, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { z.Close() })
	all := map[string]*zip.File{}
	for _, f := range z.File {
		all[strings.TrimSuffix(f.Name, "/")] = f
	}
	return all
}

// missing skips a test that lacks something, and fails it in CI.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal("needs " + what)
	}
	t.Skip("needs " + what)
}
