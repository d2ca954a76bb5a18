package metastore

import (
	"context"
	"encoding/json"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Logs stores what handlers wrote. Log lines are not metadata: they travel and are stored beside the rows, and the
// last second of them may be lost in a crash.
type Logs interface {
	// Append stores lines. A line that is stored already (same run, attempt and sequence) is ignored. Lines beyond
	// MaxLog bytes of an attempt are dropped, and one last line notes it.
	Append(ctx context.Context, lines []LogLine) error
	// Read lists the lines of a run after a position, oldest first: at most limit, and the next position.
	Read(ctx context.Context, tenant jobs.Tenant, run jobs.ID, after LogPosition, limit int) ([]LogLine, error)
}

// MaxLog is how much log is kept of one attempt.
const MaxLog = 1 << 20

// LogPosition is a place in a run's log.
type LogPosition struct {
	Attempt  uint32
	Sequence uint64
}

// LogLine is one line a handler wrote.
type LogLine struct {
	Tenant jobs.Tenant
	Run    jobs.ID
	LogPosition
	At    time.Time // by the worker's clock
	Level string    // DEBUG INFO WARN ERROR
	Text  string    // message and attributes, at most 8 KiB
}

// EncodeLogLines writes lines for a signal, as JSON: people read them in the end.
func EncodeLogLines(lines []LogLine) []byte {
	b, err := json.Marshal(lines)
	if err != nil {
		panic(err) // texts, numbers and times can always be written
	}
	return b
}

// DecodeLogLines reads what EncodeLogLines wrote.
func DecodeLogLines(b []byte) ([]LogLine, error) {
	var lines []LogLine
	if err := json.Unmarshal(b, &lines); err != nil {
		return nil, kernel.Invalid("invalid log lines: %v", err)
	}
	return lines, nil
}
