package tests

import (
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// A test program that uses this package collects garbage a quarter as often as others: collections are a fifth of the
// CPU seconds of tests, whose heaps are small. Benchmarks measure programs as they are, GOGC decides if it is set, and
// the race detector needs the memory itself.
func init() {
	benchmarks := slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.bench=") })
	if testing.Testing() && !benchmarks && !raceEnabled && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
