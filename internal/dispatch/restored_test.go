package dispatch

import "testing"

// What a worker remembers of an attempt does not count for one of the same number that a restored store has started.
func TestAttemptsOfARestoredStore(t *testing.T) {
	const before, after = 1, 2 // when the store started them
	a := attempt(1, 1)
	for name, c := range map[string]struct {
		past func(r *Receiver)
		want Verdict
	}{
		"ended": {func(r *Receiver) {
			r.Receive(a, before, true, 0)
			r.Returned(a)
			r.Ended(a, 0)
		}, Began},
		"refused":                      {func(r *Receiver) { r.Receive(a, before, false, 0) }, Began},
		"stopped before its push came": {func(r *Receiver) { r.Forgo(a, before, 0) }, Began},
		"adopted, and ended": {func(r *Receiver) {
			r.Adopt(a, before)
			r.Returned(a)
			r.Ended(a, 0)
		}, Began},
		"running":              {func(r *Receiver) { r.Receive(a, before, true, 0) }, Refused},
		"running, not its own": {func(r *Receiver) { r.Receive(a, before, true, 0); r.Ended(a, 0) }, Refused},
		"not reported yet":     {func(r *Receiver) { r.Receive(a, before, true, 0); r.Returned(a) }, Refused},
	} {
		r := NewReceiver(0, 0)
		c.past(r)
		if v, begin := r.Receive(a, after, true, 1); v != c.want || begin != (v == Began) {
			t.Errorf("%s: the verdict is %d, %v; want %d", name, v, begin, c.want)
		}
		if v, begin := r.Receive(a, after, true, 2); v != c.want || begin {
			t.Errorf("%s, pushed again: the verdict is %d, %v; want %d", name, v, begin, c.want)
		}
	}
}
