package replica

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// A snapshot is due when the log has become long in bytes or in the time to apply it, whichever comes first, and the
// larger the last one, the later.
func TestSnapshotIsDueByWhatAReplayCosts(t *testing.T) {
	entry := make([]kernel.Envelope, 10)
	for i := range entry {
		entry[i].Command = kernel.Create{}
	}
	cost := replayCost(entry)
	if cost <= replayCost(nil) || replayCost(nil) <= 0 {
		t.Fatalf("ten commands cost %v, an entry without any costs %v", cost, replayCost(nil))
	}
	for name, c := range map[string]struct {
		size, last, after int64
		replay            time.Duration
		due               int // at which entry
	}{
		"bytes":                  {size: 10, after: 100, replay: time.Hour, due: 11},
		"bytes, large snapshot":  {size: 10, last: 100, after: 100, replay: time.Hour, due: 21},
		"replay":                 {size: 1, after: 1 << 40, replay: 5 * cost, due: 6},
		"replay, large snapshot": {size: 1, after: 1 << 40, replay: 5 * cost, last: int64(8 * cost / (mostRestores * costRestored)), due: 9},
	} {
		b := &Bounds{after: c.after, replay: c.replay, last: c.last, trailing: 1 << 40, due: make(chan struct{}, 1)}
		for round := range 2 { // the second one after a snapshot
			for n := 1; ; n++ {
				b.applied(uint64(n), int(c.size), entry)
				if len(b.due) > 0 || n > 100 {
					if n != c.due {
						t.Errorf("%s, round %d: due at entry %d, want %d", name, round, n, c.due)
					}
					break
				}
			}
			select {
			case <-b.due:
			default:
			}
			b.Begin()
		}
	}
}
