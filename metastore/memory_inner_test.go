package metastore

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/jobs"
)

// Rows are refused when the data in memory reaches the limit: what the last collection found, and what came since.
func TestLiveHeap(t *testing.T) {
	const mega = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		is := heap{live: 10 * mega, limit: 100 * mega}
		l := liveHeap{read: func() heap { return is }}
		admitted := func() (n int) {
			for l.admit(mega-rowSize) == nil && n < 200 {
				n++
			}
			return n
		}
		look := func(live int64, cycles uint64) {
			is.live, is.cycles = live, cycles
			time.Sleep(lookEvery)
		}
		if n := admitted(); n != 65 {
			t.Errorf("%d MiB are admitted to 10 of 75", n)
		}
		look(10*mega, 0) // nothing was collected: the figure is old
		if n := admitted(); n != 0 {
			t.Errorf("%d MiB more are admitted without a collection", n)
		}
		look(30*mega, 1) // it began when few of them were there
		if n := admitted(); n != 0 {
			t.Errorf("%d MiB more are admitted after a collection that may have missed the last ones", n)
		}
		look(73*mega, 2)
		if n := admitted(); n != 2 {
			t.Errorf("%d MiB are admitted to 73 of 75", n)
		}
		look(75*mega, 4)
		err := l.admit(0)
		if jobs.CodeOf(err) != jobs.Exhausted || !strings.Contains(err.Error(), "77 MiB of data") || !strings.Contains(err.Error(), "beyond 75 MiB") {
			t.Error(err)
		}
		is.limit = math.MaxInt64
		look(75*mega, 5)
		if n := admitted(); n != 200 {
			t.Errorf("%d MiB are admitted without a limit", n)
		}
	})
	if h := readHeap(); h.limit <= 0 || h.live < 0 {
		t.Errorf("the runtime says %+v", h)
	}
}
