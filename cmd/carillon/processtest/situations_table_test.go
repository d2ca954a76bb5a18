//go:build linux

package processtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/tests"
)

const (
	// letsGo is how long a node may go on leading in a situation: its lease, and what a busy machine adds.
	letsGo = 30 * time.Second
	// answers is how long a request for rows may take, whatever the store does.
	answers = 10 * time.Second
	// stops is how long a stop may take: docs/install.md.
	stops = 28 * time.Second
)

// seen is what a node says of itself, and what is said of it.
type seen struct {
	live, ready, leads int // status of the probes
	read, write, page  int // of a request for rows, one that changes some, and the overview
	slowest            time.Duration
	noLeader, notReady bool // the conditions of the alerts CarillonNoLeader and CarillonNotReady
	log                string
}

// played is one situation on one store.
type played struct {
	situation, store string
	running          seen
	stopped          time.Duration
	starting         seen
	exit             int
	said             string // the last line of a node that ended at its start
}

// Each situation of a store is played on a node that runs, and on one that starts in it. Where nothing starts, the node
// ceases to lead with its lease, each probe, metric and alert says so, every request is answered in time, a stop ends in
// time, and all goes on by itself when the situation is over.
func TestSituationsOfTheStore(t *testing.T) {
	if !tests.Rough() {
		t.Skip("it takes a quarter of an hour: just situations")
	}
	if os.Geteuid() != 0 {
		tests.Missing(t, "root: only root may mount a disk that can be full")
	}
	var all []played
	for _, k := range situations {
		for _, store := range k.stores {
			t.Run(strings.ReplaceAll(k.name, " ", "_")+"/"+store, func(t *testing.T) {
				all = append(all, k.play(newScene(t, store)))
			})
		}
	}
	t.Log("\n" + table(all))
}

func (k *situation) play(s *scene) (p played) {
	t, n := s.t, s.node
	p.situation, p.store = k.name, s.store
	for _, n := range append(s.cluster, n) {
		n.await(t, "/readyz", http.StatusOK)
	}
	if s.cluster != nil {
		s.lead()
	}
	n.await(t, "/leaderz", http.StatusOK)
	await(t, "jobs are there", func() bool {
		for _, body := range []string{`{"key":"away.ask","kind":"triggered","app":"away","handler":"away.any"}`,
			`{"key":"away.tick","kind":"recurring","app":"away","handler":"away.any","schedule":"@every 1s"}`} {
			if status, _ := n.ask(http.MethodPost, "/api/v1/jobs", body, answers); status != http.StatusCreated && status != http.StatusConflict {
				return false
			}
		}
		return true
	})

	for range 5 { // so that what a database loses is younger than the jobs
		n.works(t)
	}

	from := len(n.process.out.String())
	k.begin(s)
	p.running = k.look(t, n, from)
	k.over(s)
	n.await(t, "/leaderz", http.StatusOK)
	n.works(t)

	k.begin(s)
	if !k.starts {
		n.await(t, "/leaderz", http.StatusServiceUnavailable)
	}
	began := time.Now()
	n.process.signal(t, syscall.SIGTERM)
	n.process.ends(t)
	if p.stopped = time.Since(began); p.stopped > stops {
		t.Errorf("a stop takes %v, want at most %v", p.stopped, stops)
	}
	n.begin(t)
	switch {
	case k.exits != 0:
		await(t, "a node that starts ends", n.process.over)
		if p.exit = n.process.code(); p.exit != k.exits {
			t.Errorf("it ends with %d, want %d", p.exit, k.exits)
		}
		lines := strings.Split(strings.TrimSpace(n.process.out.String()), "\n")
		p.said = lines[len(lines)-1]
	default:
		n.await(t, "/livez", http.StatusOK)
		p.starting = k.look(t, n, 0)
	}
	k.over(s)
	if k.exits != 0 {
		n.begin(t)
	}
	n.await(t, "/readyz", http.StatusOK)
	n.works(t)
	return p
}

func (k *situation) over(s *scene) {
	if k.end != nil {
		k.end(s)
	}
}

// look waits until a node has noticed, and looks at all it says.
func (k *situation) look(t *testing.T, n *seat, from int) (o seen) {
	t.Helper()
	if k.starts {
		n.works(t)
	} else {
		began := time.Now()
		n.await(t, "/leaderz", http.StatusServiceUnavailable)
		if took := time.Since(began); took > letsGo {
			t.Errorf("it leads for %v, want at most %v", took, letsGo)
		}
	}
	for _, a := range []struct {
		status       *int
		method, path string
		within       time.Duration
	}{
		{&o.live, http.MethodGet, "/livez", answers}, {&o.ready, http.MethodGet, "/readyz", answers}, {&o.leads, http.MethodGet, "/leaderz", answers},
		{&o.read, http.MethodGet, "/api/v1/jobs/away.ask", answers}, {&o.page, http.MethodGet, "/", answers},
		{&o.write, http.MethodPost, "/api/v1/jobs/away.ask/trigger", 40 * time.Second},
	} {
		began := time.Now()
		if *a.status, _ = n.ask(a.method, a.path, "{}", a.within); *a.status == 0 {
			t.Errorf("%s %s is not answered within %v", a.method, a.path, a.within)
		}
		if a.method == http.MethodGet {
			o.slowest = max(o.slowest, time.Since(began))
		}
	}
	_, metrics := n.ask(http.MethodGet, "/metrics", "", answers)
	o.noLeader = !strings.Contains(metrics, "\ncarillon_leader 1")
	o.notReady = strings.Contains(metrics, "\ncarillon_ready 0")
	o.log = firstComplaint(n.process.out.String()[from:])
	if k.starts {
		if o.ready != http.StatusOK || o.leads != http.StatusOK || o.read != http.StatusOK || o.write >= 300 || o.noLeader || o.notReady {
			t.Errorf("runs should start: %+v", o)
		}
		return o
	}
	if o.live != http.StatusOK || o.ready != http.StatusServiceUnavailable || o.write != http.StatusServiceUnavailable && o.write != http.StatusGatewayTimeout {
		t.Errorf("nothing starts, and the node answers otherwise: %+v", o)
	}
	if !o.noLeader || !o.notReady {
		t.Errorf("nothing starts, and the alerts do not ring: %+v\n%s", o, metrics)
	}
	if o.log == "" {
		t.Error("nothing starts, and the log has no line about it")
	}
	return o
}

var complaint = regexp.MustCompile(`(?m)^.*level=(?:WARN|ERROR) msg="?(.*)$`)

func firstComplaint(log string) string {
	if found := complaint.FindStringSubmatch(log); found != nil {
		return found[1]
	}
	return ""
}

// lead makes the node that is looked at the leader.
func (s *scene) lead() {
	s.t.Helper()
	await(s.t, "n1 leads", func() bool {
		if status, _ := s.node.ask(http.MethodGet, "/leaderz", "", answers); status == http.StatusOK {
			return true
		}
		s.node.ask(http.MethodPost, "/api/v1/cluster/transfer", `{"to":"n1"}`, answers)
		return false
	})
}

// ask makes a request; status 0 = there was no answer in time.
func (n *seat) ask(method, path, body string, within time.Duration) (status int, answer string) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+n.http+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Content-Type", "application/json")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer a.Body.Close()
	raw, _ := io.ReadAll(a.Body)
	return a.StatusCode, string(raw)
}

func (n *seat) await(t *testing.T, path string, want int) {
	t.Helper()
	await(t, fmt.Sprintf("%s of %s is %d", path, n.name, want), func() bool {
		if n.process.over() {
			t.Fatalf("%s ended with %v:\n%s", n.name, n.process.err, n.process.out.tail(4<<10))
		}
		status, _ := n.ask(http.MethodGet, path, "", answers)
		return status == want
	})
}

// works waits until a run is accepted.
func (n *seat) works(t *testing.T) {
	t.Helper()
	await(t, "a run is accepted", func() bool {
		status, _ := n.ask(http.MethodPost, "/api/v1/jobs/away.ask/trigger", "{}", 40*time.Second)
		return status/100 == 2
	})
}

// table is what was played, in the form of a page.
func table(all []played) string {
	out := new(strings.Builder)
	out.WriteString("| situation | store | node | /readyz, /leaderz | GET, page | POST | alerts | stop | log, or exit |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, p := range all {
		fmt.Fprintf(out, "| %s | %s | runs %s| %.1f s | %s |\n", p.situation, p.store, p.running, p.stopped.Seconds(), short(p.running.log))
		if p.exit != 0 {
			fmt.Fprintf(out, "| %s | %s | starts | | | | | | exit code %d: %s |\n", p.situation, p.store, p.exit, short(p.said))
		} else {
			fmt.Fprintf(out, "| %s | %s | starts %s| | %s |\n", p.situation, p.store, p.starting, short(p.starting.log))
		}
	}
	return out.String()
}

func (o seen) String() string {
	var alerts []string
	if o.noLeader {
		alerts = append(alerts, "NoLeader")
	}
	if o.notReady {
		alerts = append(alerts, "NotReady")
	}
	return fmt.Sprintf("| %d, %d | %d, %d | %d | %s ", o.ready, o.leads, o.read, o.page, o.write, strings.Join(alerts, ", "))
}

var secretsAndNumbers = regexp.MustCompile(`127\.0\.0\.1:\d+|/\S*/\d+\S*`)

// short is a line of a log without what differs each time.
func short(line string) string {
	line = secretsAndNumbers.ReplaceAllString(strings.ReplaceAll(line, "|", "\\|"), "...")
	return "`" + strings.TrimSpace(line[:min(len(line), 160)]) + "`"
}
