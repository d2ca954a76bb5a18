//go:build unix

package processtest

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// pair is two servers on one database, each with a NATS server of its own, and the cluster that they are.
type pair struct {
	*fixture
	nodes [2]*half
}

// half is one of the two.
type half struct {
	name, http, nats string
	args, env        []string
	process          *process
}

func newPair(t *testing.T, kind *sqltest.Kind) *pair { t.Helper(); return newPairAt(t, kind.New(t)) }

// newPairAt is newPair at a database, which the second node may reach by another URL.
func newPairAt(t *testing.T, urls ...string) *pair {
	t.Helper()
	p := &pair{fixture: &fixture{t: t, journals: t.TempDir(), frozen: map[int]time.Time{}, began: time.Now()}}
	dir := t.TempDir()
	for i := range p.nodes {
		n := &half{name: fmt.Sprintf("n%d", i+1), http: freeport.Address(t), nats: freeport.Address(t)}
		n.env = []string{"CARILLON_STORE_URL=" + urls[min(i, len(urls)-1)]}
		n.args = []string{"server", "--node", n.name, "--data", filepath.Join(dir, n.name), "--http", n.http, "--nats-addr", n.nats}
		p.nodes[i] = n
		p.begin(n)
		p.leader() // the first one
	}
	p.nats = p.nodes[0].nats + ",nats://" + p.nodes[1].nats
	p.dial()
	return p
}

func (p *pair) begin(n *half) {
	p.t.Helper()
	path, err := carillonProgram()
	if err != nil {
		p.t.Fatal(err)
	}
	n.process = start(p.t, "node "+n.name, path, n.env, n.args...)
}

// leader is the node that leads, which is asked from then on, and the other one.
func (p *pair) leader() (leader, other *half) {
	p.t.Helper()
	await(p.t, "a node leads", func() bool {
		for i, n := range p.nodes {
			if n == nil || n.process.over() {
				continue
			}
			p.http = n.http
			if status, _, err := p.ask(http.MethodGet, "/leaderz", ""); err == nil && status == http.StatusOK {
				leader, other = n, p.nodes[1-i]
				return true
			}
		}
		return false
	})
	return leader, other
}

// open reports whether a node's bus accepts connections.
func (n *half) open() bool {
	c, err := net.Dial("tcp", n.nats)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// Two servers on a database, and no NATS server beside them: the bus of the one that leads is open, that of the other
// shut. The leader is killed, and is stopped cleanly, under two hundred requests a second; workers that know both
// addresses go on at the other. What was acknowledged runs to its end, once, and every due time has its record.
func TestTwoOnADatabase(t *testing.T) {
	tests.Long(t)
	for name, kind := range map[string]*sqltest.Kind{"PostgreSQL": sqltest.Postgres, "MariaDB": sqltest.MariaDB} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, kind)
			for _, name := range []string{"one", "two"} {
				p.hire(workerSpec{Name: name, Slots: 64, Ticks: true})
			}
			l := p.press(200)
			rounds := []string{"killed", "stopped", "killed", "killed", "stopped", "killed", "stopped", "killed"}
			rounds = rounds[:tests.Size(0, 2, len(rounds))]
			for _, how := range rounds {
				time.Sleep(1500 * time.Millisecond) // under load
				var dead, other *half
				await(t, "the bus of the one that leads is open, and that of the other shut", func() bool {
					dead, other = p.leader() // which may pass on while one looks
					return dead.open() && !other.open()
				})
				gone := time.Now()
				if how == "killed" {
					dead.process.kill()
				} else {
					dead.process.stop(t, syscall.SIGTERM)
				}
				first := p.enqueue(plainJob, task{})
				l.add(asked{at: gone, request: jobs.Request{ID: first.ID, Key: first.Key}, run: first.ID})
				begun := p.wrote(began, first.ID, 1)
				if now, _ := p.leader(); now != other {
					t.Errorf("%s leads", now.name)
				}
				t.Logf("a run began %v after the leader was %s", begun.At.Sub(gone), how)
				p.begin(dead)
				await(t, dead.name+" is ready, as a standby or the leader", func() bool {
					h := fixture{t: t, http: dead.http}
					status, _, err := h.ask(http.MethodGet, "/readyz", "")
					return err == nil && status == http.StatusOK
				})
			}
			time.Sleep(time.Second) // under load
			l.stop()
			p.leader()
			p.pause(tickAllJob, tickOneJob)
			p.quiet()

			y := p.history(tickAllJob, tickOneJob)
			y.asked, y.once = l.results(), true
			y.check(t)
			y.count(t)
			if unknown := y.unknown(); unknown > 0 {
				t.Errorf("%d requests got no response in half a minute", unknown)
			}
		})
	}
}
