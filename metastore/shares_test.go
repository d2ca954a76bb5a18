package metastore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

type sizes = map[metastore.Owner]int64

func TestExcess(t *testing.T) {
	shop, bank, other := metastore.Owner{Tenant: "a", App: "shop"}, metastore.Owner{Tenant: "a", App: "bank"}, metastore.Owner{Tenant: "b", App: "x"}
	for _, c := range []struct {
		sizes sizes
		most  int64
		want  sizes
	}{
		{sizes{shop: 10, bank: 20, other: 30}, 60, sizes{}},
		{sizes{shop: 10, bank: 20, other: 70}, 60, sizes{other: 40}}, // what a leaves is b's
		{sizes{shop: 10, bank: 90, other: 5}, 60, sizes{bank: 45}},   // and what shop leaves is bank's
		{sizes{shop: 90, bank: 90, other: 90}, 60, sizes{shop: 75, bank: 75, other: 60}},
		{sizes{shop: 5}, 0, sizes{shop: 5}},
		{sizes{}, 10, sizes{}},
	} {
		if got := metastore.Excess(c.sizes, c.most); !maps.Equal(got, c.want) {
			t.Errorf("%v, at most %d: %v, want %v", c.sizes, c.most, got, c.want)
		}
	}
}

// An owner within its equal part loses nothing, whatever others have, and all that may be used is used.
func TestExcessIsFair(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2_000 {
		all, total, tenants, apps := sizes{}, int64(0), map[jobs.Tenant]int64{}, map[jobs.Tenant]int{}
		for range 1 + rng.IntN(9) {
			of := metastore.Owner{Tenant: jobs.Tenant(fmt.Sprint("t", rng.IntN(3))), App: fmt.Sprint("a", rng.IntN(4))}
			if _, there := all[of]; !there {
				size := rng.Int64N(1_000)
				all[of], total, tenants[of.Tenant], apps[of.Tenant] = size, total+size, tenants[of.Tenant]+size, apps[of.Tenant]+1
			}
		}
		most := rng.Int64N(2_000)
		left := total
		for of, n := range metastore.Excess(all, most) {
			part := most / int64(len(tenants)) / int64(apps[of.Tenant])
			if n <= 0 || all[of]-n < part-1 {
				t.Fatalf("%v, at most %d: %v loses %d, and its part is %d", all, most, of, n, part)
			}
			left -= n
		}
		if want := min(total, most); left > want || left < want-int64(len(tenants)+len(all)) {
			t.Fatalf("%v, at most %d: %d are left, want %d", all, most, left, want)
		}
	}
}
