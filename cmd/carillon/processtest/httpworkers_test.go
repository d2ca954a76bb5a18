//go:build unix

package processtest

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/tests"
)

// pullers are the programs of examples/httpworkers, by what runs them.
var pullers = []struct{ program, script string }{{"python3", "python/worker.py"}, {"node", "node/worker.mjs"}}

// pull starts a worker of examples/httpworkers and waits until it is known. Where its language is missing the test is
// skipped, but for CI, which has to have it.
func (h *fixture) pull(program, script, urls string, slots int) *process {
	h.t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		tests.Missing(h.t, err.Error())
	}
	script = "../../../examples/httpworkers/" + script
	if text, err := os.ReadFile(script); err != nil || strings.Count(string(text), "\n") > 60 {
		h.t.Errorf("%s has more than 60 lines (%v): it is to show how little a worker needs", script, err)
	}
	p := start(h.t, program, path, nil, script, urls, fmt.Sprint(slots))
	h.known(p)
	return p
}

// greet asks for a run of the job that those programs have.
func (h *fixture) greet(args string) string {
	h.t.Helper()
	return decode[api.Run](h.t, h.do(http.MethodPost, "/api/v1/jobs/greet/trigger", `{"args":`+args+`}`)).ID
}

// reaches waits until a run is in a state, and fails if that took more or fewer attempts. Those that a worker refused
// are not among them.
func (h *fixture) reaches(id, state string, attempts int) (in api.Run) {
	h.t.Helper()
	await(h.t, "run "+id+" reaches "+state, func() bool {
		status, raw, err := h.ask(http.MethodGet, "/api/v1/runs/"+id, "")
		if err != nil || status != http.StatusOK { // no leader at the moment
			return false
		}
		in = decode[api.Run](h.t, raw)
		return in.State == state
	})
	began := 0
	for _, m := range in.Moves {
		if m.State == "Processing" {
			began++
		}
	}
	if began != attempts {
		h.t.Errorf("run %s is %s after %d attempts, want %d: %+v", id, state, began, attempts, in.Moves)
	}
	return in
}

// The workers of examples/httpworkers do what docs promise of workers over HTTP: 200 runs, one that is cancelled while
// it runs, one that fails and is retried, and one whose worker is killed and that another one takes over; and a worker
// that gets a signal finishes its runs.
func TestPullExamples(t *testing.T) {
	tests.Long(t)
	for _, c := range pullers {
		t.Run(c.program, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t, "")
			first := h.pull(c.program, c.script, "http://"+h.http, 8)
			began := time.Now()
			var all []string
			for i := range 200 {
				all = append(all, h.greet(fmt.Sprintf(`{"name":"n%d"}`, i)))
			}
			for i, id := range all {
				if in := h.reaches(id, "Succeeded", 1); string(in.Result) != fmt.Sprintf(`"hello n%d"`, i) {
					t.Errorf("its result is %s", in.Result)
				}
			}
			t.Logf("200 runs took %v", time.Since(began))

			id := h.greet(`{"name":"Bob","seconds":600}`)
			h.reaches(id, "Processing", 1)
			h.do(http.MethodPost, "/api/v1/runs/"+id+"/cancel", `{}`)
			h.reaches(id, "Cancelled", 1)
			await(t, "the cancelled handler returns", func() bool {
				return !get[api.Run](h, "/api/v1/runs/"+id).Lingering
			})

			h.reaches(h.greet(`{"name":"Cid","failFirst":true}`), "Succeeded", 2)

			// These last longer than a machine leaves a test without time, or they were over before it looks.
			id = h.greet(`{"name":"Dan","seconds":20}`)
			worker := h.reaches(id, "Processing", 1).Worker
			first.kill()
			died := time.Now()
			second := h.pull(c.program, c.script, "http://"+h.http, 8)
			if in := h.reaches(id, "Succeeded", 2); in.Worker == worker {
				t.Errorf("it was done by %s, which was killed", in.Worker)
			}
			t.Logf("another one had done it %v after the worker's death", time.Since(died))

			id = h.greet(`{"name":"Eve","seconds":20}`)
			h.reaches(id, "Processing", 1)
			h.has(id) // what it has not been given yet goes back
			second.stop(t, syscall.SIGTERM)
			h.reaches(id, "Succeeded", 1)
		})
	}
}

// has waits until the handler of a run has written a line: a worker has the run.
func (h *fixture) has(id string) {
	h.t.Helper()
	await(h.t, "the worker of run "+id+" has it", func() bool {
		status, raw, err := h.ask(http.MethodGet, "/api/v1/runs/"+id+"/log", "")
		return err == nil && status == http.StatusOK && len(decode[list[api.LogLine]](h.t, raw).Items) > 0
	})
}

// The leader dies, which HTTP workers poll. They continue at another node with their current runs, which do not start a
// second time, and get more runs there.
func TestPullExamplesChangeNodes(t *testing.T) {
	tests.Long(t)
	t.Parallel()
	c := newCluster(t)
	dead := c.leader()
	urls := "http://" + dead.http
	for _, n := range c.nodes {
		if n != dead {
			urls += ",http://" + n.http
			c.http = n.http
		}
	}
	var names []string
	for _, p := range pullers {
		c.pull(p.program, p.script, urls, 4)
		names = append(names, strings.TrimSuffix(p.program, "thon3")+".")
	}
	var held []string
	for i := range 8 { // all their slots, until each of them was looked at
		held = append(held, c.greet(fmt.Sprintf(`{"name":"n%d","seconds":30}`, i)))
	}
	for _, id := range held { // a run dispatched just before the node died is lost, and retried
		c.reaches(id, "Processing", 1)
		c.has(id)
	}
	dead.process.kill()
	for _, id := range held {
		c.reaches(id, "Succeeded", 1)
	}
	did := map[string]int{}
	for i := range 40 {
		held = append(held, c.greet(fmt.Sprintf(`{"name":"n%d"}`, i)))
	}
	for _, id := range held {
		in := c.reaches(id, "Succeeded", 1)
		for _, n := range names {
			if strings.HasPrefix(in.Worker, n) {
				did[n]++
			}
		}
	}
	if did[names[0]] < 4 || did[names[1]] < 4 {
		t.Errorf("they did %v, and each had 4 current runs", did)
	}
}
