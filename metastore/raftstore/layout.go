package raftstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// RowsFolder is the folder of a data directory that is the Dir of a store. What else a program stores, such as tokens
// and the files of a NATS server, lies beside it.
const RowsFolder = "rows"

// archiveFolder is the folder of finished runs in the Dir of a store.
const archiveFolder = "archive"

// RowsIn returns the Dir of the store in a data directory. It refuses a directory that has a store elsewhere: a new
// store beside that one would start empty.
func RowsIn(data string) (string, error) {
	for _, name := range []string{nodeFile, keyFile, filepath.Join(archiveFolder, "mark")} {
		if !exists(filepath.Join(data, name)) {
			continue
		}
		if abs, err := filepath.Abs(data); err == nil && filepath.Base(abs) == RowsFolder {
			return "", kernel.Refuse(jobs.Conflict, "directory %s is the folder %s of a data directory: use %s", data, RowsFolder, filepath.Dir(abs))
		}
		return "", kernel.Refuse(jobs.Conflict, "directory %s has the file %s of a store, which belongs into %s: use another directory",
			data, name, filepath.Join(data, RowsFolder))
	}
	rows := filepath.Join(data, RowsFolder)
	if exists(rows) {
		return rows, nil
	}
	entries, err := os.ReadDir(data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("open the data directory: %w", err)
	}
	for _, e := range entries {
		if one := filepath.Join(data, e.Name()); exists(filepath.Join(one, RowsFolder, nodeFile)) {
			return "", kernel.Refuse(jobs.Conflict, "directory %s has no store, but %s has one: use that, or another directory", data, one)
		}
	}
	return rows, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
