package controlplane

import (
	"fmt"
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

func someJobs(n int) []jobs.ID {
	ids := make([]jobs.ID, n)
	for i := range ids {
		ids[i] = kernel.DerivedID("share", fmt.Sprint(i))
	}
	return ids
}

// The owner of a job depends on the names alone, in any order, so that all members agree. These are fixed: members of
// two versions must agree, too.
func TestOwner(t *testing.T) {
	all := someJobs(8)
	for _, c := range []struct {
		members []string
		want    []string // of the first jobs
	}{
		{nil, []string{"", "", "", "", "", "", "", ""}},
		{[]string{"n1"}, []string{"n1", "n1", "n1", "n1", "n1", "n1", "n1", "n1"}},
		{[]string{"n1", "n2"}, []string{"n1", "n1", "n2", "n1", "n1", "n2", "n1", "n1"}},
		{[]string{"n1", "n2", "n3"}, []string{"n3", "n1", "n2", "n1", "n3", "n2", "n1", "n1"}},
	} {
		var got, back []string
		turned := slices.Clone(c.members)
		slices.Reverse(turned)
		for _, id := range all {
			got, back = append(got, owner(c.members, id)), append(back, owner(turned, id))
		}
		if !slices.Equal(got, c.want) || !slices.Equal(got, back) {
			t.Errorf("%q: %q, want %q; in another order %q", c.members, got, c.want, back)
		}
	}
}

// Shares are about equal, and what moves when a member goes is its own and nothing else; the same when it comes.
func TestS1_07ShareOfEachMember(t *testing.T) {
	const n = 6000
	all := someJobs(n)
	for size := 2; size <= 7; size++ {
		var members []string
		for i := range size {
			members = append(members, fmt.Sprint("carillon-", i+1))
		}
		count := map[string]int{}
		for _, id := range all {
			count[owner(members, id)]++
		}
		for _, m := range members {
			if got, fair := float64(count[m]), float64(n)/float64(size); got < 0.85*fair || got > 1.15*fair {
				t.Errorf("of %d members %s has %v of %d jobs, and %.0f would be fair", size, m, got, n, fair)
			}
		}
		for i, gone := range members {
			rest := slices.Delete(slices.Clone(members), i, i+1)
			taken := map[string]int{}
			for _, id := range all {
				before, after := owner(members, id), owner(rest, id)
				if before != gone && before != after {
					t.Fatalf("a job moves from %s to %s because %s goes", before, after, gone)
				}
				if before == gone {
					taken[after]++
				}
			}
			for _, m := range rest { // and it goes to all the others alike
				if fair := float64(count[gone]) / float64(len(rest)); float64(taken[m]) < 0.7*fair || float64(taken[m]) > 1.3*fair {
					t.Errorf("of %d jobs of %s %s gets %d", count[gone], gone, m, taken[m])
				}
			}
		}
	}
}
