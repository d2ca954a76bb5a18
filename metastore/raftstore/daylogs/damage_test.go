package daylogs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/metastore"
)

// One wrong bit anywhere in a file costs the lines of one frame and is reported; the other lines, and later ones, can
// be read, and the file keeps all its bytes.
func TestABitOfALog(t *testing.T) {
	const runs = 10
	dir := t.TempDir()
	l := open(t, dir)
	for i := range runs {
		add(t, l, line(byte(i+1), 1, 1, "something that a handler wrote"))
	}
	path := l.days[0].path
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += tests.Size(7, 1, 1) {
		damaged := slices.Clone(whole)
		damaged[at] ^= 1 << (at % 8)
		path := filepath.Join(t.TempDir(), filepath.Base(path))
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		reports := 0
		l, err := Open(filepath.Dir(path), time.Now, func(error) { reports++ })
		if err != nil {
			t.Fatal(err)
		}
		for restart := range 2 {
			add(t, l, line(200, 1, uint64(restart+1), "one more"))
			left := 0
			for i := range runs {
				left += len(read(t, l, byte(i+1), metastore.LogPosition{}, 0))
			}
			if later := read(t, l, 200, metastore.LogPosition{}, 0); left != runs-1 || len(later) != restart+1 || reports != restart+1 {
				t.Fatalf("byte %d of %d: %d of %d lines are left, and %d that came later; reported %d times", at, len(whole), left, runs, len(later), reports)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if restart == 0 {
				if l, err = Open(filepath.Dir(path), time.Now, func(error) { reports++ }); err != nil {
					t.Fatal(err)
				}
			}
		}
		if b, err := os.ReadFile(path); err != nil || !slices.Equal(b[:len(whole)], damaged) {
			t.Fatalf("byte %d: the file has other bytes, %v", at, err)
		}
	}
}
