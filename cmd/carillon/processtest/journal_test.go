//go:build unix

package processtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// line is one line of a handler's journal.
type line struct {
	What    string    `json:"what"` // began or ended
	Run     jobs.ID   `json:"run"`
	Key     jobs.Key  `json:"key"`
	Due     time.Time `json:"due"`
	Attempt uint32    `json:"attempt"`
	PID     int       `json:"pid"`
	At      time.Time `json:"at"`
	Cause   string    `json:"cause,omitempty"` // why its context had ended when it did
}

const (
	began = "began"
	ended = "ended"
)

// journal is a file outside of the system, one for each process.
type journal struct{ file *os.File }

func openJournal(dir string) (*journal, error) {
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%d.jsonl", os.Getpid())), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &journal{f}, err
}

// write adds a line, in one write, and has it on disk when it returns.
func (j *journal) write(l line) error {
	raw, err := json.Marshal(l)
	if err == nil {
		_, err = j.file.Write(append(raw, '\n'))
	}
	if err == nil {
		err = j.file.Sync()
	}
	return err
}

// readJournals reads what all processes have written, in order of time. A process may be writing: what has no end
// yet is left out.
func readJournals(dir string) ([]line, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var all []line
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for {
			text, rest, whole := bytes.Cut(raw, []byte("\n"))
			if !whole {
				break
			}
			var l line
			if err := json.Unmarshal(text, &l); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all, raw = append(all, l), rest
		}
	}
	slices.SortStableFunc(all, func(a, b line) int { return a.At.Compare(b.At) })
	return all, nil
}
