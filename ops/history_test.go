package ops_test

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// The ledger is listed in pages, newest first, each range once.
func TestMissedPages(t *testing.T) {
	d := newFixture(t)
	for i := range 25 {
		d.miss("app.often", 1, []kernel.Reason{kernel.MissedLate, kernel.MissedDebug}[i%2]) // ranges of one reason are merged
	}
	seen, before := map[time.Time]bool{}, time.Time{}
	for pages, more := 0, true; more; pages++ {
		list, next, err := d.Missed(t.Context(), ann, "app.often", before, 10)
		if err != nil || pages > 2 || len(list) == 0 {
			t.Fatalf("page %d has %d ranges: %v", pages, len(list), err)
		}
		for _, m := range list {
			if seen[m.From] || !before.IsZero() && !m.From.Before(before) {
				t.Errorf("%v is there again, or out of order", m.From)
			}
			seen[m.From], before = true, m.From
		}
		more = next
	}
	if len(seen) != 25 {
		t.Errorf("%d ranges, want 25", len(seen))
	}
	for limit, key := range map[int]jobs.Key{0: "app.often", 1001: "app.often", 5: "app.none"} {
		if _, _, err := d.Missed(t.Context(), ann, key, time.Time{}, limit); err == nil {
			t.Errorf("%d of %s: no error", limit, key)
		}
	}
}
