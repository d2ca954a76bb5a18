package memstore

import (
	"context"
	"slices"
	"sync"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Logs stores log lines in memory, and drops those of the runs that wrote first.
type Logs struct {
	mu    sync.RWMutex
	most  int
	bytes int
	runs  map[archived]*runLog
	order []archived // by their first lines
}

// runLog is what one run wrote, in order.
type runLog struct {
	lines    []metastore.LogLine
	bytes    int
	attempts map[uint32]int // bytes of each attempt, or full
}

const full = -1

var _ metastore.Logs = (*Logs)(nil)

// DefaultLogs is how many bytes of log lines a Logs keeps by default.
const DefaultLogs = 64 << 20

// NewLogs makes a Logs of at most about maxBytes of log lines. 0 means DefaultLogs.
func NewLogs(maxBytes int) *Logs {
	if maxBytes <= 0 {
		maxBytes = DefaultLogs
	}
	return &Logs{most: maxBytes, runs: make(map[archived]*runLog)}
}

// Append stores lines.
func (l *Logs) Append(_ context.Context, lines []metastore.LogLine) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range lines {
		line := lines[i]
		name := archived{line.Tenant, line.Run}
		r := l.runs[name]
		if r == nil {
			r = &runLog{attempts: make(map[uint32]int)}
			l.runs[name] = r
			l.order = append(l.order, name)
		}
		l.bytes += r.add(line)
	}
	for l.bytes > l.most && len(l.order) > 1 {
		l.bytes -= l.runs[l.order[0]].bytes
		delete(l.runs, l.order[0])
		l.order = l.order[1:]
	}
	return nil
}

// drop removes the lines of some runs.
func (l *Logs) drop(gone map[archived]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order = slices.DeleteFunc(l.order, func(name archived) bool {
		if gone[name] {
			l.bytes -= l.runs[name].bytes
			delete(l.runs, name)
		}
		return gone[name]
	})
}

// add stores a line, if there is room, and returns its size in bytes.
func (r *runLog) add(line metastore.LogLine) int {
	i, found := r.find(line.LogPosition)
	if found || r.attempts[line.Attempt] == full {
		return 0
	}
	size := line.Size()
	if r.attempts[line.Attempt]+size > metastore.MaxLog {
		r.attempts[line.Attempt] = full
		line = line.Cut()
	} else {
		r.attempts[line.Attempt] += size
	}
	r.lines = slices.Insert(r.lines, i, line)
	r.bytes += size
	return size
}

func (r *runLog) find(p metastore.LogPosition) (int, bool) {
	return slices.BinarySearchFunc(r.lines, p, func(l metastore.LogLine, p metastore.LogPosition) int {
		return l.Compare(p)
	})
}

// Read lists the lines of a run after a position, oldest first.
func (l *Logs) Read(_ context.Context, tenant jobs.Tenant, run jobs.ID, after metastore.LogPosition, limit int) ([]metastore.LogLine, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	r := l.runs[archived{tenant, run}]
	if r == nil {
		return nil, nil
	}
	i, found := r.find(after)
	if found {
		i++
	}
	lines := r.lines[i:]
	if limit > 0 && limit < len(lines) {
		lines = lines[:limit]
	}
	return slices.Clone(lines), nil
}
