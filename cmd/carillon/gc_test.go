package main

import "testing"

func TestHeadroom(t *testing.T) {
	const mib = 1 << 20
	for memory, want := range map[uint64]uint64{0: 128 * mib, 256 * mib: 32 * mib, 4096 * mib: 128 * mib, 65536 * mib: 512 * mib} {
		if got := headroom(memory); got != want {
			t.Errorf("of %d MiB %d MiB may be garbage, want %d", memory/mib, got/mib, want/mib)
		}
	}
	if m := memory(); m > 0 && m < 64*mib {
		t.Errorf("this machine has %d bytes of memory", m)
	}
}
