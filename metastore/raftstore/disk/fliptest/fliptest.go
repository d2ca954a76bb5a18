// Package fliptest damages files, a byte at a time, and checks that readers detect it.
//
// It is not promised to programs outside this module.
//
// A format passes if each damaged copy reads as the whole one does, or is refused with an error. It fails if a reader
// returns something else, deletes a file, or panics.
package fliptest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
)

// Format is a directory with files of a format.
type Format struct {
	Dir   string // whole; it is not written to
	Files string // pattern of the files to damage, below Dir
	// Read reads a copy of the directory as a program that starts on it, and returns all that it finds.
	Read func(dir string) (content string, err error)
	// Allowed reports whether content other than the whole one is acceptable, given the place of the damage. nil =
	// none is.
	Allowed func(content string, file string, at int) bool
	// Places is how many places of each file are damaged, spread over it; 0 = each byte. At each one bit is flipped,
	// and the file is truncated.
	Places int
}

// Run damages copies of the directory.
func Run(t *testing.T, f Format) {
	t.Helper()
	copied := f.copy(t, "", nil)
	whole, err := f.read(copied)
	_ = os.RemoveAll(copied)
	if err != nil {
		t.Fatalf("the whole directory does not read: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(f.Dir, f.Files))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files are %s in %s: %v", f.Files, f.Dir, err)
	}
	for _, file := range files {
		name, err := filepath.Rel(f.Dir, file)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, at := range f.places(b) {
			flipped := slices.Clone(b)
			flipped[at] ^= 1 << (i % 8)
			f.try(t, whole, name, fmt.Sprintf("bit %d of byte %d of %d flipped", i%8, at, len(b)), at, flipped)
			f.try(t, whole, name, fmt.Sprintf("cut off at byte %d of %d", at, len(b)), at, b[:at])
			if t.Failed() {
				return // the first is enough
			}
		}
	}
}

// places are where a file is damaged: not in stretches of zeros, which were only reserved.
func (f *Format) places(b []byte) (places []int) {
	const stretch = 64
	for at := range b {
		if at%stretch == 0 && len(bytes.Trim(b[at:min(at+stretch, len(b))], "\x00")) > 0 {
			for i := range min(stretch, len(b)-at) {
				places = append(places, at+i)
			}
		}
	}
	if f.Places <= 0 || len(places) <= f.Places {
		return places
	}
	some := make([]int, f.Places)
	for i := range some {
		some[i] = places[i*len(places)/f.Places]
	}
	return some
}

func (f *Format) try(t *testing.T, whole, name, what string, at int, b []byte) {
	t.Helper()
	dir := f.copy(t, name, b)
	defer os.RemoveAll(dir)
	content, err := f.read(dir)
	if err == nil && content != whole && (f.Allowed == nil || !f.Allowed(content, name, at)) {
		t.Errorf("%s: %s: undetected damage: read %d bytes of %d, different from byte %d on", name, what, len(content), len(whole), differ(content, whole))
	}
	if _, ok := err.(panicked); ok {
		t.Errorf("%s: %s: %v", name, what, err)
	}
	err = filepath.WalkDir(f.Dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			var rel string
			if rel, err = filepath.Rel(f.Dir, path); err == nil {
				_, err = os.Lstat(filepath.Join(dir, rel))
			}
		}
		return err
	})
	if err != nil {
		t.Errorf("%s: %s: a file is gone: %v", name, what, err)
	}
}

func differ(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

type panicked struct{ what any }

func (p panicked) Error() string { return fmt.Sprintf("panic: %v", p.what) }

func (f *Format) read(dir string) (content string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked{fmt.Sprintf("%v\n%s", r, debug.Stack())}
		}
	}()
	return f.Read(dir)
}

const inMemory = "/dev/shm"

// copy copies the directory, with other bytes in one file.
func (f *Format) copy(t *testing.T, name string, b []byte) string {
	t.Helper()
	parent := t.TempDir()
	if info, err := os.Stat(inMemory); err == nil && info.IsDir() { // where a sync takes no time
		parent = inMemory
	}
	dir, err := os.MkdirTemp(parent, "flip")
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(f.Dir))
	}
	if err == nil && name != "" {
		err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
