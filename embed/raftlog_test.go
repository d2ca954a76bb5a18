package embed_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/metastore/raftstore"
)

// A new directory gets the log that is asked for, keeps it without being asked, and is refused with the other.
func TestRaftLog(t *testing.T) {
	for kind, file := range map[string]string{"wal": "wal", "boltdb": "raft.db", "": "wal"} {
		dir := t.TempDir()
		for _, again := range []string{kind, ""} {
			s, err := embed.Open(t.Context(), embed.Config{Dir: dir, RaftLog: again})
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
		if s, err := embed.Open(t.Context(), embed.Config{Dir: dir, RaftLog: other}); err == nil || !strings.Contains(err.Error(), "Raft log of kind") {
			t.Errorf("%q, opened as %q: %v, %v", kind, other, s, err)
		}
	}
	if _, err := embed.Open(t.Context(), embed.Config{Dir: t.TempDir(), RaftLog: "bolt"}); err == nil || !strings.Contains(err.Error(), "want boltdb or wal") {
		t.Errorf("a log that does not exist: %v", err)
	}
}
