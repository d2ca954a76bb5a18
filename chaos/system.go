//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/chaos/judge"
)

// system is control planes, workers and clients, each a process of its own, with wires between them that can be cut.
type system struct {
	dir      string // of everything
	records  string // of what the judge reads
	store    string
	fires    string // triggering: leader or distributed
	programs programs
	ports    ports

	nodes    []*node
	workers  []*member
	clients  []*member
	bus      *member // the NATS server, if it is not in the nodes
	busURL   string  // where that listens
	database *database

	faults *judge.Writer

	mu      sync.Mutex
	crashes []string // processes that have ended by themselves, without a reason that we know
	ending  bool
	keep    string // why the directory is kept, "" = it is not
}

// member is a process with the wires that lead away from it.
type member struct {
	*process
	kind  string // judge.Control, ...
	data  string // its directory, if it has one
	wires []*end

	mu    sync.Mutex
	meant bool // it is down on purpose, or about to be
	full  bool // its disk is full, or was a moment ago: it may end rather than go on
}

// end is a wire at its dialler.
type end struct {
	*proxy
	from string
	rows bool // it leads to the database
}

// node is a control plane.
type node struct {
	*member
	http   string
	busURL string   // of its NATS server, directly; "" = it has none
	clock  string   // the file by which its clock is set
	inward []*proxy // wires that others come by
	disk   string   // where a small disk of its own is mounted, "" = it has none
}

// programs are what is run.
type programs struct{ carillon, worker, client, nats string }

// saboteur names mechanisms that the programs are to do without, to try the judge: see internal/sabotage.
const saboteur = "CARILLON_SABOTAGE"

// build builds all programs, those of the scheduler with a clock that can be set.
func (s *system) build(ctx context.Context) error {
	tags := "faults"
	if os.Getenv(saboteur) != "" {
		tags += ",sabotage"
	}
	bin := filepath.Join(s.dir, "bin")
	s.programs = programs{filepath.Join(bin, "carillon"), filepath.Join(bin, "worker"), filepath.Join(bin, "client"), filepath.Join(bin, "nats-server")}
	for to, pkg := range map[string]string{s.programs.carillon: "cmd/carillon", s.programs.worker: "chaos/worker", s.programs.client: "chaos/client", s.programs.nats: ""} {
		from := "github.com/nats-io/nats-server/v2" // in the module that we link anyway
		if pkg != "" {
			from = "github.com/carillon-scheduler/carillon/" + pkg
		} else if s.store == raft {
			continue
		}
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", tags, "-o", to, from)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", from, err, out)
		}
	}
	return nil
}

const (
	raft     = "raft"
	postgres = "postgres"
	mariadb  = "mariadb"
)

// outward is the address of node i as others dial it; direct is where it listens.
func outward(i int) string { return fmt.Sprintf("127.0.1.%d", i+1) }

const direct = "127.0.0.1"

// raise starts the control planes and waits until they are whole.
func (s *system) raise(ctx context.Context) error {
	if s.store == raft {
		return s.raiseRaft(ctx)
	}
	return s.raiseSQL(ctx)
}

func (s *system) newNode(i int) (*node, error) {
	name := fmt.Sprintf("n%d", i+1)
	web, err := s.ports.block(1)
	if err != nil {
		return nil, err
	}
	n := &node{http: at(direct, web), clock: filepath.Join(s.dir, name+".clock"), member: &member{kind: judge.Control, data: filepath.Join(s.dir, "data", name)}}
	if err := os.WriteFile(n.clock, []byte("0"), 0o600); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(n.data, 0o700); err != nil {
		return nil, err
	}
	s.nodes = append(s.nodes, n)
	return n, nil
}

func (s *system) be(ctx context.Context, n *node, args ...string) error {
	i := len(s.nodes)
	n.process = newProcess(s.dir, fmt.Sprintf("n%d", i), s.programs.carillon, []string{"CHAOS_CLOCK=" + n.clock},
		append([]string{"server", "--node", fmt.Sprintf("n%d", i), "--data", n.data, "--http", n.http, "--log-format", "text", "--triggering", s.fires}, args...)...)
	if err := n.start(); err != nil {
		return err
	}
	go s.supervise(n.member)
	return s.ready(ctx, n)
}

// raiseRaft starts three nodes: one begins, the others join with its invitations. Each dials the others through wires.
func (s *system) raiseRaft(ctx context.Context) error {
	who := dialler(func() (all []*process) {
		for _, n := range s.nodes {
			all = append(all, n.process)
		}
		return all
	})
	for i := range 3 {
		n, err := s.newNode(i)
		if err != nil {
			return err
		}
		if err := s.smallDisk(n); err != nil {
			logf("%s has no small disk of its own: %v", n.data, err)
		}
		peers, err := s.ports.block(2)
		if err != nil {
			return err
		}
		bus, err := s.ports.block(1)
		if err != nil {
			return err
		}
		for _, port := range []int{peers, peers + 1} {
			p, err := newProxy(fmt.Sprintf("n%d", i+1), at(outward(i), port), at(direct, port), who)
			if err != nil {
				return err
			}
			n.inward = append(n.inward, p)
		}
		n.busURL = "nats://" + at(direct, bus)
		args := []string{"--nats-addr", at(direct, bus), "--cluster", at(direct, peers), "--cluster-advertise", outward(i)}
		if i > 0 {
			token := filepath.Join(s.dir, fmt.Sprintf("n%d.token", i+1))
			var invitation api.Invitation
			if err := s.invitation(ctx, &invitation); err != nil {
				return err
			}
			if err := os.WriteFile(token, []byte(invitation.Token), 0o600); err != nil {
				return err
			}
			args = append(args, "--join-file", token)
		}
		if err := s.be(ctx, n, args...); err != nil {
			return err
		}
	}
	for _, n := range s.nodes {
		for _, other := range s.nodes {
			if other != n {
				for _, p := range other.inward {
					n.wires = append(n.wires, &end{proxy: p, from: n.name})
				}
			}
		}
	}
	return s.whole(ctx)
}

// invitation requests one from the nodes until one responds: there may be no leader for a moment.
func (s *system) invitation(ctx context.Context, into *api.Invitation) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var last error
	err := until(ctx, "a node is invited", func(ctx context.Context) bool {
		for _, n := range s.nodes[:len(s.nodes)-1] { // without the one that is to join
			if last = s.ask(ctx, n, http.MethodPost, "/api/v1/cluster/invitations", struct{}{}, into); last == nil {
				return true
			}
		}
		return false
	})
	return errors.Join(err, last)
}

// busFor makes wires from a process to all NATS servers, and returns the URL to use. place is the process's unique
// number on its network.
func (s *system) busFor(m *member, network, place int) (string, error) {
	var servers []string
	for _, n := range s.nodes {
		if n.busURL != "" {
			servers = append(servers, strings.TrimPrefix(n.busURL, "nats://"))
		}
	}
	if s.bus != nil {
		servers = []string{strings.TrimPrefix(s.busURL, "nats://")}
	}
	var urls []string
	for _, to := range servers {
		_, port, _ := strings.Cut(to, ":")
		listen := fmt.Sprintf("127.0.%d.%d:%s", network, place+1, port)
		p, err := newProxy(m.name+">"+to, listen, to, nil)
		if err != nil {
			return "", err
		}
		m.wires = append(m.wires, &end{proxy: p})
		urls = append(urls, "nats://"+listen)
	}
	return strings.Join(urls, ","), nil
}

// hire starts the workers.
func (s *system) hire(n int, list []judge.Spec) error {
	for i := range n {
		name := fmt.Sprintf("w%d", i+1)
		m := &member{kind: judge.Worker, process: newProcess(s.dir, name, s.programs.worker, nil)}
		url, err := s.busFor(m, 2, i)
		if err != nil {
			return err
		}
		raw, err := json.Marshal(map[string]any{"URL": url, "Name": name, "Slots": 24, "Dir": s.records, "Specs": list})
		if err != nil {
			return err
		}
		m.env = []string{"CHAOS_WORKER=" + string(raw)}
		if err := m.start(); err != nil {
			return err
		}
		go s.supervise(m)
		s.workers = append(s.workers, m)
	}
	return nil
}

// invite starts the clients.
func (s *system) invite(n, rate int, seed uint64, asked, bothered []judge.Spec) error {
	var apis []string
	for _, n := range s.nodes {
		apis = append(apis, n.http)
	}
	for i := range n {
		name := fmt.Sprintf("c%d", i+1)
		m := &member{process: newProcess(s.dir, name, s.programs.client, nil)}
		url, err := s.busFor(m, 3, i)
		if err != nil {
			return err
		}
		var mine []judge.Spec
		for k, b := range bothered {
			if k%n == i {
				mine = append(mine, b)
			}
		}
		raw, err := json.Marshal(map[string]any{"URL": url, "APIs": apis, "Name": name, "Dir": s.records, "Seed": seed + uint64(i), "Rate": rate, "Specs": asked, "Mine": mine})
		if err != nil {
			return err
		}
		m.env = []string{"CHAOS_CLIENT=" + string(raw)}
		if err := m.start(); err != nil {
			return err
		}
		s.clients = append(s.clients, m)
	}
	return nil
}

// byItself is the note about a process that ended without a fault.
const byItself = "ended by itself"

// supervise starts a process again that has ended by itself, as systemd would.
func (s *system) supervise(m *member) {
	for {
		m.process.mu.Lock()
		ended := m.ended
		m.process.mu.Unlock()
		<-ended
		m.mu.Lock()
		meant, full := m.meant, m.full
		m.process.mu.Lock()
		meant = meant || m.ended != ended // it was started again already
		m.process.mu.Unlock()
		m.mu.Unlock()
		s.mu.Lock()
		ending := s.ending
		s.mu.Unlock()
		if ending {
			return
		}
		if meant { // the fault starts it again
			time.Sleep(20 * time.Millisecond)
			continue
		}
		f := fell(judge.Kill, m, byItself)
		logf("%s has ended by itself (%v) and is started again", m.name, m.over())
		if !full {
			s.mu.Lock()
			s.crashes = append(s.crashes, fmt.Sprintf("%s (%v)", m.name, m.over()))
			s.mu.Unlock()
		}
		time.Sleep(time.Second)
		m.mu.Lock()
		if !m.meant && !m.lives() {
			if err := m.start(); err != nil {
				logf("%v", err)
			}
		}
		m.mu.Unlock()
		f.End = judge.Now()
		if err := s.faults.Write(f); err != nil {
			logf("a fault was not recorded: %v", err)
		}
	}
}

// down marks that a process ends on purpose, until up.
func (m *member) down() { m.mu.Lock(); m.meant = true; m.mu.Unlock() }

// up starts what was ended on purpose.
func (m *member) up() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var err error
	if !m.lives() {
		err = m.start()
	}
	m.meant = false
	return err
}

// ask makes a request to a node.
func (s *system) ask(ctx context.Context, n *node, method, path string, body, into any) error {
	var sent io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+n.http+path, sent)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("If-Match", "*")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	raw, err := io.ReadAll(a.Body)
	if err != nil {
		return err
	}
	if a.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s %.200s", method, path, a.Status, raw)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(raw, into)
}

// get sends a request to the nodes, one after the other, until one responds.
func (s *system) get(ctx context.Context, path string, into any) (err error) {
	for _, n := range s.nodes {
		if !n.lives() || n.frozen {
			continue
		}
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		e := s.ask(one, n, http.MethodGet, path, nil, into)
		cancel()
		if e == nil {
			return nil
		}
		err = errors.Join(err, e)
	}
	if err == nil {
		err = errors.New("no node lives")
	}
	return err
}

func (s *system) ready(ctx context.Context, n *node) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return until(ctx, n.name+" is ready", func(ctx context.Context) bool { return s.ask(ctx, n, http.MethodGet, "/readyz", nil, nil) == nil })
}

// whole waits until a node may fail.
func (s *system) whole(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	return until(ctx, "the cluster is whole", func(ctx context.Context) bool {
		for _, n := range s.nodes {
			if s.ask(ctx, n, http.MethodGet, "/readyz", nil, nil) != nil {
				return false
			}
		}
		var c api.Cluster
		return s.get(ctx, "/api/v1/cluster", &c) == nil && c.Tolerates == 1
	})
}

// leader returns the leader, as a node reports it.
func (s *system) leader(ctx context.Context) (*node, error) {
	var found *node
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := until(ctx, "a node leads", func(ctx context.Context) bool {
		var o api.Overview
		if s.get(ctx, "/api/v1/overview", &o) != nil {
			return false
		}
		for _, n := range s.nodes {
			if n.name == o.Leader && n.lives() {
				found = n
			}
		}
		return found != nil
	})
	return found, err
}

// until looks until something is so.
func until(ctx context.Context, what string, so func(context.Context) bool) error {
	for {
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		ok := so(one)
		cancel()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not in time", what)
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// end stops everything.
func (s *system) end() {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	for _, c := range s.clients {
		c.kill()
	}
	for _, m := range s.workers {
		m.kill()
	}
	for _, n := range s.nodes {
		n.kill()
		s.giveBack(n)
	}
	if s.bus != nil {
		s.bus.kill()
	}
	if s.database != nil {
		s.database.Stop()
	}
}
