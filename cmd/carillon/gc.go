package main

import (
	"bytes"
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"time"
)

// A scheduler with few live runs makes much garbage: with Go's default it would collect a heap of a few MiB many times
// a second. So garbage may grow to a part of the machine's memory before a collection, within these bounds. (Measured:
// with 128 MiB a fifth of a job's processor time is the collector's, with 512 MiB a tenth.)
const (
	partForGarbage = 32
	leastGarbage   = 32 << 20
	mostGarbage    = 512 << 20
)

// headroom returns how much garbage a process that may use memory bytes can collect late, 0 if memory is unknown.
func headroom(memory uint64) uint64 {
	if memory == 0 {
		return 4 * leastGarbage
	}
	return min(max(memory/partForGarbage, leastGarbage), mostGarbage)
}

// memory returns how many bytes this process may use on Linux: the machine's, or the container's.
func memory() uint64 {
	var most uint64
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		if _, rest, ok := bytes.Cut(b, []byte("MemTotal:")); ok {
			if f := bytes.Fields(rest); len(f) > 0 {
				most, _ = strconv.ParseUint(string(f[0]), 10, 64)
				most <<= 10
			}
		}
	}
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if b, err := os.ReadFile(path); err == nil {
			if n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64); err == nil && n > 0 && (most == 0 || n < most) {
				most = n
			}
		}
	}
	return most
}

// collectLazily lets the garbage collector run at Go's default pace, but not before the headroom is used up, until ctx
// ends. GOGC or GOMEMLIMIT turn this off.
func collectLazily(ctx context.Context) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	room := headroom(memory())
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	set := 100
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		metrics.Read(sample)
		live := max(sample[0].Value.Uint64(), 4<<20)
		want := int(max(100, room*100/live))
		if want > set*5/4 || want < set*4/5 {
			debug.SetGCPercent(want)
			set = want
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
