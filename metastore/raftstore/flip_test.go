package raftstore

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/backup"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk/fliptest"
)

// One wrong bit of any file of a node, or a truncated file, changes nothing at its start, or is refused.
func TestABitOfANode(t *testing.T) {
	read := func(dir string) (string, error) {
		f, err := Freeze(Config{Dir: dir})
		if err != nil {
			return "", err
		}
		defer f.Close()
		all, err := metastore.Take(context.Background(), f)
		if err != nil {
			return "", err
		}
		term, err := f.store.log.GetUint64(keyTerm)
		if err != nil {
			return "", err
		}
		voted, err := f.store.log.GetUint64(keyVoteTerm)
		if err != nil {
			return "", err
		}
		vote, err := f.store.log.Get(keyVote)
		return fmt.Sprint(all, term, voted, vote), err
	}
	for _, test := range []struct {
		kind  string
		files string
	}{
		{LogBolt, "node.json"},
		{LogBolt, "snapshots/*/state.bin"},
		{LogBolt, "snapshots/*/meta.json"},
		{LogBolt, "raft.db"},
		{LogWAL, "wal/*.wal"},
		{LogWAL, "wal/wal-meta.db"},
		{LogBolt, "archive/open"},
		{LogBolt, "archive/mark"},
		{LogBolt, "archive/*.seg"},
		{LogBolt, "logs/*.log"},
	} {
		t.Run(string(test.kind)+" "+test.files, func(t *testing.T) {
			c := filled(t, test.kind)
			whole, err := read(c.Dir)
			if err != nil {
				t.Fatal(err)
			}
			lines := regexp.MustCompile(`[0-9]+ log lines`)
			allowed := func(content, _ string, _ int) bool { // a block of lines, or those behind an end that is torn
				return test.files == "logs/*.log" && lines.ReplaceAllString(content, "") == lines.ReplaceAllString(whole, "")
			}
			fliptest.Run(t, fliptest.Format{Dir: c.Dir, Files: test.files, Read: read, Allowed: allowed, Places: tests.Size(3, 20, 200)})
		})
	}
}

// The same for a backup.
func TestABitOfABackup(t *testing.T) {
	from, err := Freeze(filled(t, LogBolt))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	dir := t.TempDir()
	_, err = backup.Save(t.Context(), filepath.Join(dir, "a.backup"), func(to io.Writer) error {
		_, err := backup.Write(t.Context(), to, backup.Head{}, from)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	read := func(dir string) (string, error) {
		f, err := backup.Open(context.Background(), filepath.Join(dir, "a.backup"))
		if err != nil {
			return "", err
		}
		all, err := metastore.Take(context.Background(), f)
		return fmt.Sprint(all), err
	}
	fliptest.Run(t, fliptest.Format{Dir: dir, Files: "a.backup", Read: read, Places: tests.Size(20, 200, 0)})
}
