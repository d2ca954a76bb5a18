package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
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
	if err := a.ready(ctx); err != nil {
		return "", err
	}
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
		page, err := a.List(ctx, metastore.RunQuery{Tenant: tenant, Limit: 500})
		if err != nil {
			return "", err
		}
		for _, run := range page.Runs {
			fmt.Fprintln(&b, run.ID)
		}
	}
	return b.String(), failed
}

// sample is an archive with two sealed files of which runs are hidden, and an open one of which runs are.
func sample(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	rng := rand.New(rand.NewPCG(1, 8))
	a := open(t, filepath.Join(dir, "archive.db"), Config{SealAt: 8 << 10})
	for i := range 130 {
		a.Begin(uint64(i + 1))
		a.Append([]*kernel.Run{run(i, rng)})
		if i%10 == 9 {
			if err := a.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		if i == 20 || i == 128 {
			kept := retention{}
			for _, k := range []string{"k0", "k1", "k2"} {
				kept[jobs.Key(k)] = kernel.Kept{Since: noon.Add(-1000 * 1000 * 1000), Succeeded: 18}
			}
			if _, err := a.Retain(ctx, metastore.Retention{Now: noon, Of: kept.of}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// One wrong bit anywhere in an archive changes no run that is read, or is detected; and nothing is deleted.
func TestABitOfAnArchive(t *testing.T) {
	dir := sample(t)
	read := func(dir string) (string, error) { return contentOf(filepath.Join(dir, "archive.db")) }
	// bbolt writes two heads in turn, and uses the older one where the newer is damaged, as after a crash in the
	// middle of a commit: the writes of the last commit are missing then.
	heads := func(content, file string, at int) bool { return at < 2*pageOf(t, filepath.Join(dir, file)) }
	t.Run("open file", func(t *testing.T) {
		fliptest.Run(t, fliptest.Format{Dir: dir, Files: "archive.db", Read: read, Allowed: heads, Places: tests.Size(5, 50, 0)})
	})
	t.Run("sealed files", func(t *testing.T) {
		fliptest.Run(t, fliptest.Format{Dir: dir, Files: "archive.sealed/*.db", Read: read, Allowed: heads, Places: tests.Size(5, 50, 0)})
	})
}

func pageOf(t *testing.T, path string) int {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	return db.Info().PageSize
}

// A damaged range of numbers in a file deletes no other file, and hides no run.
func TestASpanThatIsDamaged(t *testing.T) {
	dir := sample(t)
	files, _ := filepath.Glob(filepath.Join(dir, "archive.sealed", "*.db"))
	if len(files) < 2 {
		t.Fatalf("%d sealed files", len(files))
	}
	change(t, files[0], func(find *bbolt.Bucket) (key, value []byte) {
		span := slices.Clone(find.Get(keySpan))
		binary.BigEndian.PutUint64(span[8:], 1<<40)
		return keySpan, span
	})
	_, err := contentOf(filepath.Join(dir, "archive.db"))
	if _, ok := errors.AsType[*disk.Damaged](err); !ok || !strings.Contains(err.Error(), files[0]) {
		t.Errorf("the error is %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "archive.sealed", "*.db")); len(left) != len(files) {
		t.Errorf("of %d files %d are left", len(files), len(left))
	}
}

// change changes the indexes of a sealed file.
func change(t *testing.T, path string, to func(find *bbolt.Bucket) (key, value []byte)) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.Update(func(tx *bbolt.Tx) error {
		find := tx.Bucket(bucketFind)
		return find.Put(to(find))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A damaged run in a sealed file stops nothing: copies, retention and the store continue without it and report it.
func TestARunThatIsDamaged(t *testing.T) {
	dir := sample(t)
	path := filepath.Join(dir, "archive.db")
	files, _ := filepath.Glob(filepath.Join(dir, "archive.sealed", "*.db"))
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

// damage changes the last run of a sealed file that is not hidden, in its place.
func damage(t *testing.T, path string, number *uint64) {
	t.Helper()
	s, err := openSealed(path)
	if err != nil {
		t.Fatal(err)
	}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		runs := tx.Bucket(bucketRuns)
		last := uint32(s.runs - 1)
		for s.isHidden(last) {
			last--
		}
		find := tx.Bucket(bucketFind)
		*number = binary.BigEndian.Uint64(find.Get(keyNumbers)[8*last:])
		record := slices.Clone(runs.Get(keyOf(*number)))
		record[len(record)/2] ^= 1
		return runs.Put(keyOf(*number), record)
	})
	if err := errors.Join(err, s.db.Close()); err != nil {
		t.Fatal(err)
	}
}
