package main

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// A scheduler with few live runs makes much garbage: with Go's default it would collect a heap of a few MiB many times
// a second. So garbage may grow to a part of the machine's memory before a collection, within these bounds. (Measured:
// with 128 MiB a fifth of a job's processor time is the collector's, with 512 MiB a tenth.)
const (
	partForGarbage = 32
	leastGarbage   = 32 << 20
	mostGarbage    = 512 << 20
	mostPart       = 8 // a small limit leaves at most this part to garbage, even if that is below leastGarbage
)

// headroom returns how much garbage a process that may use memory bytes can collect late, 0 if memory is unknown.
func headroom(memory uint64) uint64 {
	if memory == 0 {
		return 4 * leastGarbage
	}
	return min(max(memory/partForGarbage, leastGarbage), mostGarbage, memory/mostPart)
}

// partForGo is how much of the memory of a container or machine, in percent, Go may use: the rest is for stacks of
// threads, mapped files and page cache, and the kernel kills a process that exceeds the whole.
const partForGo = 90

// limitMemory sets Go's memory limit to partForGo of the cgroup's, or else of the machine's memory, unless GOMEMLIMIT is
// set. It returns how many bytes this process may use, 0 if that is unknown.
func limitMemory(cgroup, machine memlimit.Provider) uint64 {
	given := os.Getenv("GOMEMLIMIT") != ""
	if limit := debug.SetMemoryLimit(-1); given && limit < math.MaxInt64 {
		return uint64(limit)
	}
	total, err := machine()
	if err != nil {
		total = 0
	}
	limit, err := cgroup()
	if err != nil || limit == 0 || total > 0 && limit >= total { // an error: there is no limit
		limit = total
	}
	if !given && limit > 0 { // given: it is "off"
		debug.SetMemoryLimit(int64(min(limit, math.MaxInt64) / 100 * partForGo))
	}
	return limit
}

// collectLazily lets the garbage collector run at Go's default pace, but not before the headroom is used up, until ctx
// ends. GOGC turns this off. Near the memory limit, Go collects earlier.
func collectLazily(ctx context.Context) {
	room := headroom(limitMemory(memlimit.FromCgroup, memlimit.FromSystem))
	if os.Getenv("GOGC") != "" {
		return
	}
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
