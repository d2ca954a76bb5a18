package ui

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/ops"
)

// The overview must not say that all is well above a red count.
func TestCalmOnlyWithoutRedCounts(t *testing.T) {
	for _, c := range []struct {
		workers, failed int
		calm            bool
	}{{1, 0, true}, {1, 2, false}, {0, 0, false}} {
		u := New(Config{Ops: ops.New(ops.Config{})})
		p := overview{Jobs: 1, Workers: make([]ops.Worker, c.workers)}
		p.Overview.Failed = c.failed
		var b strings.Builder
		if err := u.pages["overview"]().ExecuteTemplate(&b, "content", &p); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(b.String(), "Nothing needs attention"); got != c.calm {
			t.Errorf("%d workers, %d failed: calm %v", c.workers, c.failed, got)
		}
		if red := strings.Contains(b.String(), `stat bad`); red == c.calm {
			t.Errorf("%d workers, %d failed: red %v", c.workers, c.failed, red)
		}
	}
}
