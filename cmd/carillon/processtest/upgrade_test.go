//go:build unix

package processtest

import (
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// replace stops a node and starts it again as another program.
func (c *cluster) replace(n *member, program string) {
	c.t.Helper()
	c.asks(c.nodes[(slices.Index(c.nodes, n)+1)%len(c.nodes)])
	n.process.stop(c.t, syscall.SIGTERM)
	n.program = program
	c.begin(n)
	c.whole()
}

// together waits while the nodes process some runs of the load and compare their rows. A node with other rows ends.
func (c *cluster) together(what string) {
	c.t.Helper()
	c.t.Logf("%s; %s leads", what, c.leader().name)
	began := len(c.lines())
	await(c.t, "runs begin and end", func() bool { return len(c.lines()) > began+200 })
	for _, n := range c.nodes {
		if n.process.over() {
			c.t.Fatalf("%s: node %s ended with %v", what, n.name, n.process.err)
		}
	}
	c.whole()
}

// TestTwoVersionsOfTheRules upgrades a cluster under load to a program that knows one version of the rules more: with
// one new field, one new command and one changed rule, built by a tag. The old and the new program lead each other, in
// both orders; the upgrade is taken back, done again, and finalized. Nothing is lost, doubled or early, no node ends,
// what is new is refused until then and works from then on, and the old program is refused from then on.
func TestTwoVersionsOfTheRules(t *testing.T) {
	tests.Long(t)
	built := func(name, path string, tags ...string) string {
		program, err := build(name, path, tags...)
		if err != nil {
			t.Fatal(err)
		}
		return program
	}
	older, newer := built("carillon-1", "..", "checkoften"), built("carillon-2", "..", "checkoften", "nextrules")
	client := built("next", "./testdata/next", "nextrules")

	c := newClusterOf(t, older)
	for _, name := range []string{"one", "two"} {
		c.hire(workerSpec{Name: name, Slots: 64, Ticks: true})
	}
	l := c.press(50)
	var made []jobs.ID // by the client
	next := func(args ...string) (id jobs.ID, note string, err error) {
		t.Helper()
		out, err := exec.Command(client, append([]string{"nats://" + c.nats}, args...)...).CombinedOutput()
		if err != nil {
			return id, "", fmt.Errorf("%s", out)
		}
		name, note, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
		if id, err = jobs.ParseID(name); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if args[0] == "make" {
			made = append(made, id)
		}
		return id, note, nil
	}
	finalize := func() (int, string) {
		t.Helper()
		status, raw, err := c.ask(http.MethodPost, "/api/v1/cluster/finalize-upgrade", "")
		if err != nil {
			t.Fatal(err)
		}
		return status, string(raw)
	}
	begun := func() int64 { // attempts that were counted as they began, which is the changed rule
		t.Helper()
		counts, err := c.rows.Counts(t.Context(), metastore.CountQuery{Tenant: jobs.DefaultTenant, From: time.Now().Add(-24 * time.Hour), To: time.Now().Add(24 * time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		for _, tally := range counts.Tallies {
			n += tally.Runs[jobs.Processing]
		}
		return n
	}
	// old checks that the first version is active, and how a leader handles new commands.
	old := func(want string) {
		t.Helper()
		if _, _, err := next("make", "too early"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a run with the new field: %v; want %q", err, want)
		}
		if _, _, err := next("change", jobs.NewID(time.Now()).String(), "too early"); err == nil {
			t.Error("the new command is taken")
		}
		if n := begun(); n != 0 {
			t.Errorf("%d attempts are counted by the new rule", n)
		}
	}
	a, b, last := c.nodes[0], c.nodes[1], c.nodes[2]

	c.together("three old programs")
	c.replace(last, newer)
	c.asks(a)
	c.lead(last)
	c.together("a new leader with two old followers")
	c.lead(last) // again: a busy machine may have had them elect another
	old("needs version 2 of the rules")
	c.asks(last)
	if status, reply := finalize(); status != http.StatusConflict || !strings.Contains(reply, "node n1 knows version 1") || !strings.Contains(reply, "node n2 knows version 1") {
		t.Errorf("finalized too early: %d %s", status, reply)
	}
	c.lead(a)
	c.replace(b, newer)
	c.asks(b)
	c.lead(a)
	c.together("an old leader with two new followers")
	c.lead(a)
	if _, note, err := next("make", "ignored"); err != nil || note != "" {
		t.Errorf("an old leader takes the new field: %q, %v", note, err)
	}
	if _, _, err := next("change", made[0].String(), "unknown"); err == nil || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("an old leader takes the new command: %v", err)
	}

	c.replace(last, older)
	c.replace(b, older)
	c.together("back to three old programs")
	for _, n := range []*member{last, b, a} {
		c.replace(n, newer)
	}
	c.together("three new programs")
	old("needs version 2 of the rules")

	await(t, "the upgrade is finalized", func() bool {
		status, reply := finalize()
		if status != http.StatusOK && !strings.Contains(reply, "does not answer") && status < 500 {
			t.Fatalf("the upgrade is not finalized: %d %s", status, reply)
		}
		return status == http.StatusOK
	})
	id, note, err := next("make", "first")
	if err != nil || note != "first" {
		t.Fatalf("a run with the new field: %q, %v", note, err)
	}
	if _, note, err := next("change", id.String(), "second"); err != nil || note != "second" {
		t.Errorf("the new command: %q, %v", note, err)
	}
	c.together("the new rules")
	if n := begun(); n == 0 {
		t.Error("nothing is counted by the new rule")
	}
	for _, n := range c.nodes {
		c.replace(n, newer)
	}
	if _, note, err := next("read", id.String()); err != nil || note != "second" {
		t.Errorf("after each node was started again: %q, %v", note, err)
	}

	c.asks(a)
	last.process.stop(t, syscall.SIGTERM)
	refused := start(t, "an old program", older, nil, last.args...)
	await(t, "it ends", refused.over)
	if want := "version 2 of the rules, and this program knows version 1"; refused.err == nil || !refused.out.has(want) {
		t.Errorf("an old program on newer data ends with %v and does not print %q:\n%s", refused.err, want, refused.out)
	}
	c.begin(last)
	c.whole()
	if v := get[api.Cluster](c.fixture, "/api/v1/cluster").ApplyVersion; v != 2 {
		t.Errorf("version %d of the rules is in force", v)
	}
	c.together("after an old program was refused")

	l.stop()
	c.pause(tickAllJob, tickOneJob)
	for _, id := range made {
		c.do(http.MethodPost, "/api/v1/runs/"+id.String()+"/cancel", "")
	}
	c.quiet()
	y := c.history(tickAllJob, tickOneJob)
	y.runs = slices.DeleteFunc(y.runs, func(run *kernel.Run) bool { return slices.Contains(made, run.ID) })
	y.asked, y.once = l.results(), true
	y.check(t)
	y.count(t)
}
