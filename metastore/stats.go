package metastore

import (
	"slices"
	"time"
)

// Histogram counts values by size. It is not locked: its owner does that.
type Histogram struct {
	Bounds []float64 // in order; shared by all copies
	Counts []uint64  // of the values up to each bound, and of those beyond the last
	Sum    float64
}

// NewHistogram makes a histogram with these bounds.
func NewHistogram(bounds ...float64) Histogram {
	return Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

// Observe counts a value.
func (h *Histogram) Observe(v float64) {
	i := 0
	for i < len(h.Bounds) && v > h.Bounds[i] {
		i++
	}
	h.Counts[i]++
	h.Sum += v
}

// Copy returns a copy of the histogram.
func (h *Histogram) Copy() Histogram {
	return Histogram{Bounds: h.Bounds, Counts: slices.Clone(h.Counts), Sum: h.Sum}
}

// Stats is a store's measurements, for monitoring. A store fills what it knows.
type Stats struct {
	Commits  uint64
	Commands uint64    // in these commits
	Sizes    Histogram // commands in a commit
	Seconds  Histogram // seconds of a commit

	Log       *LogStats       // nil = it has none
	Archive   *ArchiveStats   // nil = finished runs are not in files
	Unwritten *UnwrittenStats // nil = finished runs are stored by the commits that end them
}

// LogStats is the state of the log that nodes agree on, as this one has it.
type LogStats struct {
	Term    uint64
	Applied uint64        // index of the last entry that is in the rows
	Age     time.Duration // since the rows had all that was committed
	// Bytes of the entries since the last snapshot, and when that was taken. Zero: there is none, or another node takes
	// the snapshots.
	Bytes    int64
	Snapshot time.Time
}

// UnwrittenStats is the finished runs that may not be in the database yet.
type UnwrittenStats struct {
	Runs  int
	Bytes int64
}

// ArchiveStats is the size of the finished runs.
type ArchiveStats struct {
	Files int
	Bytes int64
}

// Measured is a store that reports Stats, which is cheap and may be called at any time.
type Measured interface {
	Stats() Stats
}
