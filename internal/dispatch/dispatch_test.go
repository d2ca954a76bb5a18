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
	r := NewReceiver(0, 0)
	lease := 15 * time.Second
	now := Stamp(0)
	for n := range 1000 {
		a := attempt(1, uint32(n+1))
		if !r.Accepts(Push{Heard: now, Lease: lease}, now) {
			t.Fatal("a fresh push is not accepted")
		}
		if v, begin := r.Receive(a, 0, true, now); v != Began || !begin {
			t.Fatalf("attempt %d: %d, begin %v", a.N, v, begin)
		}
		if v, begin := r.Receive(a, 0, true, now); v != Began || begin {
			t.Fatalf("attempt %d, pushed again: %d, begin %v", a.N, v, begin)
		}
		r.Returned(a)
		r.Ended(a, now)
		if v, begin := r.Receive(a, 0, true, now); v != Over || begin {
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

// An attempt that was refused and is then to end is remembered for two leases from its end.
func TestReceiverRemembersTheLastEnd(t *testing.T) {
	r := NewReceiver(0, 0)
	lease := 15 * time.Second
	a := attempt(1, 1)
	if v, _ := r.Receive(a, 0, false, 0); v != Refused {
		t.Fatalf("without the code for it: %d", v)
	}
	r.Forgo(a, 0, lease)
	r.Accepts(Push{Heard: 2*lease + 1, Lease: lease}, 2*lease+1)
	if v, begin := r.Receive(a, 0, true, 2*lease+1); v != Over || begin {
		t.Errorf("pushed once more: %d, begin %v", v, begin)
	}
	r.Accepts(Push{Heard: 3*lease + 1, Lease: lease}, 3*lease+1)
	if len(r.past) != 0 || len(r.order) != 0 {
		t.Errorf("%d are remembered, %d in order", len(r.past), len(r.order))
	}
}

// What another process of the worker has begun is taken over in any case, but not beside another attempt of its run.
func TestReceiverAdopts(t *testing.T) {
	r := NewReceiver(0, 1)
	r.Away(true)
	for n, want := range []bool{true, false} {
		if got := r.Adopt(attempt(1, uint32(n+1)), 0); got != want {
			t.Errorf("attempt %d: %v", n+1, got)
		}
	}
	if !r.Adopt(attempt(2, 1), 0) || r.Busy() != 2 {
		t.Errorf("%d slots are taken, want one more than there are", r.Busy())
	}
	if v, begin := r.Receive(attempt(2, 1), 0, true, 0); v != Began || begin {
		t.Errorf("pushed: %d, begin %v", v, begin)
	}
}

// A handler that goes on after its attempt was lost takes its slot until it returns, and another attempt of its run
// does not begin beside it.
func TestReceiverStrays(t *testing.T) {
	r := NewReceiver(0, 2)
	lost := attempt(1, 1)
	r.Receive(lost, 0, true, 0)
	r.Ended(lost, 1)
	var named []Attempt
	if strays := r.Names(func(a Attempt) { named = append(named, a) }); strays != 1 || len(named) != 0 {
		t.Errorf("%d strays, named %v", strays, named)
	}
	if v, _ := r.Receive(attempt(1, 2), 0, true, 2); v != Refused {
		t.Errorf("the next attempt of the same run: %d", v)
	}
	if v, _ := r.Receive(attempt(2, 1), 0, true, 2); v != Began {
		t.Errorf("another run: %d", v)
	}
	if v, _ := r.Receive(attempt(3, 1), 0, true, 2); v != Refused {
		t.Errorf("a third: %d", v)
	}
	r.Returned(lost)
	if strays := r.Names(func(Attempt) {}); strays != 0 {
		t.Errorf("%d strays after it returned", strays)
	}
	if v, _ := r.Receive(attempt(4, 1), 0, true, 3); v != Began {
		t.Errorf("in its slot: %d", v)
	}
	r.Away(true)
	if v, _ := r.Receive(attempt(5, 1), 0, true, 3); v != Refused {
		t.Errorf("while away: %d", v)
	}
}

// What was pushed to a process of a worker, and is not answered, is not pushed to the next process that acts for the
// worker: both could begin it. The worker gets other attempts, and the lease of this one expires unless it is named.
func TestSenderRepeatsToOneProcess(t *testing.T) {
	lease := 15 * time.Second
	w, a, b := workerOf(0), attempt(1, 1), attempt(2, 1)
	for _, named := range []bool{false, true} {
		s := NewSender(lease, 0)
		var acts Acts
		s.Heartbeat(Heartbeat{Worker: w, Process: 1, Sent: 10, Slots: 4}, 0, &acts)
		s.Propose(a, w)
		s.Started(s.Find(a), 0, &acts)
		s.Tick(time.Second, &acts)
		if !slices.Equal(pushed(&acts), []Attempt{a, a}) {
			t.Fatalf("pushed to the first process: %v", pushed(&acts))
		}
		acts = Acts{}
		h := Heartbeat{Worker: w, Process: 2, Sent: 5, Slots: 4}
		if named {
			h.Names = []Attempt{a}
		}
		s.Heartbeat(h, 2*time.Second, &acts)
		s.Tick(3*time.Second, &acts)
		if n := s.Seat(w).Credit(3 * time.Second); len(acts.Push) > 0 || n != 3 {
			t.Errorf("named %v: pushed to the second: %v, credit %d", named, pushed(&acts), n)
		}
		s.Propose(b, w)
		s.Started(s.Find(b), 3*time.Second, &acts)
		if !slices.Equal(pushed(&acts), []Attempt{b}) {
			t.Errorf("named %v: pushed to the second: %v", named, pushed(&acts))
		}
		acts.Push = nil
		s.Heartbeat(Heartbeat{Worker: w, Process: 1, Sent: 11, Slots: 4}, 4*time.Second, &acts)
		if again := slices.Contains(pushed(&acts), a); again == named || slices.Contains(pushed(&acts), b) {
			t.Errorf("named %v: when the first acts again: %v", named, pushed(&acts))
		}
		s.Confirm(30 * time.Second)
		s.Lapsed(30*time.Second, &acts)
		if !slices.Contains(acts.Lapse, Lapse{a, named}) {
			t.Errorf("named %v: expired are %v", named, acts.Lapse)
		}
	}
}

func pushed(acts *Acts) (list []Attempt) {
	for _, k := range acts.Push {
		list = append(list, k.Attempt)
	}
	return list
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
	if !slices.Equal(acts.Unknown, []Attempt{stranger}) {
		t.Errorf("unknown: %v", acts.Unknown)
	}
}
