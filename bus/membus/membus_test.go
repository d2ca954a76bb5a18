package membus_test

import (
	"testing"
	"testing/synctest"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest"
	"github.com/carillon-scheduler/carillon/bus/membus"
)

func open(*testing.T) bustest.Harness {
	hub := membus.New()
	return bustest.Harness{As: func(t *testing.T, p bus.Principal) bus.Bus {
		b := hub.As(p)
		t.Cleanup(func() { _ = b.Close() })
		return b
	}}
}

func TestBus(t *testing.T) { bustest.Run(t, open) }

// In a bubble a goroutine left behind, or one that waits for something outside, ends the test with an error.
func TestInBubbles(t *testing.T) {
	for _, c := range bustest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Test(t, open(t)) })
		})
	}
}

// Of several that accept at one address the newest gets the pushes, and when it has gone the one before it.
func TestTheNewestAccepts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t)
		node := h.As(t, bus.Principal{Role: bus.Node, Name: "n"})
		at := bus.Address{Tenant: "default", App: "a", Worker: "w"}
		var ends []bus.Bus
		for i := range byte(3) {
			b := h.As(t, bus.Principal{Tenant: "default", Role: bus.Worker, Name: "w", App: "a"})
			if err := b.Accept(t.Context(), at, func([]byte) ([]byte, func()) { return []byte{i}, nil }); err != nil {
				t.Fatal(err)
			}
			ends = append(ends, b)
		}
		for i := 2; i >= 0; i-- {
			answer, err := node.Push(t.Context(), at, nil)
			if err != nil || len(answer) != 1 || answer[0] != byte(i) {
				t.Fatalf("number %d is the newest, the answer is %v, %v", i, answer, err)
			}
			_ = ends[i].Close()
		}
	})
}
