package schedule

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestAgenda(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 73))
	var a Agenda[time.Time]
	if _, _, ok := a.Pop(); ok {
		t.Error("something is due on an empty agenda")
	}
	// As schedules do it: what is popped comes back later.
	held := map[time.Time]int{}
	last := at(t, "2026-11-21T00:00:00Z")
	for range 20_000 {
		if a.Len() == 0 || random.IntN(5) < 3 {
			due := last.Add(time.Duration(random.Int64N(5_000_000_000)))
			a.Push(due, due)
			held[due]++
			continue
		}
		peeked, _, _ := a.Peek()
		due, value, ok := a.Pop()
		if !ok || due != peeked || !due.Equal(value) || due.Before(last) || held[value] == 0 {
			t.Fatalf("got %v %v %v after %v", due, value, ok, last)
		}
		if held[value]--; held[value] == 0 {
			delete(held, value)
		}
		last = due
	}
	n := 0
	for _, count := range held {
		n += count
	}
	if a.Len() != n {
		t.Errorf("%d are left, want %d", a.Len(), n)
	}
}

// BenchmarkAgenda pops and pushes among a million.
func BenchmarkAgenda(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 73))
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	var a Agenda[int]
	for i := range 1_000_000 {
		a.Push(start.Add(time.Duration(random.Int64N(int64(time.Hour)))), i)
	}
	delays := make([]time.Duration, 1<<16)
	for i := range delays {
		delays[i] = time.Duration(random.Int64N(int64(time.Hour)))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		due, value, _ := a.Pop()
		a.Push(due.Add(delays[i%len(delays)]), value)
		i++
	}
}
