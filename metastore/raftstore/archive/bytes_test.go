package archive

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// When all runs take more space than they may, the oldest segments are deleted, and the numbers of remaining runs are
// right.
func TestS0_26TheOldestFilesGoBeyondTheBytes(t *testing.T) {
	const all, most = 2_000, 300_000
	dir := t.TempDir()
	path := filepath.Join(dir, "archive")
	a := open(t, path, Config{SealAt: 50_000})
	rng, rows := rand.New(rand.NewPCG(3, 5)), make([]*kernel.Run, all)
	for i := range rows {
		rows[i] = run(i, rng)
		rows[i].Tenant, rows[i].Key, rows[i].State = "t0", "k0", jobs.Succeeded
		rows[i].Args = append(append([]byte(`{"n":"`), make([]byte, 200)...), `"}`...)
		a.Begin(uint64(i + 1))
		a.Append(rows[i : i+1])
		if i%100 == 99 {
			if err := a.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, before := a.Size()
	if before < 2*most || files < 6 {
		t.Fatalf("%d files take %d bytes: nothing would be tried", files, before)
	}
	done, err := a.Retain(ctx, metastore.Retention{Of: retention{}.of, Bytes: most})
	if err != nil || done.Bytes > most || done.Bytes < most/2 || done.Dropped == 0 {
		t.Fatalf("%+v, %v: at most %d bytes, and not much less", done, err, most)
	}
	left := func(a *Archive, dropped int) {
		t.Helper()
		for i, r := range rows {
			if got, err := a.Get(ctx, r.Tenant, r.ID); err != nil || (got != nil) != (i >= dropped) {
				t.Fatalf("run %d of %d, of which the first %d are gone: %v, %v", i, all, dropped, got, err)
			}
		}
		if n, _, err := a.Len(ctx); err != nil || n != all-dropped {
			t.Errorf("%d runs are left, %v, want %d", n, err, all-dropped)
		}
	}
	left(a, done.Dropped)
	if after, _ := a.Size(); onDisk(t, path) != after {
		t.Errorf("%d files lie on the disk, want %d", onDisk(t, path), after)
	}
	// The count of the job excludes the runs of its deleted files.
	again, err := a.Retain(ctx, metastore.Retention{Of: retention{"k0": {Succeeded: all - done.Dropped - 7}}.of})
	if err != nil || again.Dropped != 7 {
		t.Errorf("%+v, %v: 7 were too many", again, err)
	}
	left(a, done.Dropped+7)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a = open(t, path, Config{SealAt: 50_000})
	left(a, done.Dropped+7)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

// Runs beyond the bytes go of owners that exceed their shares, the oldest first, though files have runs of all: a tenant
// that writes nine tenths of the history, and an app of another tenant that does, purge no run of others.
func TestHistoryIsPurgedByShares(t *testing.T) {
	const all, most = 4_000, 500_000
	path := filepath.Join(t.TempDir(), "archive")
	a := open(t, path, Config{SealAt: 50_000})
	rng, rows := rand.New(rand.NewPCG(3, 5)), make([]*kernel.Run, all)
	apps := retention{"loud": {App: "loud"}, "quiet": {App: "quiet"}}
	for i := range rows {
		r := run(i, rng)
		r.Tenant, r.Key, r.State = "noisy", "loud", jobs.Skipped
		switch i % 20 {
		case 0:
			r.Tenant, r.Key = "calm", "quiet"
		case 1:
			r.Key = "quiet"
		}
		r.Args = append(append([]byte(`{"n":"`), make([]byte, 200)...), `"}`...)
		rows[i] = r
		a.Begin(uint64(i + 1))
		a.Append(rows[i : i+1])
		if i%100 == 99 {
			if err := a.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, before := a.Size(); before < 2*most {
		t.Fatalf("all take %d bytes: nothing would be tried", before)
	}
	done, err := a.Retain(ctx, metastore.Retention{Of: apps.of, Bytes: most})
	if err != nil || done.Bytes > most || done.Bytes < most/2 || done.Dropped == 0 {
		t.Fatalf("%+v, %v: at most %d bytes, and not much less", done, err, most)
	}
	left := func(a *Archive) {
		t.Helper()
		gone, over := 0, false
		for i, r := range rows {
			got, err := a.Get(ctx, r.Tenant, r.ID)
			switch {
			case err != nil:
				t.Fatal(err)
			case r.Key == "quiet" && got == nil:
				t.Fatalf("run %d of %s/%s is gone", i, r.Tenant, r.Key)
			case got == nil && over:
				t.Fatalf("run %d is gone, and an older one of its owner is not", i)
			case got == nil:
				gone++
			case r.Key == "loud":
				over = true
			}
		}
		if n, _, err := a.Len(ctx); err != nil || gone != done.Dropped || n != all-gone {
			t.Errorf("%d runs are left and %d gone, %v; %d were purged", n, gone, err, done.Dropped)
		}
	}
	left(a)
	if again, err := a.Retain(ctx, metastore.Retention{Of: apps.of, Bytes: most}); err != nil || again.Dropped != 0 {
		t.Errorf("%+v, %v: nothing more is beyond the bytes", again, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a = open(t, path, Config{SealAt: 50_000})
	left(a)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

// A merged segment that cannot be used ends the archive: later purges in its sources would be undone.
func TestMergeThatFails(t *testing.T) {
	var failed []error
	a := open(t, filepath.Join(t.TempDir(), "archive"), Config{SealAt: 5_000, Failed: func(err error) { failed = append(failed, err) }})
	defer a.Close()
	rng := rand.New(rand.NewPCG(3, 5))
	for i := range 300 {
		a.Begin(uint64(i + 1))
		a.Append([]*kernel.Run{run(i, rng)})
		if i%20 == 19 {
			if err := a.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	a.filing.Lock()
	defer a.filing.Unlock()
	if len(a.sealed) < 2 {
		t.Fatalf("there are %d files: nothing would be tried", len(a.sealed))
	}
	broken, sound := errors.New("the disk is broken"), syncDir
	defer func() { syncDir = sound }()
	syncDir = func(string) error { return broken }
	if err := a.merge(0, 2); !errors.Is(err, broken) {
		t.Errorf("files are merged: %v", err)
	}
	if !errors.Is(a.failure(), broken) || len(failed) != 1 {
		t.Errorf("the archive continues: %v, and %v was reported", a.failure(), failed)
	}
}

// onDisk is how many files have runs.
func onDisk(t *testing.T, path string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(path, "*"+segmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	return 1 + len(files)
}

// The archive's folder is on disk before it has files, and so is a segment's name.
func TestSealSyncsItsFolder(t *testing.T) {
	sound := syncDir
	defer func() { syncDir = sound }()
	synced := map[string]bool{}
	syncDir = func(dir string) error {
		synced[dir] = true
		return sound(dir)
	}
	dir := t.TempDir()
	a := open(t, filepath.Join(dir, "archive"), Config{SealAt: 1})
	if !synced[dir] {
		t.Errorf("%v were synced, and not %s", synced, dir)
	}
	clear(synced)
	a.Begin(1)
	a.Append([]*kernel.Run{run(1, rand.New(rand.NewPCG(3, 5)))})
	if err := errors.Join(a.Sync(), a.Close()); err != nil {
		t.Fatal(err)
	}
	if folder := filepath.Join(dir, "archive"); !synced[folder] {
		t.Errorf("%v were synced, and not %s", synced, folder)
	}
}
