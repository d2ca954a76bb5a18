package embed_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/metastore/raftstore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/raftlog/hashicorp"
)

// A new directory gets the log that is asked for, keeps it without being asked, and is refused with the other.
func TestRaftLog(t *testing.T) {
	both := hashicorp.Kinds()
	for kind, file := range map[string]string{"wal": "wal", "boltdb": "raft.db", "": "wal"} {
		dir := t.TempDir()
		for _, again := range []string{kind, ""} {
			s, err := embed.Open(t.Context(), embed.Config{Dir: dir, RaftLogs: both, RaftLog: again})
			if err != nil {
				t.Fatalf("%q, opened as %q: %v", kind, again, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(dir, raftstore.RowsFolder, file)); err != nil {
				t.Errorf("%q, opened as %q: %v", kind, again, err)
			}
		}
		other := map[string]string{"wal": "boltdb", "raft.db": "wal"}[file]
		if s, err := embed.Open(t.Context(), embed.Config{Dir: dir, RaftLogs: both, RaftLog: other}); err == nil || !strings.Contains(err.Error(), "Raft log of kind") {
			t.Errorf("%q, opened as %q: %v, %v", kind, other, s, err)
		}
	}
	if _, err := embed.Open(t.Context(), embed.Config{Dir: t.TempDir(), RaftLogs: both, RaftLog: "bolt"}); err == nil || !strings.Contains(err.Error(), "want wal or boltdb") {
		t.Errorf("a log that does not exist: %v", err)
	}
}

// A program that links no other log than bbolt's names what it needs to open a directory of another kind, and opens
// what raft-boltdb has written.
func TestRaftLogWithoutHashicorp(t *testing.T) {
	for kind, refused := range map[string]string{"wal": "set embed.Config.RaftLogs", "boltdb": ""} {
		dir := t.TempDir()
		s, err := embed.Open(t.Context(), embed.Config{Dir: dir, RaftLogs: hashicorp.Kinds(), RaftLog: kind})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s, err = embed.Open(t.Context(), embed.Config{Dir: dir})
		switch {
		case refused != "" && (err == nil || !strings.Contains(err.Error(), refused)):
			t.Errorf("a log of kind %s: %v, want %q", kind, err, refused)
		case refused == "" && err != nil:
			t.Errorf("a log of kind %s: %v", kind, err)
		case err == nil:
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
