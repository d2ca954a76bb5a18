package main

import (
	"path/filepath"
	"testing"

	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore"
)

// A directory that a copy or a restore fills gets the same Raft log as one that a server begins, from any kind of log.
func TestFilledDirectoryHasTheDefaultLog(t *testing.T) {
	data, to := t.TempDir(), filepath.Join(t.TempDir(), "data")
	s, err := raftstore.Open(raftstore.Config{Dir: filepath.Join(data, raftstore.RowsFolder)}) // has no other log than bbolt's
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	from, closer, err := openStopped(data)
	if err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	fill, err := fillOf("--to", to, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(t.Context(), from, func(metastore.Content) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if !fileExists(filepath.Join(to, raftstore.RowsFolder, "wal")) {
		t.Error("no log of raft-wal")
	}
}
