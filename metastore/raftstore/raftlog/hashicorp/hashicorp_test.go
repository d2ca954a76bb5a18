package hashicorp_test

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/metastore/raftstore/raftlog"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/raftlog/hashicorp"
)

// raft-boltdb and our own reader and writer of its format are the same log: each reads what the other has written, and
// deletes what the other would delete.
func TestBoltIsRaftBoltdb(t *testing.T) {
	theirs := hashicorp.Kinds()[1]
	if theirs.Name != raftlog.Bolt.Name || theirs.File != raftlog.Bolt.File {
		t.Fatalf("raft-boltdb is %s in %s", theirs.Name, theirs.File)
	}
	entries := make([]*raft.Log, 20)
	for i := range entries {
		entries[i] = &raft.Log{Index: uint64(i + 3), Term: uint64(i / 4), Type: raft.LogType(i % 3), Data: make([]byte, i), AppendedAt: time.Unix(int64(i)*1e7, int64(i)).UTC()}
		if i%5 == 0 {
			entries[i].Extensions = []byte("more")
		}
	}
	for _, kinds := range [][2]raftlog.Kind{{raftlog.Bolt, theirs}, {theirs, raftlog.Bolt}} {
		path := filepath.Join(t.TempDir(), "raft.db")
		first := open(t, kinds[0], path)
		must(t, first.StoreLogs(entries))
		must(t, first.DeleteRange(3, 4))
		must(t, first.DeleteRange(21, 22))
		must(t, first.Set([]byte("vote"), []byte("a node")))
		must(t, first.SetUint64([]byte("term"), 7))
		must(t, first.Close())

		second := open(t, kinds[1], path)
		from, err := second.FirstIndex()
		must(t, err)
		to, err := second.LastIndex()
		must(t, err)
		if from != 5 || to != 20 {
			t.Errorf("entries %d to %d, want 5 to 20", from, to)
		}
		for _, want := range entries[2:18] {
			var got raft.Log
			must(t, second.GetLog(want.Index, &got))
			if !got.AppendedAt.Equal(want.AppendedAt) {
				t.Errorf("entry %d was appended at %v, want %v", want.Index, got.AppendedAt, want.AppendedAt)
			}
			got.AppendedAt = want.AppendedAt
			if len(got.Data) == 0 {
				got.Data = want.Data
			}
			if !reflect.DeepEqual(&got, want) {
				t.Errorf("entry %+v, want %+v", got, *want)
			}
		}
		if err := second.GetLog(3, new(raft.Log)); err != raft.ErrLogNotFound {
			t.Errorf("a deleted entry: %v", err)
		}
		if vote, err := second.Get([]byte("vote")); err != nil || string(vote) != "a node" {
			t.Errorf("value %q, %v", vote, err)
		}
		if term, err := second.GetUint64([]byte("term")); err != nil || term != 7 {
			t.Errorf("number %d, %v", term, err)
		}
		if none, err := second.Get([]byte("none")); err != nil || none != nil {
			t.Errorf("no value: %q, %v", none, err)
		}
		if none, err := second.GetUint64([]byte("none")); err != nil || none != 0 {
			t.Errorf("no number: %d, %v", none, err)
		}
		must(t, second.Close())
	}
}

func open(t *testing.T, kind raftlog.Kind, path string) raftlog.Store {
	t.Helper()
	s, err := kind.Open(path, raftlog.Options{})
	must(t, err)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
