package raftstore

import (
	"runtime"
	"testing"
)

// A run, from its creation to the archive, leaves little garbage: collecting it would be a large part of the cost of
// a run. The bounds are at least a fifth above the measured values.
func TestGarbageOfARun(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir()})
	do(t, s, register("k"))
	finish(t, s, 1000)
	const runs = 20_000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs / 1000 {
		finish(t, s, 1000)
	}
	if err := s.archive.Sync(); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	pieces, bytes := (after.Mallocs-before.Mallocs)/runs, (after.TotalAlloc-before.TotalAlloc)/runs
	t.Logf("%d pieces of memory for a run, %d bytes", pieces, bytes)
	if pieces > 24 || bytes > 8_800 {
		t.Errorf("a run takes %d pieces of memory and %d bytes, 24 and 8,800 are bearable", pieces, bytes)
	}
}
