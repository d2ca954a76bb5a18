//go:build unix

package processtest

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
)

// warned counts a process's log lines at WARN and above, by level and message. What varies in the lines of the NATS
// server is replaced by #.
func warned(text string) map[string]int {
	n := map[string]int{}
	for line := range strings.Lines(text) {
		var l struct{ Level, Msg, Says string }
		if json.Unmarshal([]byte(line), &l) != nil {
			found := textLine.FindStringSubmatch(line)
			if found == nil {
				continue
			}
			l.Level, l.Msg = found[1], strings.Trim(found[2], "\"")
		}
		if l.Level == "WARN" || l.Level == "ERROR" {
			n[strings.TrimSpace(l.Level+" "+l.Msg+" "+varying.ReplaceAllString(l.Says, "#"))]++
		}
	}
	return n
}

var (
	textLine = regexp.MustCompile(`level=([A-Z]+) msg=("[^"]*"|\S+)`)
	varying  = regexp.MustCompile(`"[^"]*"|\[[^\]]*\]|[0-9.]+[µm]?s?`)
)

// mostLines is how often a process may log one message about one fault: when it begins, when it lasts for a minute, and
// again if it ends and begins while leaders change.
const mostLines = 3

// noise is what processes have logged since a moment.
type noise struct {
	t         *testing.T
	processes func() []*process
	from      map[*process]int
}

func (n *noise) mark() {
	n.from = map[*process]int{}
	for _, p := range n.processes() {
		n.from[p] = len(p.out.String())
	}
}

// most requires that no message was logged at WARN or above more than so often by a process.
func (n *noise) most(what string, most int) {
	n.t.Helper()
	for _, p := range n.processes() {
		text := p.out.String()[n.from[p]:]
		counted := warned(text)
		total := 0
		for _, message := range slices.Sorted(maps.Keys(counted)) {
			total += counted[message]
			n.t.Logf("%s: %s: %d times %s", what, p.name, counted[message], message)
			if counted[message] > most {
				n.t.Errorf("%s: %s logged %d times, want at most %d: %s", what, p.name, counted[message], most, message)
			}
		}
		n.t.Logf("%s: %s: %d lines at WARN or above, %d in all", what, p.name, total, strings.Count(text, "\n"))
	}
	n.mark()
}

// TestFaultsAreEpisodes counts log lines: a healthy cluster warns of nothing, and a fault is a line when it begins, not
// one for each attempt at what it prevents.
func TestFaultsAreEpisodes(t *testing.T) {
	tests.Long(t)
	c := newCluster(t)
	workers := []*process{c.hire(workerSpec{Name: "one", Slots: 64, Ticks: true}), c.hire(workerSpec{Name: "two", Slots: 64, Ticks: true})}
	n := &noise{t: t, processes: func() []*process {
		all := slices.Clone(workers)
		for _, n := range c.nodes {
			all = append(all, n.process)
		}
		return all
	}}
	n.most("start", mostLines)
	l := c.press(100)
	leads := c.leader()
	time.Sleep(tests.Size(0, 3*time.Second, time.Minute)) // under load
	healthy := 0
	if c.leader() != leads { // the machine was too busy to keep one
		healthy = mostLines
	}
	n.most("healthy", healthy)

	dead := c.nodes[0]
	if c.leader() == dead {
		dead = c.nodes[1]
	}
	dead.process.kill()
	time.Sleep(tests.Size(0, 4*time.Second, 2*time.Minute)) // it is dead
	c.begin(dead)
	c.whole()
	n.from[dead.process] = 0
	n.most("a node was dead", mostLines)

	frozen := c.leader()
	frozen.process.freeze(t)
	for _, other := range c.nodes {
		if other != frozen {
			c.asks(other)
		}
	}
	time.Sleep(tests.Size(0, 5*time.Second, 20*time.Second)) // others lead meanwhile
	frozen.process.thaw(t)
	c.whole()
	time.Sleep(2 * time.Second) // what it does when it wakes
	n.most("the leader was frozen", mostLines)
	if tests.Rough() {
		for _, m := range c.nodes {
			was := m.process
			m.process.stop(t, syscall.SIGTERM)
			c.begin(m)
			c.whole()
			n.from[m.process] = 0
			t.Logf("the stop of %s: %v", m.name, warned(was.out.String()[n.from[was]:]))
		}
		n.most("rolling restart", mostLines)
	}
	l.stop()
}

// TestDatabaseDownIsAnEpisode counts the log lines of two servers whose database is away for a while, under load.
func TestDatabaseDownIsAnEpisode(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	db, err := sqltest.Postgres.Serve(freeport.Address(t))
	if err != nil {
		tests.Missing(t, err.Error())
	}
	t.Cleanup(db.Stop)
	url, err := db.Database("noise")
	if err != nil {
		t.Fatal(err)
	}
	p := newPairAt(t, url)
	w := p.hire(workerSpec{Name: "one", Slots: 64, Ticks: true})
	n := &noise{t: t, processes: func() []*process { return []*process{w, p.nodes[0].process, p.nodes[1].process} }}
	n.most("start", mostLines)
	l := p.press(100)
	time.Sleep(tests.Size(0, 2*time.Second, 10*time.Second)) // under load
	n.most("healthy", mostLines)                             // commits may be late on a busy machine
	db.Kill()
	time.Sleep(tests.Size(0, 4*time.Second, time.Minute)) // the database is down
	if err := db.Again(); err != nil {
		t.Fatal(err)
	}
	p.leader()
	l.stop()
	n.most("the database was down", mostLines)
}
