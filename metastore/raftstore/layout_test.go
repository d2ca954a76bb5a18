package raftstore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/jobs"
)

// The rows of a data directory are in its folder rows. A directory with a store elsewhere is refused, so that no
// program starts empty beside it.
func TestRowsIn(t *testing.T) {
	for name, c := range map[string]struct {
		file, data string // a file that is there, and the directory that is opened
		want       string // of the error; "" = none
	}{
		"empty":                   {"", "data", ""},
		"a store":                 {"data/rows/node.json", "data", ""},
		"other files":             {"data/notes.txt", "data", ""},
		"a store at the top":      {"data/node.json", "data", "has the file node.json of a store, which belongs into"},
		"a damaged store":         {"data/archive/mark", "data", "has the file archive/mark of a store"},
		"only a key":              {"data/node.key", "data", "has the file node.key of a store"},
		"the folder rows":         {"data/rows/node.json", "data/rows", "is the folder rows of a data directory: use "},
		"the parent of the nodes": {"data/n1/rows/node.json", "data", "has no store, but "},
		"the directory of a node": {"data/n1/rows/node.json", "data/n1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			if c.file != "" {
				file := filepath.Join(top, c.file)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			rows, err := RowsIn(filepath.Join(top, c.data))
			switch {
			case c.want == "" && (err != nil || rows != filepath.Join(top, c.data, "rows")):
				t.Errorf("%s, %v", rows, err)
			case c.want != "" && (jobs.CodeOf(err) != jobs.Conflict || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s, %v", rows, err)
			}
		})
	}
}
