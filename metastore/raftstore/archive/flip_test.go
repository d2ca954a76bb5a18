package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/blocks"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk/fliptest"
)

// contentOf opens an archive and returns all that it reads of its runs.
func contentOf(path string) (content string, err error) {
	var failed error
	a, err := Open(path, Config{SealAt: 8 << 10, Failed: func(err error) { failed = err }})
	if err != nil {
		return "", err
	}
	defer a.Close()
	var b strings.Builder
	fmt.Fprintf(&b, "up to %d\n", a.Last())
	for run, err := range a.Ended(ctx, a.Last()) {
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%x\n", kernel.AppendRow(nil, run))
		if got, err := a.Get(ctx, run.Tenant, run.ID); err != nil || got == nil || !same(got, run) {
			return "", fmt.Errorf("run %v is another by its ID, %w", run.ID, err)
		}
	}
	for _, tenant := range []jobs.Tenant{"t0", "t1"} {
		for q := (metastore.RunQuery{Tenant: tenant, Limit: 500}); ; { // a page ends early on a slow machine
			page, err := a.List(ctx, q)
			if err != nil {
				return "", err
			}
			for _, run := range page.Runs {
				fmt.Fprintln(&b, run.ID)
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
		}
	}
	return b.String(), failed
}

// sample is an archive with segments of which runs are purged, and an open file of which runs are.
func sample(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	rng := rand.New(rand.NewPCG(1, 8))
	a := open(t, filepath.Join(dir, "archive"), Config{SealAt: 8 << 10})
	for i := range 130 {
		a.Begin(uint64(i + 1))
		a.Append([]*kernel.Run{run(i, rng)})
		if i%10 == 9 {
			if err := a.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		if i == 20 || i == 129 {
			kept := retention{"k0": {Succeeded: 1, Others: 1}}
			if _, err := a.Retain(ctx, metastore.Retention{Now: noon, Of: kept.of}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(a.index.hidden) == 0 || len(a.sealed) < 2 {
		t.Fatalf("%d segments, and no run of the open file is purged", len(a.sealed))
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// One wrong bit anywhere in an archive, or a file that is cut, changes no run that is read, or is detected; and nothing
// is deleted.
func TestABitOfAnArchive(t *testing.T) {
	dir := sample(t)
	read := func(dir string) (string, error) { return contentOf(filepath.Join(dir, "archive")) }
	for _, files := range []string{"open", markFile, "*" + segmentSuffix, "*" + goneSuffix} {
		t.Run(files, func(t *testing.T) {
			fliptest.Run(t, fliptest.Format{Dir: dir, Files: "archive/" + files, Read: read, Places: tests.Size(30, 200, 0)})
		})
	}
}

// A damaged range of numbers in a segment deletes no other one, and hides no run.
func TestASpanThatIsDamaged(t *testing.T) {
	dir := sample(t)
	files, _ := filepath.Glob(filepath.Join(dir, "archive", "*"+segmentSuffix))
	if len(files) < 2 {
		t.Fatalf("%d segments", len(files))
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	at := binary.BigEndian.Uint64(b[len(b)-tailSize:])
	binary.BigEndian.PutUint64(b[at+32:], 1<<40) // the last number of the index
	if err := os.WriteFile(files[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = contentOf(filepath.Join(dir, "archive"))
	if _, ok := errors.AsType[*disk.Damaged](err); !ok || !strings.Contains(err.Error(), files[0]) {
		t.Errorf("the error is %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "archive", "*"+segmentSuffix)); len(left) != len(files) {
		t.Errorf("of %d files %d are left", len(files), len(left))
	}
}

// A damaged run in a segment stops nothing: copies, retention and the store continue without it and report it.
func TestARunThatIsDamaged(t *testing.T) {
	dir := sample(t)
	path := filepath.Join(dir, "archive")
	files, _ := filepath.Glob(filepath.Join(dir, "archive", "*"+segmentSuffix))
	var number uint64
	damage(t, files[0], &number)
	a := open(t, path, Config{SealAt: 8 << 10})
	defer a.Close()
	runs, left := 0, 0
	for _, err := range a.Ended(ctx, a.Last()) {
		if _, ok := errors.AsType[*metastore.LeftOut](err); ok {
			left++
			if !strings.Contains(err.Error(), files[0]) || !strings.Contains(err.Error(), fmt.Sprint(number)) {
				t.Errorf("the error does not name the file and the run: %v", err)
			}
		} else if err != nil {
			t.Fatal(err)
		}
		runs++
	}
	if left != 1 || runs < 50 {
		t.Errorf("of %d runs %d are left out", runs, left)
	}
	kept := retention{}
	for _, k := range []string{"k0", "k1", "k2"} {
		kept[jobs.Key(k)] = kernel.Kept{Since: noon.Add(-1000 * 1000 * 1000), Succeeded: 3, Others: 3}
	}
	for range 4 { // the first that reads it reports it
		_, _ = a.Retain(ctx, metastore.Retention{Now: noon, Of: kept.of})
	}
	done, err := a.Retain(ctx, metastore.Retention{Now: noon, Of: kept.of})
	if err != nil {
		t.Errorf("purging does not continue: %+v, %v", done, err)
	}
	if n, _, err := a.Len(ctx); err != nil || n > 2*3*(3+3) {
		t.Errorf("there are %d runs, %v", n, err)
	}
	if err := a.failure(); err != nil {
		t.Errorf("the archive failed: %v", err)
	}
}

// damage changes the last run of a segment that is not hidden, in its place.
func damage(t *testing.T, path string, number *uint64) {
	t.Helper()
	s, err := openSegment(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.file.Close()
	v := s.view()
	last := s.runs - 1
	for v.isHidden(last) {
		last--
	}
	*number = v.numbers.at(last)
	flipByte(t, path, int64(v.offsets.at(last))+blocks.RecordHead+100)
}

func flipByte(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}
