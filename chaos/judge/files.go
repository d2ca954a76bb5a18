package judge

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// The files of a case, in one directory. All but the setup have one JSON value for each line. Each process writes its
// own file; the name before the dash is the kind.
const (
	setupFile   = "setup.json"
	specFiles   = "spec-*.jsonl"
	lineFiles   = "journal-*.jsonl"
	opFiles     = "history-*.jsonl"
	faultFiles  = "fault-*.jsonl"
	storeFiles  = "store-*.jsonl"
	filePattern = "%s-%s.jsonl"
)

// File names a file of a case.
func file(kind, writer string) string { return fmt.Sprintf(filePattern, kind, writer) }

// JournalFile is where a worker process writes its lines.
func JournalFile(writer string) string { return file("journal", writer) }

// HistoryFile is where a client writes its operations, each when it has ended.
func HistoryFile(writer string) string { return file("history", writer) }

// FaultFile is where the driver of the faults writes them.
func FaultFile(writer string) string { return file("fault", writer) }

// SpecFile holds jobs as they were at first.
func SpecFile(writer string) string { return file("spec", writer) }

// StoreFile holds a reading of the store. They are in order of time if their writers' names are in order.
func StoreFile(writer string) string { return file("store", writer) }

// Writer appends lines to a file, each in one write. It may be used from several goroutines.
type Writer struct {
	mu   sync.Mutex
	file *os.File
}

// Open opens a file for appending, and makes it and its directory if need be.
func Open(dir, name string) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Writer{file: f}, nil
}

// Write adds a line. It is in the file, whatever happens to the process, when Write returns.
func (w *Writer) Write(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.file.Write(append(raw, '\n'))
	return err
}

// Close closes the file.
func (w *Writer) Close() error { return w.file.Close() }

// WriteSetup writes what the driver means to do.
func WriteSetup(dir string, s Setup) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, setupFile), append(raw, '\n'), 0o600)
}

// Save writes a whole case into a directory, to be looked at again.
func (c *Case) Save(dir string) error {
	err := WriteSetup(dir, c.Setup)
	return errors.Join(err,
		save(dir, SpecFile("all"), c.Specs), save(dir, JournalFile("all"), c.Journal), save(dir, HistoryFile("all"), c.History),
		save(dir, FaultFile("all"), c.Faults), save(dir, StoreFile("all"), c.Stores))
}

func save[T any](dir, name string, list []T) error {
	w, err := Open(dir, name)
	if err != nil {
		return err
	}
	for _, v := range list {
		err = errors.Join(err, w.Write(v))
	}
	return errors.Join(err, w.Close())
}

// Load reads a case that was written into a directory.
func Load(dir string) (c *Case, err error) {
	c = &Case{}
	raw, err := os.ReadFile(filepath.Join(dir, setupFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		if err := json.Unmarshal(raw, &c.Setup); err != nil {
			return nil, fmt.Errorf("%s: %w", setupFile, err)
		}
	}
	if c.Specs, err = load[Spec](dir, specFiles); err != nil {
		return nil, err
	}
	if c.Journal, err = load[Line](dir, lineFiles); err != nil {
		return nil, err
	}
	if c.History, err = load[Op](dir, opFiles); err != nil {
		return nil, err
	}
	if c.Faults, err = load[Fault](dir, faultFiles); err != nil {
		return nil, err
	}
	if c.Stores, err = load[Store](dir, storeFiles); err != nil {
		return nil, err
	}
	slices.SortStableFunc(c.Journal, func(a, b Line) int { return cmp.Compare(a.At.Mono, b.At.Mono) })
	slices.SortStableFunc(c.History, func(a, b Op) int { return cmp.Compare(a.Invoked.Mono, b.Invoked.Mono) })
	slices.SortStableFunc(c.Faults, func(a, b Fault) int { return cmp.Compare(a.Begin.Mono, b.Begin.Mono) })
	slices.SortStableFunc(c.Stores, func(a, b Store) int { return cmp.Compare(a.At.Mono, b.At.Mono) })
	return c, nil
}

// load reads all files of a kind. A process that was killed while it wrote has left half a line: that is left out.
func load[T any](dir, pattern string) (all []T, err error) {
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for n := 1; ; n++ {
			text, rest, whole := bytes.Cut(raw, []byte("\n"))
			if !whole {
				break
			}
			var v T
			if err := json.Unmarshal(text, &v); err != nil {
				return nil, fmt.Errorf("%s: line %d: %w", name, n, err)
			}
			all, raw = append(all, v), rest
		}
	}
	return all, nil
}
