package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A sorted list is what the agenda must be like, over delays from nanoseconds to decades.
func TestAgenda(t *testing.T) {
	random, end := rand.New(rand.NewPCG(1, 73)), at(t, "2199-12-31T23:59:59Z")
	for _, farthest := range []int64{0, 5, 1000, int64(time.Second), int64(time.Hour), 30 * 366 * 24 * int64(time.Hour)} {
		var a Agenda[time.Time]
		if _, _, ok := a.Pop(); ok {
			t.Error("something is due on an empty agenda")
		}
		var model []time.Time // sorted
		last := time.Unix(-5, 0)
		for range 10_000 {
			if len(model) == 0 || random.IntN(9) < 5 {
				due := last.Add(time.Duration(random.Int64N(farthest + 1))).UTC()
				if due.After(end) {
					due = end
				}
				a.Push(due, due)
				i, _ := slices.BinarySearchFunc(model, due, time.Time.Compare)
				model = slices.Insert(model, i, due)
				continue
			}
			first, _ := a.First()
			due, value, ok := a.Pop()
			if !ok || first != model[0] || due != model[0] || value != model[0] {
				t.Fatalf("delays up to %v: got %v %v %v, first %v, want %v", time.Duration(farthest), due, value, ok, first, model[0])
			}
			model, last = model[1:], due
			if a.Len() != len(model) {
				t.Fatalf("%d are left, want %d", a.Len(), len(model))
			}
		}
	}
}

// What is put on it late comes next, and spoils nothing.
func TestAgendaOfWhatIsLate(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 73))
	start := at(t, "2026-11-21T00:00:00Z")
	var a Agenda[int]
	held := map[int]time.Time{}
	last, late := start, 0
	for i := range 20_000 {
		a.First() // must not matter
		if len(held) == 0 || random.IntN(9) < 5 {
			due := last.Add(time.Duration(random.Int64N(5_000_000_000) - 1_000_000_000))
			if due.Before(last) {
				late++
			}
			a.Push(due, i)
			held[i] = due
			continue
		}
		first, _ := a.First()
		due, value, ok := a.Pop()
		if !ok || first != due || !held[value].Equal(due) {
			t.Fatalf("got %v %v %v, first %v, want %v", due, value, ok, first, held[value])
		}
		delete(held, value)
		switch {
		case due.Before(last):
			late--
		case late > 0 && due.After(last):
			t.Fatalf("%v came before %d that were late", due, late)
		default:
			last = due
		}
		if len(held) != a.Len() {
			t.Fatalf("%d are left, want %d", a.Len(), len(held))
		}
	}
}

func TestAgendaLeavesNoGarbage(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 73))
	start := at(t, "2026-11-21T00:00:00Z")
	var a Agenda[int]
	for i := range 10_000 {
		a.Push(start.Add(time.Duration(random.Int64N(int64(time.Hour)))), i)
	}
	turn := func() {
		for range 10_000 {
			due, value, _ := a.Pop()
			a.Push(due.Add(time.Duration(random.Int64N(int64(time.Hour)))), value)
		}
	}
	for range 20 { // until every drawer has its sheets
		turn()
	}
	if n := testing.AllocsPerRun(10, turn); n > 50 {
		t.Errorf("10000 turns allocate %v times", n)
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
