package main

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const mib = 1 << 20

func TestHeadroom(t *testing.T) {
	for memory, want := range map[uint64]uint64{0: 128 * mib, 64 * mib: 8 * mib, 128 * mib: 16 * mib, 256 * mib: 32 * mib, 4096 * mib: 128 * mib, 65536 * mib: 512 * mib} {
		if got := headroom(memory); got != want {
			t.Errorf("of %d MiB %d MiB may be garbage, want %d", memory/mib, got/mib, want/mib)
		}
	}
}

// The cgroup's limit, or the machine's memory, bounds the heap, unless GOMEMLIMIT does.
func TestLimitMemory(t *testing.T) {
	unlimited := func() (uint64, error) { return 0, memlimit.ErrNoLimit }
	foreign := func() (uint64, error) { return 0, memlimit.ErrCgroupsNotSupported }
	for _, c := range []struct {
		name            string
		environment     string
		cgroup, machine memlimit.Provider
		limit           int64 // that Go has then
		memory          uint64
	}{
		{"a container", "", memlimit.Limit(200 * mib), memlimit.Limit(4096 * mib), 200 * mib / 100 * 90, 200 * mib},
		{"no limit", "", unlimited, memlimit.Limit(4096 * mib), 4096 * mib / 100 * 90, 4096 * mib},
		{"a limit beyond the machine", "", memlimit.Limit(8192 * mib), memlimit.Limit(4096 * mib), 4096 * mib / 100 * 90, 4096 * mib},
		{"another system", "", foreign, unlimited, math.MaxInt64, 0},
		{"GOMEMLIMIT", "100MiB", memlimit.Limit(200 * mib), memlimit.Limit(4096 * mib), 100 * mib, 100 * mib},
		{"GOMEMLIMIT=off", "off", memlimit.Limit(200 * mib), memlimit.Limit(4096 * mib), math.MaxInt64, 200 * mib},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("GOMEMLIMIT", c.environment)
			before := int64(math.MaxInt64) // what the runtime has read from the environment
			if c.environment == "100MiB" {
				before = 100 * mib
			}
			defer debug.SetMemoryLimit(debug.SetMemoryLimit(before))
			if memory := limitMemory(c.cgroup, c.machine); memory != c.memory {
				t.Errorf("it may use %d bytes, want %d", memory, c.memory)
			}
			if limit := debug.SetMemoryLimit(-1); limit != c.limit {
				t.Errorf("Go's limit is %d bytes, want %d", limit, c.limit)
			}
		})
	}
}
