//go:build unix

package processtest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/tests"
)

// group waits until n NATS servers form a group, as each online node reports.
func (c *cluster) group(want int) {
	c.t.Helper()
	await(c.t, fmt.Sprintf("%d NATS servers are a group", want), func() bool {
		all := get[api.Cluster](c.fixture, "/api/v1/cluster").Nodes
		for _, n := range all {
			if n.Online && !strings.Contains(n.NATS, fmt.Sprintf(", %d other server", want-1)) {
				return false
			}
		}
		return len(all) == want
	})
}

// A node of three dies for good and is removed: neither its copy nor its NATS server counts any more, and a new one
// takes its place, so that another one may die. A node that lives ends when it is removed.
func TestRemovedNode(t *testing.T) {
	tests.Long(t)
	c := newCluster(t)
	c.group(3)
	dead := c.nodes[2]
	dead.process.kill()
	remove := func(n *member) { // with retries: the NATS servers may have no meta leader
		t.Helper()
		for began := time.Now(); ; time.Sleep(250 * time.Millisecond) {
			status, raw, err := c.ask(http.MethodDelete, "/api/v1/cluster/nodes/"+n.name, "")
			if err == nil && (status/100 == 2 || status == http.StatusNotFound) {
				return
			}
			if t.Logf("%s: %d %s (%v)", n.name, status, raw, err); time.Since(began) > 3*time.Minute {
				t.Fatal(n.name + " is not removed")
			}
		}
	}
	c.asks(c.nodes[0])
	remove(dead)
	c.group(2)
	await(t, "a second removal reports that it is not a member", func() bool {
		// An answer of the servers that was lost, on a busy machine, makes it look as if it had been one of theirs
		// still.
		status, _, err := c.ask(http.MethodDelete, "/api/v1/cluster/nodes/"+dead.name, "")
		return err == nil && status == http.StatusNotFound
	})
	fourth := c.grow()
	c.group(3)
	c.whole()

	if c.asks(c.nodes[0]).leader() == fourth {
		c.lead(c.nodes[0])
	}
	remove(fourth)
	c.group(2)
	await(t, "the node that was removed ends", fourth.process.over)
}
