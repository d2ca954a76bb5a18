package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// headroom is how much garbage a process may gather before it is collected, whatever little it keeps. A scheduler
// with few live runs makes much garbage: with Go's default it would collect a heap of a few MiB many times a second
// (measured: a fifth of a job's processor time).
const headroom = 128 << 20

// collectLazily lets the garbage collector run at Go's default pace, but not before headroom is used up, until ctx
// ends. Whoever sets GOGC or GOMEMLIMIT has decided for himself.
func collectLazily(ctx context.Context) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	set := 100
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		metrics.Read(sample)
		live := max(sample[0].Value.Uint64(), 4<<20)
		want := int(max(100, headroom*100/live))
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
