//go:build faults

package embed

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// wall is shifted by the nanoseconds in the file that CHAOS_CLOCK names, so that chaos tests can set a node's clock.
var wall = func() time.Time {
	return time.Now().Add(offset(os.Getenv("CHAOS_CLOCK")))
}

// clockHolds is how long an offset is used before the file is read again.
const clockHolds = 20 * time.Millisecond

var clock struct {
	sync.Mutex
	read  time.Time
	ahead time.Duration
}

func offset(path string) time.Duration {
	clock.Lock()
	defer clock.Unlock()
	if path == "" || time.Since(clock.read) < clockHolds {
		return clock.ahead
	}
	clock.read = time.Now()
	if raw, err := os.ReadFile(path); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64); err == nil {
			clock.ahead = time.Duration(n)
		}
	}
	return clock.ahead
}
