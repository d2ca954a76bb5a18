//go:build unix

package processtest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
)

// cluster is three nodes, each a process with a NATS server of its own, and the cluster that they are.
type cluster struct {
	*fixture
	nodes   []*member
	program string // that new nodes are; "" = the usual one
}

// member is a node: where it is, and the process that it is now.
type member struct {
	name, http string
	nats       string // where workers come
	data       string
	args       []string
	program    string // that it is; "" = the usual one
	process    *process
}

// newCluster makes a cluster of three: one begins, the others join with its invitations.
func newCluster(t *testing.T) *cluster { return newClusterOf(t, "") }

// newClusterOf is newCluster of a program.
func newClusterOf(t *testing.T, program string) *cluster {
	t.Helper()
	c := &cluster{program: program, fixture: &fixture{t: t, journals: t.TempDir(), frozen: map[int]time.Time{}, began: time.Now()}}
	for range 3 {
		c.grow()
	}
	c.whole()
	c.dial()
	return c
}

// grow starts a node more, with an invitation of the first one if there is one.
func (c *cluster) grow() *member {
	c.t.Helper()
	name := fmt.Sprintf("n%d", len(c.nodes)+1)
	dir := c.t.TempDir()
	n := &member{name: name, program: c.program, http: freeport.Address(c.t), data: filepath.Join(dir, name)}
	n.nats = freeport.Address(c.t)
	n.args = []string{"server", "--node", n.name, "--data", n.data, "--http", n.http, "--nats-addr", n.nats,
		"--cluster", freeport.Address(c.t), "--cluster-nats", freeport.Address(c.t)}
	if len(c.nodes) == 0 {
		c.nats = n.nats
	} else {
		c.nats += ",nats://" + n.nats
		file := filepath.Join(dir, name+".token")
		if err := os.WriteFile(file, []byte(c.asks(c.nodes[0]).invitation()), 0o600); err != nil {
			c.t.Fatal(err)
		}
		n.args = append(n.args, "--join-file", file)
	}
	c.nodes = append(c.nodes, n)
	c.begin(n)
	return n
}

// invitation requests an invitation until there is a leader: with two nodes, a slow one interrupts leadership. An
// unused invitation does no harm.
func (c *cluster) invitation() (token string) {
	c.t.Helper()
	var status int
	var raw []byte
	var err error
	defer func() {
		if c.t.Failed() {
			c.t.Logf("an invitation: %d %s (%v)", status, raw, err)
		}
	}()
	await(c.t, "a node is invited", func() bool {
		status, raw, err = c.ask(http.MethodPost, "/api/v1/cluster/invitations", "")
		return err == nil && status/100 == 2
	})
	return decode[api.Invitation](c.t, raw).Token
}

// begin starts a node, and sends requests to it from then on.
func (c *cluster) begin(n *member) {
	c.t.Helper()
	path := n.program
	if path == "" {
		var err error
		if path, err = carillonProgram(); err != nil {
			c.t.Fatal(err)
		}
	}
	n.process = start(c.t, "node "+n.name, path, nil, n.args...)
	c.http = n.http
	c.ready(n.process)
}

// whole waits until any node may fail.
func (c *cluster) whole() {
	c.t.Helper()
	await(c.t, "the cluster is whole", func() bool {
		status, raw, err := c.ask(http.MethodGet, "/api/v1/cluster", "")
		return err == nil && status == http.StatusOK && decode[api.Cluster](c.t, raw).Tolerates == 1
	})
}

// leader returns the leader, as another node reports it.
func (c *cluster) leader() (leader *member) {
	c.t.Helper()
	await(c.t, "a node leads", func() bool {
		name := get[api.Overview](c.fixture, "/api/v1/overview").Leader
		for _, n := range c.nodes {
			if n.name == name {
				leader = n
			}
		}
		return leader != nil
	})
	return leader
}

// lead makes a node the leader, and retries: no transfer works during an election.
func (c *cluster) lead(n *member) {
	c.t.Helper()
	await(c.t, n.name+" leads", func() bool {
		if c.leader() == n {
			return true
		}
		if status, raw, err := c.ask(http.MethodPost, "/api/v1/cluster/transfer", fmt.Sprintf(`{"to": %q}`, n.name)); err != nil || status/100 != 2 {
			c.t.Logf("%s is not made to lead: %d %s (%v)", n.name, status, raw, err)
		}
		time.Sleep(250 * time.Millisecond) // until the others know it
		return false
	})
}

// The leader of three nodes is killed again and again under two hundred requests a second, and with it the NATS server
// that some of the workers are at. What was acknowledged runs to its end, once; every due time has its record; and any
// node that lives answers.
func TestKilledLeader(t *testing.T) {
	tests.Long(t)
	rounds := tests.Size(0, 3, 15)
	c := newCluster(t)
	for _, name := range []string{"one", "two"} {
		c.hire(workerSpec{Name: name, Slots: 64, Ticks: true})
	}
	l := c.press(200)
	for round := range rounds {
		time.Sleep(1500 * time.Millisecond) // under load
		dead := c.leader()
		for _, n := range c.nodes {
			if n != dead {
				c.http = n.http
			}
		}
		dead.process.kill()
		died := time.Now()
		first := c.enqueue(plainJob, task{})
		l.add(asked{at: died, request: jobs.Request{ID: first.ID, Key: first.Key}, run: first.ID})
		begun := c.wrote(began, first.ID, 1)
		fired := time.Time{}
		await(t, "a due time after the leader's death fires", func() bool {
			for _, line := range c.lines() {
				if line.Key == jobs.Key(tickAllJob) && line.What == began && line.At.After(died) && (fired.IsZero() || line.At.Before(fired)) {
					fired = line.At
				}
			}
			return !fired.IsZero()
		})
		// This node may not know the new leader yet.
		await(t, "a node leads that lives", func() bool { return c.leader() != dead })
		t.Logf("round %d: a run began %v after the leader's death, a due time fired after %v", round+1, begun.At.Sub(died), fired.Sub(died))
		c.begin(dead)
		c.whole()
	}
	time.Sleep(time.Second) // under load
	l.stop()
	c.pause(tickAllJob, tickOneJob)
	c.quiet()

	y := c.history(tickAllJob, tickOneJob)
	y.asked, y.once = l.results(), true
	y.check(t)
	y.count(t)
	if unknown := y.unknown(); unknown > 0 {
		t.Errorf("%d requests got no response in half a minute", unknown)
	}
}
