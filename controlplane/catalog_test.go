package controlplane

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// With all edits, deletions and fires, the jobs that come due are those that a plain look at all definitions finds,
// each once.
func TestTheCatalogKnowsWhatIsDue(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 73))
	var c catalog
	c.init()
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	model := map[jobs.Key]*kernel.Definition{}
	most := 0
	for step := range 20_000 {
		key := jobs.Key(fmt.Sprint("job", random.IntN(40)))
		switch d := model[key]; {
		case random.IntN(50) == 0:
			now = now.Add(time.Duration(random.IntN(5000)) * time.Millisecond)
			var want []jobs.Key
			for k, d := range model {
				if next := d.Cursor.Add(seconds(d)); d.Policy.Schedule != "" && !next.After(now) {
					want = append(want, k)
				}
			}
			slices.SortFunc(want, func(a, b jobs.Key) int {
				return cmp.Or(model[a].Cursor.Add(seconds(model[a])).Compare(model[b].Cursor.Add(seconds(model[b]))), cmp.Compare(a, b))
			})
			due, _ := c.dueBy(now, 1000)
			var got []jobs.Key
			for _, e := range due {
				got = append(got, e.def.Key)
				fired := *e.def
				fired.Cursor = e.next
				model[e.def.Key] = &fired
				c.back(e, &fired)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("step %d: %v are due, want %v", step, got, want)
			}
		case d != nil && random.IntN(9) == 0:
			delete(model, key)
			c.drop(nameOf(d))
		default: // made anew, or edited
			edited := kernel.Definition{Tenant: jobs.DefaultTenant, Key: key, Kind: kernel.Recurring, Revision: uint64(step) + 1}
			edited.Cursor, edited.SetAt, edited.Anchor = now, now, now
			if random.IntN(5) > 0 {
				edited.Policy.Schedule = fmt.Sprintf("PT%dS", 1+random.IntN(1<<random.IntN(20)))
			}
			model[key] = &edited
			c.put(&edited, nil)
		}
		most = max(most, c.due.Len())
	}
	if most > 2*40+1000+1 {
		t.Errorf("the agenda of 40 jobs has grown to %d", most)
	}
}

// seconds is the interval of a schedule that counts from the cursor on.
func seconds(d *kernel.Definition) time.Duration {
	var n int
	_, _ = fmt.Sscanf(d.Policy.Schedule, "PT%dS", &n)
	return time.Duration(n) * time.Second
}
