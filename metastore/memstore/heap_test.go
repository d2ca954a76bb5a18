package memstore

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type numbered struct {
	n     int
	place int32
}

func TestHeap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	h := heap[*numbered]{before: func(a, b *numbered) bool { return a.n < b.n }, place: func(v *numbered) *int32 { return &v.place }}
	var all []*numbered
	for range 20_000 {
		if rng.IntN(5) < 3 || len(all) == 0 {
			v := &numbered{n: rng.IntN(1000)}
			all = append(all, v)
			h.add(v)
		} else {
			i := rng.IntN(len(all))
			h.remove(all[i].place)
			if all[i].place != 0 {
				t.Fatal("a member that was taken out still has a place")
			}
			all = slices.Delete(all, i, i+1)
		}
		if rng.IntN(100) > 0 {
			continue
		}
		var want, got []int
		for _, v := range all {
			want = append(want, v.n)
		}
		slices.Sort(want)
		for v := range h.inOrder {
			got = append(got, v.n)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("in order %v, want %v", got, want)
		}
	}
	for range len(all) - 3 {
		h.remove(1)
	}
	if h.len() != 3 || cap(h.items) > 1024 && cap(h.items) > 8*h.len() {
		t.Errorf("%d members take room for %d", h.len(), cap(h.items))
	}
}
