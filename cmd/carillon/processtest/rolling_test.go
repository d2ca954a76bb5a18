//go:build unix

package processtest

import (
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

// TestRollingUpgrade is "upgrade without a stop" of docs/cluster.md: each of three nodes is stopped and started
// again, one after the other, under load. Nothing is lost, doubled or early, and every request gets a response.
func TestRollingUpgrade(t *testing.T) {
	tests.Long(t)
	c := newCluster(t)
	for _, name := range []string{"one", "two"} {
		c.hire(workerSpec{Name: name, Slots: 64, Ticks: true})
	}
	l := c.press(100)
	led := 0
	for i, n := range c.nodes {
		time.Sleep(3 * time.Second) // under load
		other := c.nodes[(i+1)%3]
		if c.asks(other); i == len(c.nodes)-1 && led == 0 { // it went from node to node before their turns
			c.lead(n)
		}
		leads := c.leader() == n
		asked := time.Now()
		n.process.signal(t, syscall.SIGTERM)
		if leads {
			led++
			await(t, "another node leads", func() bool { return c.leader() != n })
			t.Logf("%s stopped within %v", n.name, time.Since(asked))
		}
		n.process.ends(t)
		c.begin(n)
		c.whole()
	}
	time.Sleep(3 * time.Second) // under load
	l.stop()
	c.pause(tickAllJob, tickOneJob)
	c.quiet()
	if led == 0 {
		t.Error("no node led when it was stopped")
	}
	y := c.history(tickAllJob, tickOneJob)
	y.asked, y.once = l.results(), true
	y.check(t)
	y.count(t)
	if unknown := y.unknown(); unknown > 0 {
		t.Errorf("%d requests got no response in half a minute", unknown)
	}
}
