//go:build unix

package processtest

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/tests"
)

// runProgram runs a command of the program to its end.
func runProgram(t *testing.T, stdin string, args ...string) (out string, code int) {
	t.Helper()
	path, err := carillonProgram()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path, args...)
	var all bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(stdin), &all, &all
	dieWithUs(c)
	if err := c.Run(); c.ProcessState == nil {
		t.Fatal(err)
	}
	return all.String(), c.ProcessState.ExitCode()
}

// done returns the succeeded runs of a job, as the queried node reports them.
func (c *cluster) done() (ids []string) {
	c.t.Helper()
	for cursor := ""; ; {
		page := get[struct {
			Items []api.Run
			Next  string
		}](c.fixture, "/api/v1/runs?state=Succeeded&limit=200&cursor="+cursor)
		for _, in := range page.Items {
			ids = append(ids, in.ID)
		}
		if cursor = page.Next; cursor == "" {
			slices.Sort(ids)
			return ids
		}
	}
}

// asks makes a node the one that is asked.
func (c *cluster) asks(n *member) *cluster {
	c.http = n.http
	return c
}

// TestRecoverLostMajority follows the recipe of docs/cluster.md on real directories: two of three nodes lose their
// disks, the third continues alone with all acknowledged data, and two new ones join it. A node of the old cluster that
// starts again is refused.
func TestRecoverLostMajority(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t)
	c.hire(workerSpec{Name: "one", Slots: 16})
	for n := range 50 {
		c.enqueue(plainJob, task{Number: n})
	}
	c.quiet()
	before := c.done()
	if len(before) != 50 {
		t.Fatalf("%d runs are done", len(before))
	}
	left, ghost, lost := c.nodes[0], c.nodes[1], c.nodes[2]
	for _, n := range c.nodes {
		n.process.kill()
	}
	if err := os.RemoveAll(lost.data); err != nil {
		t.Fatal(err)
	}

	// One of three does nothing by itself.
	path, _ := carillonProgram()
	left.process = start(t, "the node that is left", path, nil, left.args...)
	await(t, "it answers", func() bool { _, _, err := c.asks(left).ask(http.MethodGet, "/livez", ""); return err == nil })
	if status, _, _ := c.ask(http.MethodGet, "/readyz", ""); status != http.StatusServiceUnavailable {
		t.Errorf("one of three returns %d at /readyz", status)
	}
	if out, code := runProgram(t, "recover\n", "cluster", "recover", "--data", left.data); code == 0 || !strings.Contains(out, "in use by another process") {
		t.Errorf("while it runs: %d, %s", code, out)
	}
	left.process.kill()

	// Without the confirmation nothing changes.
	for _, reply := range []string{"", "no\n", "yes\n"} {
		if out, code := runProgram(t, reply, "cluster", "recover", "--data", left.data); code != 2 || !strings.Contains(out, "nothing was done") || !strings.Contains(out, "FROM NOW ON") || !strings.Contains(out, "n2 at") {
			t.Errorf("%q: %d, %s", reply, code, out)
		}
	}
	out, code := runProgram(t, "recover\n", "cluster", "recover", "--data", left.data, "--reason", "two disks burnt")
	if code != 0 || !strings.Contains(out, "epoch 1") {
		t.Fatalf("it ends with %d: %s", code, out)
	}
	c.begin(left)
	if after := c.done(); !slices.Equal(after, before) {
		t.Errorf("%d runs are there, of %d", len(after), len(before))
	}
	if s := get[api.Cluster](c.fixture, "/api/v1/cluster"); len(s.Nodes) != 1 || s.Text != "no fault tolerance" {
		t.Errorf("the cluster is %+v", s)
	}
	lines := get[list[struct{ Verb, Target, Reason, Actor string }]](c.fixture, "/api/v1/audit?limit=5").Items
	if !slices.ContainsFunc(lines, func(l struct{ Verb, Target, Reason, Actor string }) bool {
		return l.Verb == kernel.NodeRecovered && l.Target == "node n1" && l.Reason == "two disks burnt" && strings.HasPrefix(l.Actor, "person:")
	}) {
		t.Errorf("the audit log has %+v", lines)
	}

	// A node that starts with its old data is refused, and changes nothing.
	ghost.process = start(t, "a node of before", path, nil, ghost.args...)
	await(t, "the node of before is refused", func() bool { return left.process.out.has("epoch") || ghost.process.out.has("epoch") })
	if status, _, err := c.asks(ghost).ask(http.MethodGet, "/readyz", ""); err == nil && status == http.StatusOK {
		t.Error("the node of before is ready")
	}
	ghost.process.kill()
	if s := get[api.Cluster](c.asks(left).fixture, "/api/v1/cluster"); len(s.Nodes) != 1 {
		t.Errorf("the cluster has become %+v", s)
	}

	// Both join again, by the manual.
	for _, n := range []*member{ghost, lost} {
		if err := os.RemoveAll(n.data); err != nil {
			t.Fatal(err)
		}
		var token string
		await(t, "a node is invited", func() bool { // not while there is an election
			out, code := runProgram(t, "", "cluster", "invite", "-q", "--server", "http://"+left.http)
			if token = out; code != 0 {
				t.Logf("an invitation: %d, %s", code, out)
			}
			return code == 0
		})
		file := filepath.Join(t.TempDir(), "join.token")
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"cluster", "join", file}, n.args[1:]...)
		if at := slices.Index(args, "--join-file"); at > 0 {
			args = slices.Delete(args, at, at+2)
		}
		n.process = start(t, "node "+n.name+" anew", path, nil, args...)
		c.asks(n).ready(n.process)
	}
	c.whole()
	run := c.enqueue(plainJob, task{})
	c.wrote(ended, run.ID, 1)
	if after := c.done(); len(after) < len(before) {
		t.Error(fmt.Sprint(len(after), " runs are there, of ", len(before)))
	}
}
