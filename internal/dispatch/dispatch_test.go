package dispatch

import (
	"slices"
	"testing"
	"time"
)

func TestCredit(t *testing.T) {
	var c credit
	if c.left() != 0 {
		t.Error("a worker that has not introduced itself has credit")
	}
	for _, step := range []struct {
		what string
		do   func()
		want int
	}{
		{"away until it introduces itself", func() { c.away = true }, 0},
		{"four slots", func() { c.introduced(4, 0, false) }, 4},
		{"three taken", func() { c.taken = 3 }, 1},
		{"a stray takes the last", func() { c.introduced(4, 1, false) }, 0},
		{"more strays than slots", func() { c.introduced(4, 9, false) }, 0},
		{"its strays have returned", func() { c.introduced(4, 0, false) }, 1},
		{"a push was refused", func() { c.closed = true }, 0},
		{"the next heartbeat opens it", func() { c.introduced(4, 0, false) }, 1},
		{"it drains", func() { c.introduced(4, 0, true) }, 0},
		{"it is unlimited", func() { c.introduced(0, 0, false) }, leastWindow},
		{"sixty unanswered", func() { c.open = 60 }, 4},
		{"half answered", func() { c.answered(30) }, 34},
		{"all answered", func() { c.answered(30) }, 2 * leastWindow},
		{"answered again and again", func() {
			for range 20 {
				c.open = 1
				c.answered(1)
			}
		}, mostWindow},
	} {
		step.do()
		if got := c.left(); got != step.want {
			t.Fatalf("%s: %d left, want %d (%+v)", step.what, got, step.want, c)
		}
	}
}

// A worker remembers what it ended for two leases, and no longer.
func TestReceiverForgets(t *testing.T) {
	r := NewReceiver(0)
	lease := 15 * time.Second
	now := Stamp(0)
	for n := range 1000 {
		a := attempt(1, uint32(n+1))
		if !r.Accepts(Push{Heard: now, Lease: lease}, now) {
			t.Fatal("a fresh push is not accepted")
		}
		if v, begin := r.Receive(a, true, now); v != Began || !begin {
			t.Fatalf("attempt %d: %d, begin %v", a.N, v, begin)
		}
		if v, begin := r.Receive(a, true, now); v != Began || begin {
			t.Fatalf("attempt %d, pushed again: %d, begin %v", a.N, v, begin)
		}
		r.Returned(a)
		r.Ended(a, now)
		if v, begin := r.Receive(a, true, now); v != Over || begin {
			t.Fatalf("attempt %d, pushed after its end: %d, begin %v", a.N, v, begin)
		}
		now += time.Second
	}
	if n := len(r.past); n > 31 || n != len(r.order) {
		t.Errorf("%d ended attempts are remembered, %d in order", n, len(r.order))
	}
	if r.Accepts(Push{Heard: now - 10*time.Second - 1, Lease: lease}, now) {
		t.Error("a push is accepted later than two thirds of a lease after the heartbeat that it names")
	}
}

// A handler that goes on after its attempt was lost takes its slot until it returns, and another attempt of its run
// does not begin beside it.
func TestReceiverStrays(t *testing.T) {
	r := NewReceiver(2)
	lost := attempt(1, 1)
	r.Receive(lost, true, 0)
	r.Ended(lost, 1)
	var named []Attempt
	if strays := r.Names(func(a Attempt) { named = append(named, a) }); strays != 1 || len(named) != 0 {
		t.Errorf("%d strays, named %v", strays, named)
	}
	if v, _ := r.Receive(attempt(1, 2), true, 2); v != Refused {
		t.Errorf("the next attempt of the same run: %d", v)
	}
	if v, _ := r.Receive(attempt(2, 1), true, 2); v != Began {
		t.Errorf("another run: %d", v)
	}
	if v, _ := r.Receive(attempt(3, 1), true, 2); v != Refused {
		t.Errorf("a third: %d", v)
	}
	r.Returned(lost)
	if strays := r.Names(func(Attempt) {}); strays != 0 {
		t.Errorf("%d strays after it returned", strays)
	}
	if v, _ := r.Receive(attempt(4, 1), true, 3); v != Began {
		t.Errorf("in its slot: %d", v)
	}
	r.Away(true)
	if v, _ := r.Receive(attempt(5, 1), true, 3); v != Refused {
		t.Errorf("while away: %d", v)
	}
}

// Heartbeats that were overtaken change nothing, and a worker of which a leader has not heard for two thirds of a lease
// gets nothing new.
func TestSenderHearsTheNewest(t *testing.T) {
	s := NewSender(15*time.Second, 0)
	w := workerOf(0)
	var acts Acts
	if s.Seat(w).Credit(0) != 0 {
		t.Error("credit before a heartbeat")
	}
	s.Heartbeat(Heartbeat{Worker: w, Sent: 10, Slots: 4}, 100, &acts)
	s.Heartbeat(Heartbeat{Worker: w, Sent: 5, Slots: 8}, 101, &acts)
	if n := s.Seat(w).Credit(101); n != 4 {
		t.Errorf("credit %d after a heartbeat that was overtaken", n)
	}
	if n := s.Seat(w).Credit(100 + 10*time.Second + 1); n != 0 {
		t.Errorf("credit %d of a worker that has been silent", n)
	}
	stranger := attempt(7, 3)
	s.Heartbeat(Heartbeat{Worker: w, Sent: 11, Slots: 4, Names: []Attempt{stranger}}, 102, &acts)
	if !slices.Equal(acts.Stop, []Attempt{stranger}) {
		t.Errorf("to stop: %v", acts.Stop)
	}
}
