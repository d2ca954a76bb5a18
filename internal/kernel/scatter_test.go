package kernel

import (
	"testing"
	"time"
)

// Jitter is the same for the same job and due time, within its bound, and spread.
func TestScatter(t *testing.T) {
	id, due := DerivedID("job"), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var buckets [10]int
	for i := range 10_000 {
		at := due.Add(time.Duration(i) * time.Minute)
		d := Scatter(id, at, 30*time.Second)
		if d < 0 || d >= 30*time.Second || d != Scatter(id, at, 30*time.Second) {
			t.Fatalf("%v", d)
		}
		buckets[d/(3*time.Second)]++
	}
	for i, n := range buckets {
		if n < 800 || n > 1200 {
			t.Errorf("of 10,000 starts, %d lie in the %d. tenth", n, i+1)
		}
	}
	if Scatter(id, due, 0) != 0 {
		t.Error("no jitter moves a start")
	}
}
