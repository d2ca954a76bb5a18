package membus_test

import (
	"testing"
	"testing/synctest"
	"time"

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

func TestATakeOfNoQueueIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t).As(t, bus.Principal{Tenant: "default", Role: bus.Worker, Name: "w"})
		began := time.Now()
		_, _, err := b.Take(t.Context(), "offers-1", bus.Lane{Tenant: "default", App: "a"}, 1)
		if err == nil || time.Since(began) < 100*time.Millisecond {
			t.Fatalf("answered %v after %v: a caller that asks again at once would spin", err, time.Since(began))
		}
	})
}

func TestAnOfferListStaysUntilItIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t)
		node := h.As(t, bus.Principal{Role: bus.Node, Name: "n"})
		queue, err := node.Open(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		lane := bus.Lane{Tenant: "default", App: "a"}
		if err := node.Offer(t.Context(), queue, lane, make([]bus.Offer, 2)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(48 * time.Hour)
		list, done, err := h.As(t, bus.Principal{Tenant: "default", Role: bus.Worker, Name: "w"}).Take(t.Context(), queue, lane, 1)
		if err != nil || len(list) != 2 {
			t.Fatalf("%v, %v", list, err)
		}
		done()
	})
}
