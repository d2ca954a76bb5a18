package raftstore

import (
	"archive/zip"
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

var keepRelease = flag.String("keep-release", "", "write testdata/`name`.zip, a data directory of this release")

// TestReleases opens the data directories of all releases: testdata has one of each, as it left them.
func TestReleases(t *testing.T) {
	if *keepRelease != "" {
		pack(t, filepath.Join("testdata", *keepRelease+".zip"), releaseDirectory(t))
	}
	files, err := filepath.Glob("testdata/*.zip")
	if err != nil || len(files) == 0 {
		t.Fatalf("there is none: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			dir := t.TempDir()
			unpack(t, file, dir)
			s := open(t, Config{Dir: dir})
			counts, err := s.Counts(ctx, metastore.CountQuery{Tenant: jobs.DefaultTenant})
			if err != nil || fmt.Sprint(counts.Live) != "map[Enqueued:23 Processing:1]" {
				t.Errorf("live runs are %v, %v", counts.Live, err)
			}
			page, err := s.Runs(ctx, metastore.RunQuery{Tenant: jobs.DefaultTenant, State: jobs.Succeeded, Limit: 100})
			if err != nil || len(page.Runs) != 12 || !bytes.Contains(page.Runs[11].Args, []byte("customer")) {
				t.Errorf("%d runs have succeeded, %v", len(page.Runs), err)
			}
			for value, want := range map[string]int{"c-1234567890": 12, "c": 0} { // read from the archive's files
				page, err := s.Runs(ctx, metastore.RunQuery{Tenant: jobs.DefaultTenant, State: jobs.Succeeded, Args: []metastore.Arg{{Path: "customer", Value: value}}, Limit: 100})
				if err != nil || len(page.Runs) != want {
					t.Errorf("%d runs of customer %s, want %d: %v", len(page.Runs), value, want, err)
				}
			}
			reopened(t, s)
			do(t, s, create("k"))
		})
	}
}

// releaseDirectory is a directory with some of everything, in a snapshot and in the log after it.
func releaseDirectory(t *testing.T) string {
	c := Config{Dir: t.TempDir(), Log: LogWAL, SnapshotAfter: 1 << 20, Trailing: 1}
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	do(t, s, register("k"))
	for part := range 2 {
		begun := creates(18)
		do(t, s, begun...)
		for _, k := range begun[:6] {
			id := k.(kernel.Create).ID
			do(t, s, kernel.Start{ID: id, Worker: "w", Attempt: 1}, kernel.Finish{ID: id, Worker: "w", Attempt: 1, Outcome: kernel.OutcomeSuccess})
		}
		if part == 0 {
			if err := s.snapshot(); err != nil {
				t.Fatal(err)
			}
		} else {
			do(t, s, kernel.Start{ID: begun[6].(kernel.Create).ID, Worker: "w", Attempt: 1})
		}
	}
	accessRows(t, s)
	do(t, s, kernel.Revoke{ID: "bbbb2222"}, kernel.Configure{MaxJobs: new(9)})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return c.Dir
}

func pack(t *testing.T, file, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(out)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func unpack(t *testing.T, file, dir string) {
	t.Helper()
	r, err := zip.OpenReader(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	err = fs.WalkDir(r, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(path))
		if d.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		in, err := r.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		b, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}
