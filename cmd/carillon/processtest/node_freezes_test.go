//go:build unix

package processtest

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A node freezes without closing connections, like a machine that lost power. The worker at its NATS server reaches the
// leader through another one before its lease expires, and keeps its run.
func TestFrozenNode(t *testing.T) {
	tests.Long(t)
	c := newCluster(t)
	w := c.hire(workerSpec{Name: "one", Slots: 4})
	for _, whom := range []string{"a follower", "the leader"} {
		at := c.serverOf(w)
		for _, n := range c.nodes {
			if whom == "the leader" {
				c.lead(at)
			} else if n != at {
				c.lead(n)
				break
			}
		}
		over := filepath.Join(t.TempDir(), "over")
		run := c.enqueue(plainJob, task{Until: over})
		c.wrote(began, run.ID, 1)
		for _, n := range c.nodes {
			if n != at {
				c.http = n.http
			}
		}
		froze := time.Now()
		at.process.freeze(t)
		await(t, "the worker renews its lease", func() bool {
			status, raw, err := c.ask("GET", "/api/v1/workers", "")
			if err != nil || status != 200 {
				return false
			}
			for _, one := range decode[list[api.Worker]](t, raw).Items {
				if one.PID == w.pid() && one.Seen.After(froze.Add(time.Second)) { // what was under way is not meant
					return true
				}
			}
			return false
		})
		t.Logf("%s froze, and the worker renewed its lease %v later", whom, time.Since(froze))
		create(t, over)
		var in api.Run
		await(t, "the run is final", func() bool {
			in = c.run(run.ID)
			return in.State == jobs.Succeeded.String()
		})
		if in.Attempt != 1 {
			t.Errorf("%s froze, and the run took %d attempts", whom, in.Attempt)
		}
		at.process.thaw(t)
		c.whole()
	}
}

// serverOf is the node at whose NATS server a worker is.
func (c *cluster) serverOf(p *process) (at *member) {
	c.t.Helper()
	await(c.t, "the worker reports its server", func() bool {
		last := -1
		for _, n := range c.nodes {
			if i := strings.LastIndex(p.out.String(), "bus connected\" server=nats://"+n.nats); i > last {
				last, at = i, n
			}
		}
		return at != nil
	})
	return at
}
