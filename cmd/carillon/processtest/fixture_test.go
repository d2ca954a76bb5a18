//go:build unix

package processtest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/chaos/judge"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
)

// fixture is a scheduler with workers and a client, each a process of its own but for the client. It keeps its
// addresses and its data when its processes go and come.
type fixture struct {
	t        *testing.T
	nats     string // address of the bus
	http     string // of the page and the API
	data     string
	journals string
	args     []string // of the server
	env      []string // of the server, in addition

	server *process
	client *client.Client
	rows   metastore.Reader // the store, as programs see it
	began  time.Time
	frozen map[int]time.Time
	paused []judge.Op
}

// newFixture makes a cluster, with the server running. If outside names a bus, the server has none of its own.
func newFixture(t *testing.T, outside string) *fixture {
	t.Helper()
	h := &fixture{t: t, nats: outside, http: freeport.Address(t), data: filepath.Join(t.TempDir(), "data"), journals: t.TempDir(), frozen: map[int]time.Time{}, began: time.Now()}
	h.args = []string{"server", "--data", h.data, "--http", h.http}
	if outside != "" {
		h.args = append(h.args, "--nats", "nats://"+outside)
	} else {
		h.nats = freeport.Address(t)
		h.args = append(h.args, "--nats-addr", h.nats)
	}
	h.serve()
	h.dial()
	return h
}

// serve starts the server, and returns how long it took to be ready.
func (h *fixture) serve() time.Duration {
	h.t.Helper()
	path, err := carillonProgram()
	if err != nil {
		h.t.Fatal(err)
	}
	h.server = start(h.t, "carillon server", path, h.env, h.args...)
	h.ready(h.server)
	return time.Since(h.server.began)
}

func (h *fixture) ready(p *process) {
	h.t.Helper()
	await(h.t, p.name+" is ready", func() bool {
		if p.over() {
			h.t.Fatalf("%s ended with %v:\n%s", p.name, p.err, p.out)
		}
		status, _, err := h.ask(http.MethodGet, "/readyz", "")
		return err == nil && status == http.StatusOK
	})
}

// dial connects the client, and a reader of the store.
func (h *fixture) dial() {
	h.t.Helper()
	var err error
	if h.client, err = carillon.Dial("nats://" + h.nats); err != nil {
		h.t.Fatal(err)
	}
	as := bus.Principal{Tenant: jobs.DefaultTenant, Role: bus.Client, Name: "reader"}
	b, err := natsbus.Connect(context.Background(), "nats://"+h.nats, natsbus.Config{As: as})
	if err != nil {
		h.t.Fatal(err)
	}
	h.rows = busstore.New(b, as)
	h.t.Cleanup(func() { _, _ = h.client.Close(), b.Close() })
}

// hire starts a worker, and waits until the leader knows it.
func (h *fixture) hire(k workerSpec) *process {
	h.t.Helper()
	p := h.send(k)
	h.known(p)
	return p
}

// send starts a worker.
func (h *fixture) send(k workerSpec) *process {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	k.URL, k.Journal = "nats://"+h.nats, h.journals
	raw, err := json.Marshal(k)
	if err != nil {
		h.t.Fatal(err)
	}
	return start(h.t, "worker "+k.Name, self, []string{workerVariable + "=" + string(raw)})
}

func (h *fixture) known(p *process) {
	h.t.Helper()
	await(h.t, p.name+" is known", func() bool {
		if p.over() {
			h.t.Fatalf("%s ended with %v:\n%s", p.name, p.err, p.out)
		}
		for _, w := range get[list[api.Worker]](h, "/api/v1/workers").Items {
			if w.PID == p.pid() {
				return true
			}
		}
		return false
	})
}

// list is an answer of the API.
type list[T any] struct{ Items []T }

// ask makes a request.
func (h *fixture) ask(method, path, body string) (status int, answer []byte, err error) {
	return h.askAs("", method, path, body)
}

// askAs asks with an idempotency key.
func (h *fixture) askAs(key, method, path, body string) (status int, answer []byte, err error) {
	r, err := http.NewRequestWithContext(h.t.Context(), method, "http://"+h.http+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("If-Match", "*")
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer a.Body.Close()
	answer, err = io.ReadAll(a.Body)
	return a.StatusCode, answer, err
}

// do is ask, and it must go well: a request is repeated under its idempotency key while no node leads.
func (h *fixture) do(method, path, body string) (answer []byte) {
	h.t.Helper()
	var status int
	var err error
	key := ""
	if method == http.MethodPost {
		key = rand.Text()
	}
	await(h.t, method+" "+path+" has an answer", func() bool {
		status, answer, err = h.askAs(key, method, path, body)
		return err != nil || status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout
	})
	if err != nil || status >= 300 {
		h.t.Fatalf("%s %s: %d %s (%v)", method, path, status, answer, err)
	}
	return answer
}

func get[T any](h *fixture, path string) T {
	h.t.Helper()
	return decode[T](h.t, h.do(http.MethodGet, path, ""))
}

func decode[T any](t *testing.T, raw []byte) (out T) {
	t.Helper()
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatalf("%.300s: %v", raw, err)
	}
	return out
}

// run is a run as the API shows it.
func (h *fixture) run(id fmt.Stringer) api.Run {
	h.t.Helper()
	return get[api.Run](h, "/api/v1/runs/"+id.String())
}

// enqueue asks for one run; it must go well.
func (h *fixture) enqueue(job jobs.Trigger[task], a task, how ...jobs.EnqueueOption) jobs.Receipt {
	h.t.Helper()
	r, err := job.Enqueue(h.t.Context(), h.client, a, how...)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

// lines are the journals so far.
func (h *fixture) lines() []line {
	h.t.Helper()
	lines, err := readJournals(h.journals)
	if err != nil {
		h.t.Fatal(err)
	}
	return lines
}

// wrote waits for a line of a run's attempt.
func (h *fixture) wrote(what string, run jobs.ID, attempt uint32) (found line) {
	h.t.Helper()
	await(h.t, fmt.Sprintf("attempt %d of run %s has %s", attempt, run, what), func() bool {
		for _, l := range h.lines() {
			if l.What == what && l.Run == run && l.Attempt == attempt {
				found = l
				return true
			}
		}
		return false
	})
	return found
}

// quiet waits until no run lives.
func (h *fixture) quiet() {
	h.t.Helper()
	var runs map[string]int
	defer func() {
		if h.t.Failed() {
			h.t.Logf("runs that live: %v", runs)
		}
	}()
	await(h.t, "all runs have come to an end", func() bool {
		runs = get[api.Overview](h, "/api/v1/overview").Runs
		for _, n := range runs {
			if n > 0 {
				return false
			}
		}
		return true
	})
}

// pause stops recurring jobs.
func (h *fixture) pause(keys ...jobs.Key) {
	h.t.Helper()
	for _, k := range keys {
		o := judge.Op{What: judge.Pause, Key: string(k), Invoked: moment(time.Now()), Outcome: judge.OK}
		h.do(http.MethodPost, "/api/v1/jobs/"+string(k)+"/pause", "")
		o.Returned = moment(time.Now())
		h.paused = append(h.paused, o)
	}
}

// history returns the evidence of the store and the handlers. Callers add their requests.
func (h *fixture) history(recurring ...jobs.Key) *history {
	h.t.Helper()
	y := &history{began: h.began, read: time.Now(), gone: h.frozen, paused: h.paused}
	for q := (metastore.RunQuery{Limit: metastore.MaxPage}); ; {
		page, err := h.rows.Runs(h.t.Context(), q)
		if err != nil {
			h.t.Fatal(err)
		}
		y.runs = append(y.runs, page.Runs...)
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	for _, key := range recurring {
		d, err := h.rows.Definition(h.t.Context(), "", key)
		if err != nil {
			h.t.Fatal(err)
		}
		missed, err := h.rows.Ledger(h.t.Context(), "", d.UID, 10_000)
		if err != nil {
			h.t.Fatal(err)
		}
		y.jobs, y.ledger = append(y.jobs, d), append(y.ledger, missed...)
	}
	y.lines = h.lines()
	return y
}

// addressIn returns an address in a process's banner.
func addressIn(p *process, what string) string {
	found := regexp.MustCompile(`(?m)^ *` + what + ` +[a-z]+://(\S+)$`).FindStringSubmatch(p.out.String())
	if found == nil {
		return ""
	}
	return found[1]
}
