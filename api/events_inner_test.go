package api

import "testing"

// A client with many open streams leaves those of others alone, and one that it closes makes room.
func TestStreamsOfOnePrincipal(t *testing.T) {
	var s streams
	opened := 0
	for range 2 * maxStreams {
		if s.open("greedy") {
			opened++
		}
	}
	if opened != maxStreams || !s.open("modest") {
		t.Errorf("one has %d streams, want %d, and another one can open one", opened, maxStreams)
	}
	if s.close("greedy"); !s.open("greedy") || s.open("greedy") {
		t.Error("a closed stream makes room for one")
	}
}
