package metastore

import (
	"fmt"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// liveHeap estimates how much data a process holds: what the last garbage collection found to be in use, and what was
// admitted since it began. The collector's own figures of the time since are no estimate: they count garbage, too.
type liveHeap struct {
	read func() heap

	mu     sync.Mutex
	at     time.Time // of the last look
	seen   heap
	since  int64 // bytes admitted since the last collection ended
	before int64 // bytes admitted between it and the one before: it may have missed them
}

// heap is what the runtime knows.
type heap struct {
	live   int64 // bytes that the last collection found in use
	cycles uint64
	limit  int64 // Go's memory limit; math.MaxInt64 = none
}

const (
	// partForData is how much of Go's memory limit, in percent, may be data: near the limit the collector would take most
	// of the processor's time.
	partForData = 75
	// rowSize is what a run or a job may need in memory, with its places in indexes, in addition to what was sent.
	rowSize = 2 << 10
	// lookEvery is the age of a figure that is read again.
	lookEvery = 50 * time.Millisecond
)

func readHeap() heap {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(s)
	return heap{live: int64(s[0].Value.Uint64()), cycles: s[1].Value.Uint64(), limit: debug.SetMemoryLimit(-1)}
}

// admit returns why a row of so many bytes has no room, or nil.
func (l *liveHeap) admit(bytes int) error {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.at) >= lookEvery {
		is := l.read()
		if is.cycles != l.seen.cycles {
			l.before, l.since = l.since, 0
		}
		l.at, l.seen = now, is
	}
	if l.seen.limit == math.MaxInt64 {
		return nil
	}
	most := l.seen.limit / 100 * partForData
	if live := l.seen.live + l.before + l.since; live >= most {
		return kernel.Exhausted(kernel.BoundMemory, "too little memory: the leader holds %s of data and accepts no runs and jobs beyond %s, %d %% of its memory limit: try again when some runs have ended, cancel some, or give it more memory (the container's limit, or GOMEMLIMIT)", mib(live), mib(most), partForData)
	}
	l.since += int64(bytes) + rowSize
	return nil
}

func mib(bytes int64) string { return fmt.Sprintf("%d MiB", bytes>>20) }
