package embed_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon"
	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/bus/bustest/freeport"
	"github.com/carillon-scheduler/carillon/bus/natsbus"
	"github.com/carillon-scheduler/carillon/bus/natsbus/embedded"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/embed"
	"github.com/carillon-scheduler/carillon/internal/tests"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore/sqltest"
	"github.com/carillon-scheduler/carillon/ops"
	"github.com/carillon-scheduler/carillon/worker"
)

// childNode makes this program a node of the cluster instead of a test: a place, as JSON.
const childNode = "CARILLON_TEST_NODE"

// place is where a node of the cluster lives.
type place struct {
	Name      string
	Database  string
	NATS      string   // of a server elsewhere; "" = one in the node's process
	Port      int      // of that
	Routes    []string // of all of those, its own by its number
	Number    int
	Dir       string // where its copy of the rows is, if they are not in a database
	Store     string // host:port of that
	Advertise string // the address for the other nodes, "" = Store
	Token     string // to join the others with
}

// open starts the node's NATS server, if it has one, and returns the node's configuration.
func (p place) open() (embed.Config, *embedded.Server, error) {
	conf := natsbus.Config{}
	var server *embedded.Server
	if p.NATS == "" {
		var err error
		server, err = embedded.Start(embedded.Config{Name: p.Name, Port: p.Port, Cluster: embedded.Cluster{Addr: p.Routes[p.Number], Routes: p.Routes}})
		if err != nil {
			return embed.Config{}, nil, err
		}
		conf.InProcess = server
	}
	var cluster *embed.Cluster
	if p.Dir != "" {
		cluster = &embed.Cluster{Addr: p.Store, Advertise: p.Advertise, Token: p.Token}
	}
	return embed.Config{Node: p.Name, Dir: p.Dir, Cluster: cluster, Database: p.Database, Address: "http://" + p.Name, Bus: func(ctx context.Context, as bus.Principal) (bus.Bus, error) {
		mine := conf
		mine.As = as
		return natsbus.Connect(ctx, p.NATS, mine)
	}}, server, nil
}

func child(encoded string) {
	var p place
	err := json.Unmarshal([]byte(encoded), &p)
	if err == nil {
		var cfg embed.Config
		if cfg, _, err = p.open(); err == nil {
			var s *embed.Scheduler
			if s, err = embed.Start(context.Background(), cfg); err == nil {
				fmt.Println("ready")
				var tokens []string // all are asked for while it is alone: no election can come between
				for range 2 * min(len(p.Dir), 1) {
					i, err := s.Ops().Invite(context.Background(), ops.Who{})
					tokens = append(tokens, fmt.Sprint(i.Token, " ", err))
				}
				for _, token := range tokens {
					fmt.Println(token)
				}
				<-s.Done()
			}
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

// start starts a node in this process.
func (p place) start(t *testing.T) *embed.Scheduler {
	t.Helper()
	cfg, server, err := p.open()
	if err != nil {
		t.Fatal(err)
	}
	if server != nil {
		t.Cleanup(func() { _ = server.Stop() })
	}
	s, err := embed.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// startChild starts a node in a process of its own and returns when it is ready.
func (p place) startChild(t *testing.T) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	encoded, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childNode+"="+string(encoded))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("node %s wrote %q (%v)", p.Name, lines.Text(), lines.Err())
	}
	return cmd, lines
}

// eventually looks until ok or a generous deadline.
func eventually(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !ok() {
		if time.Since(began) > 2*time.Minute {
			t.Fatal("it never came to this: " + what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

// fixture is nodes on one database, with a worker. The one that leads is a process of its own, so that it can be
// killed.
type fixture struct {
	leader  *exec.Cmd
	standby *embed.Scheduler
	third   *embed.Scheduler // of three
	place   place            // of the standby

	mu   sync.Mutex
	rung map[int]int // by number: how often it ran
	hold chan struct{}
}

type ring struct{ N int }

var ringJob = jobs.Trigger[ring]("test.ring")

// newPair is two nodes with one NATS server beside them.
func newPair(t *testing.T) *fixture {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	h := newFixture()
	h.place = place{Name: "b", Database: sqltest.Postgres.New(t), NATS: server.URL()}
	a := h.place
	a.Name = "a"
	h.leader, _ = a.startChild(t)
	h.standby = h.place.start(t)
	h.work(t, server.URL())
	return h
}

// newThree is three nodes, each with a NATS server in its process. They share a database, or have a copy of the rows
// each.
func newThree(t *testing.T, copies bool) *fixture {
	h := newFixture()
	var clients []string
	var ports []int
	for range 3 {
		h.place.Routes = append(h.place.Routes, freeport.Address(t))
		port := freeport.Port(t)
		clients, ports = append(clients, fmt.Sprintf("nats://127.0.0.1:%d", port)), append(ports, port)
	}
	if !copies {
		h.place.Database = sqltest.Postgres.New(t)
	}
	at := func(i int) place {
		p := h.place
		p.Name, p.Port, p.Number = string(rune('a'+i)), ports[i], i
		if copies {
			p.Dir = t.TempDir()
			p.Store = freeport.Address(t)
		}
		return p
	}
	var lines *bufio.Scanner
	h.leader, lines = at(0).startChild(t)
	joins := func(p place) place {
		if copies && lines.Scan() {
			p.Token, _, _ = strings.Cut(lines.Text(), " ")
		}
		return p
	}
	h.third = joins(at(2)).start(t)
	h.place = joins(at(1))
	h.standby = h.place.start(t)
	h.work(t, strings.Join(clients, ","))
	return h
}

// three returns a function that makes one of three nodes in this process, each with a copy of the rows, per call. The
// first one leads: start it before the next call. with changes a place.
func three(t *testing.T, with func(*place)) (next func() *member) {
	t.Helper()
	var p place
	for range 3 {
		p.Routes = append(p.Routes, freeport.Address(t))
	}
	var leader *member
	n := 0
	return func() *member {
		t.Helper()
		m := &member{place: p}
		m.Name, m.Number, m.Dir = string(rune('a'+n)), n, t.TempDir()
		m.Store = freeport.Address(t)
		m.Port = freeport.Port(t)
		with(&m.place)
		if n++; leader == nil {
			leader = m
			return m
		}
		// If one of two nodes stalls, there is no leader for a moment, and the request is refused. An unused invitation
		// does no harm.
		var err error
		defer func() {
			if err != nil {
				t.Log(err)
			}
		}()
		eventually(t, "node "+m.Name+" is invited", func() bool {
			var i ops.Invitation
			i, err = leader.node.Ops().Invite(t.Context(), ops.Who{})
			m.Token = i.Token
			return err == nil
		})
		return m
	}
}

// member is a place and the node that was started there.
type member struct {
	place
	node *embed.Scheduler
}

func (m *member) start(t *testing.T) {
	t.Helper()
	m.node = m.place.start(t)
}

// client is where the clients of a place's NATS server go.
func (p place) client() string { return fmt.Sprintf("nats://127.0.0.1:%d", p.Port) }

func newFixture() *fixture { return &fixture{rung: map[int]int{}, hold: make(chan struct{})} }

// work starts a worker.
func (h *fixture) work(t *testing.T, nats string) {
	w, err := carillon.NewWorker(nats, worker.Config{App: "bells", Name: "w1"},
		jobs.NewTriggered(jobs.TriggeredFunc[ring](func(ctx context.Context, r ring) error {
			h.mu.Lock()
			h.rung[r.N]++
			h.mu.Unlock()
			if r.N < 0 {
				jobs.Progress(ctx, 3, 10, "3 of 10")
				<-h.hold
			}
			return nil
		}), jobs.Options{Key: "test.ring"}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the standby knows the worker's job", func() bool {
		_, err := h.standby.Ops().Job(t.Context(), ops.Who{}, "test.ring", 0)
		return err == nil
	})
}

// shows waits until a page or API response of the standby has all of these texts, which takes a leader that answers. It
// stops waiting when needNot, which may be nil, returns true.
func (h *fixture) shows(t *testing.T, needNot func() bool, path string, texts ...string) {
	t.Helper()
	var last *httptest.ResponseRecorder
	defer func() {
		if t.Failed() && last != nil {
			t.Logf("%s: status %d: %.3000s", path, last.Code, last.Body)
		}
	}()
	eventually(t, fmt.Sprintf("%s shows %q", path, texts), func() bool {
		if needNot != nil && needNot() {
			return true
		}
		r := httptest.NewRequest("GET", path, nil)
		r.Host = "127.0.0.1"
		last = httptest.NewRecorder()
		h.standby.Handler().ServeHTTP(last, r)
		page := last.Body.String()
		return last.Code == 200 && !slices.ContainsFunc(texts, func(w string) bool { return !strings.Contains(page, w) })
	})
}

// A standby answers everything: commands, pages, what only the leader knows, and streams. If the leader stalls for
// longer than its lease, the standby leads, and the test starts again with two new nodes.
func TestStandbyAnswers(t *testing.T) {
	tests.Long(t)
	for range 5 {
		if standbyAnswers(t) {
			return
		}
		t.Log("the lease did not stay where it was")
	}
	t.Fatal("the machine is too slow for a lease")
}

// standbyAnswers reports whether the same node led all the time.
func standbyAnswers(t *testing.T) bool {
	h := newPair(t)
	defer close(h.hold)
	s := h.standby
	var led ops.Leader
	eventually(t, "the standby knows who leads", func() bool { led = s.Ops().Live().Leader(); return led.Known() })
	moved := func() bool {
		l := s.Ops().Live().Leader()
		return led.Node != "a" || l.Known() && l.Term != led.Term
	}
	sees := func(what string, ok func() bool) {
		t.Helper()
		eventually(t, what, func() bool { return moved() || ok() })
	}
	if !moved() && (led.Here || led.Term == 0 || led.Since.IsZero()) {
		t.Fatalf("to the standby the leader is %+v", led)
	}
	sees("the standby is ready", func() bool { return s.Ready(t.Context()) == nil })
	received := make(chan bool, 1)
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	go s.Ops().Watch(watching, ops.Who{}, func(bus.Changes) {
		select {
		case received <- true:
		default:
		}
	})
	sees("the standby receives an event of a run", func() bool { // not of runs that finished before it watched
		run, err := ringJob.Enqueue(t.Context(), s.Client(), ring{1})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := s.Client().Wait(t.Context(), run.ID); err != nil || r.State != jobs.Succeeded {
			t.Fatalf("%+v (%v)", r, err)
		}
		select {
		case <-received:
			return true
		case <-time.After(time.Second):
			return false
		}
	})
	h.shows(t, moved, "/workers", "w1", "Leader: a")
	h.shows(t, moved, "/cluster", "http://a", "follower")
	h.shows(t, moved, "/api/v1/overview", `"leader":"a"`)
	// What only the leader's memory holds: progress.
	long, err := ringJob.Enqueue(t.Context(), s.Client(), ring{-1})
	if err != nil {
		t.Fatal(err)
	}
	h.shows(t, moved, "/runs/"+long.ID.String(), "3 of 10")
	sees("the standby knows what happened in the last minute", func() bool { return len(s.Ops().Live().Pulse(jobs.DefaultTenant)) > 0 })

	defer func() {
		if t.Failed() {
			t.Logf("the nodes are %+v", s.Ops().Live().Nodes())
		}
	}()
	// The skew in a heartbeat includes the network delay until the leader has measured it.
	sees("the standby knows both nodes, of one machine", func() bool {
		list := s.Ops().Live().Nodes()
		return len(list) == 2 && list[0].Name == "a" && list[0].Online && list[0].Term != 0 && list[0].Address == "http://a" && list[1].Here && list[1].Term == 0 &&
			list[0].Skew.Abs() <= 2*time.Second
	})
	// A second node of the same name ends with an error: at once, or at the first one's next heartbeat if that is
	// slow to answer.
	cfg, _, err := h.place.open()
	if err != nil {
		t.Fatal(err)
	}
	other, err := embed.Start(t.Context(), cfg)
	if err == nil {
		select {
		case <-other.Done():
		case <-time.After(40 * time.Second):
		}
		err = other.Stop()
	}
	if !errors.Is(err, controlplane.ErrTwin) {
		t.Errorf("a second node b: %v", err)
	}
	return !moved()
}

// The leader is killed while programs enqueue at the standby: the standby leads as soon as the lease expires, and each
// run is executed once.
func TestStandbyTakesOver(t *testing.T) { takeOver(t, newPair(t)) }

// And so it is if the NATS server that the worker was at died with the leader.
func TestStandbyTakesOverTheBus(t *testing.T) { takeOver(t, newThree(t, false)) }

// And so it is if the rows died with it, of which the others have copies.
func TestCopiesTakeOver(t *testing.T) { takeOver(t, newThree(t, true)) }

func takeOver(t *testing.T, h *fixture) {
	close(h.hold)
	var next atomic.Int64
	asking, enough := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for asking.Err() == nil {
				n := int(next.Add(1))
				if _, err := ringJob.Enqueue(context.Background(), h.standby.Client(), ring{n}); err != nil {
					t.Errorf("run %d: %v", n, err)
				}
			}
		})
	}
	ran := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.rung)
	}
	eventually(t, "100 runs", func() bool { return ran() >= 100 })
	if err := h.leader.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.leader.Wait()
	took := eventually(t, "another leads", func() bool { l := h.standby.Ops().Live().Leader(); return l.Known() && l.Node != "a" })
	if h.place.Dir != "" {
		h.shows(t, nil, "/cluster", "2 of 3 nodes answer: no other may fail")
	}
	eventually(t, "the elections name the former leader", func() bool { // the others may have led before, too, or have taken turns since
		s, err := h.standby.Ops().ClusterStatus(t.Context(), ops.Who{})
		return err == nil && len(s.Elections) >= 2 && s.Elections[0].Node != "a" && s.Elections[0].Until.IsZero() &&
			slices.ContainsFunc(s.Elections[1:], func(e ops.Election) bool { return e.Node == "a" && e.Why != "" })
	})
	before := ran()
	more := eventually(t, "100 more runs", func() bool { return ran() >= before+100 })
	t.Logf("led after %v, 100 more runs after another %v", took, more)
	enough()
	work.Wait()
	want := int(next.Load())
	eventually(t, "all runs", func() bool { return ran() == want })
	h.mu.Lock()
	defer h.mu.Unlock()
	for n, times := range h.rung {
		if times != 1 {
			t.Errorf("run %d was run %d times", n, times)
		}
	}
}

// Without a leader, a remaining node answers reads from its copy, and reports the copy's age. Commands are refused.
func TestCopyIsReadWithoutLeader(t *testing.T) {
	tests.Long(t)
	h := newThree(t, true)
	close(h.hold)
	run, err := ringJob.Enqueue(t.Context(), h.standby.Client(), ring{1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.standby.Client().Wait(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	ask := func(path string) *httptest.ResponseRecorder {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // half of what a courier asks for
		defer cancel()
		rec := httptest.NewRecorder()
		h.standby.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
		if rec.Code != http.StatusOK {
			t.Errorf("%s: status %d: %.300s", path, rec.Code, rec.Body)
		}
		return rec
	}
	eventually(t, "while there is a leader, responses have no age", func() bool { // there may be an election meanwhile
		return ask("/api/v1/overview").Header().Get("Carillon-Age") == ""
	})
	// The other two may have acknowledged the run without this one, which would then not find it.
	eventually(t, "the standby has what the leader has", func() bool {
		s, err := h.standby.Ops().ClusterStatus(t.Context(), ops.Who{})
		var most, here uint64
		for _, m := range s.Members {
			if most = max(most, m.Applied); m.Here {
				here = m.Applied
			}
		}
		return err == nil && here > 0 && here == most
	})
	if err := h.leader.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = h.leader.Wait()
	if err := h.third.Stop(); err != nil {
		t.Error(err)
	}
	if age := ask("/api/v1/runs/" + run.ID.String()).Header().Get("Carillon-Age"); age == "" || strings.HasPrefix(age, "-") {
		t.Errorf("without a leader, the age of a response is %q", age)
	}
	if page := ask("/jobs").Body.String(); !strings.Contains(page, "The leader does not respond.") {
		t.Error("the page does not show that it is stale")
	}
	// What the copy does not have may exist, and nothing is decided by what it has.
	for _, r := range [][2]string{{http.MethodGet, "/api/v1/jobs/no.such"}, {http.MethodGet, "/jobs/no.such"}, {http.MethodGet, "/api/v1/runs/" + jobs.NewID(time.Now()).String()},
		{http.MethodPost, "/api/v1/jobs/no.such/pause"}, {http.MethodPost, "/api/v1/jobs/test.ring/resume"}, {http.MethodDelete, "/api/v1/jobs/no.such"}} {
		rec, req := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), r[0], r[1], strings.NewReader("{}"))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("If-Match", "*")
		if h.standby.Handler().ServeHTTP(rec, req); rec.Code != http.StatusServiceUnavailable {
			t.Errorf("%s %s: status %d: %.300s", r[0], r[1], rec.Code, rec.Body)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := h.standby.Client().Get(short, run.ID); jobs.CodeOf(err) != jobs.Unavailable {
		t.Errorf("a client gets an old run without its age: %v", err)
	}
}
