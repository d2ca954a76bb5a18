package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// A file with many jobs is applied whatever its size: in one request as far as the server takes it, and in parts
// beyond.
func TestManyJobsAreApplied(t *testing.T) {
	tests.Long(t)
	h := open(t)
	file := func(n, size int) string {
		var b strings.Builder
		b.WriteString("jobs:\n")
		for i := range n {
			fmt.Fprintf(&b, "- {key: shop.one-of-many-jobs-that-have-long-names.%d, kind: triggered, app: shop, description: %s}\n", i, strings.Repeat("x", size))
		}
		return b.String()
	}
	for _, c := range []struct {
		n, size, asks int
		want          string
	}{
		{400, 2 << 10, 2, "created 400, edited 0, unchanged 0"},    // it is looked at, and done
		{1000, 4 << 10, 4, "created 600, edited 400, unchanged 0"}, // twice that: no part is done before all are looked at
	} {
		before := h.asked.Load()
		out, errs, code := (call{env: h.env(), in: file(c.n, c.size)}).run("apply", "-f", "-")
		if code != 0 || !strings.Contains(out, c.want) {
			t.Errorf("%d jobs: %d %.200s %s", c.n, code, out, errs)
		}
		if asks := int(h.asked.Load() - before); asks != c.asks {
			t.Errorf("%d jobs took %d requests, want %d", c.n, asks, c.asks)
		}
	}
	if out, errs, code := (call{env: h.env(), in: file(1000, 4<<10)}).run("diff", "-f", "-"); code != 0 || !strings.Contains(out, "leave 1000 unchanged") {
		t.Errorf("diff: %d %.200s %s", code, out, errs)
	}
	big := file(1, 1) + "- {key: shop.big, kind: triggered, app: shop, args: {x: " + strings.Repeat("x", 5<<20) + "}}\n"
	if _, errs, code := (call{env: h.env(), in: big}).run("apply", "-f", "-"); code != 2 || !strings.Contains(errs, "(stdin):3: job shop.big has 5242") {
		t.Errorf("a job that no request takes: %d %s", code, errs)
	}
}
