package raftstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/link"
)

// Nodes with stable names and a secret in common find each other without invitations: see OpenAmong.

// CheckSecret returns why a text has no usable secrets: one on each line.
func CheckSecret(text string) error {
	_, err := link.ParseSecrets(text)
	return err
}

// CheckPeers returns why a list of peers is not one that the node at the address self is in.
func CheckPeers(peers []string, self string) error {
	seen := map[string]bool{}
	for _, p := range peers {
		host, port, err := net.SplitHostPort(p)
		n, bad := strconv.Atoi(port)
		if ip := net.ParseIP(host); err != nil || bad != nil || host == "" || strings.ContainsAny(host, " /@") || n < 1 || n > 65535 || ip != nil && ip.IsUnspecified() {
			return kernel.Invalid("invalid peer %.200q: want host:port, such as carillon-0.carillon-nodes:7946", p)
		}
		if seen[strings.ToLower(p)] {
			return kernel.Invalid("peer %s is listed twice: list each node once", p)
		}
		seen[strings.ToLower(p)] = true
	}
	if !seen[strings.ToLower(self)] {
		return kernel.Invalid("the peers (%s) do not include this node's own address %s: add it, or set the advertised address to the listed one", strings.Join(peers, ", "), self)
	}
	return nil
}

// differences logs which nodes have another secret: a line when that begins, and one when it has ended.
type differences struct {
	log *slog.Logger

	mu    sync.Mutex
	nodes map[string]string // the errors, by direction and name
}

// mostDifferences limits the nodes that get lines: their names are not proved.
const mostDifferences = 64

// note logs a change of the outcome of proofs with a node, in one direction.
func (d *differences) note(direction, name, address string, err error) {
	different, is := errors.AsType[*link.SecretError](err)
	if err != nil && !is {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := direction + " " + name
	_, was := d.nodes[key]
	switch {
	case is && !was && len(d.nodes) < mostDifferences:
		if d.nodes == nil {
			d.nodes = map[string]string{}
		}
		d.nodes[key] = different.Error()
		d.log.Warn("a node was refused", "name", name, "address", address, "cause", different)
	case !is && was:
		delete(d.nodes, key)
		d.log.Info("the node's cluster secret is accepted now", "name", name, "address", address)
	}
}

// met is what a node tells another that has proved the secret.
type met struct {
	Cluster string `json:"cluster,omitempty"` // "" = the node has no data
	First   string `json:"first"`             // first of its peers
}

// receive checks the proof of a node that connects, and reads its request. secret is the one that it has proved.
func receive(c *link.Conn, self string, secrets link.Secrets, d *differences) (q call, secret string, ok bool) {
	_ = c.SetDeadline(time.Now().Add(rpcTimeout))
	secret, err := secrets.Answer(c, self)
	d.note("from", c.Peer.Name, c.Peer.Address, err)
	if err != nil || link.Read(c, &q, maxCall) != nil {
		return q, "", false
	}
	_ = c.SetDeadline(time.Now().Add(4 * rpcTimeout))
	return q, secret, true
}

// serveMeet answers nodes that may have proved the secret and nothing else.
func (s *Store) serveMeet(c *link.Conn) {
	defer c.Close()
	q, secret, ok := receive(c, s.node.ID, s.secrets, &s.differences)
	switch r := s.raftNow(); {
	case !ok:
	case q.Meet:
		_ = link.Write(c, reply{Met: &met{Cluster: s.node.Cluster, First: s.cfg.first()}})
	case r == nil || r.State() != raft.Leader:
		_ = link.Write(c, s.elsewhere())
	default:
		s.answerJoin(c, s.welcomeBySecret(&q, &c.Peer, secret))
	}
}

// first is the peer that may found a cluster.
func (c *Config) first() string {
	if len(c.Peers) == 0 {
		return ""
	}
	return c.Peers[0]
}

// welcomeBySecret makes a member of a node that has proved the secret, without a vote yet. It takes the place of a
// node of its name that has lost its data.
func (s *Store) welcomeBySecret(q *call, from *link.Hello, secret string) reply {
	ctx, cancel := context.WithTimeout(s.ctx, 2*rpcTimeout)
	defer cancel()
	if err := s.Linearizable(ctx); err != nil {
		return refusal(err)
	}
	if q.Enter != s.node.Cluster {
		return refusal(kernel.Refuse(jobs.Conflict, "this is cluster %s, not %.60q", s.node.Cluster, q.Enter))
	}
	s.changes.Lock()
	defer s.changes.Unlock()
	old, err := s.lost(ctx, from)
	if err == nil {
		err = s.acceptable(from, old.ID)
	}
	if err != nil {
		return refusal(err)
	}
	for _, is := range s.servers() {
		if string(is.ID) == from.Node { // it asks again: the answer was lost
			return s.add(from)
		}
	}
	by := By{Actor: "node:" + from.Name, Reason: "proved the cluster secret"}
	if old.ID != "" {
		by.Reason += ", in place of " + old.ID + " that lost its data"
	}
	if err := s.note(ctx, by, kernel.Members{ID: jobs.NewID(s.cfg.Now()), Did: kernel.NodeJoined, Node: from.Name, Secrets: digestsOf(link.Secrets{secret})}); err != nil {
		return refusal(err) // no change without its audit
	}
	if old.ID != "" {
		if err := changed("remove "+old.ID, s.raft.RemoveServer(raft.ServerID(old.ID), 0, within(ctx))); err != nil {
			return refusal(err)
		}
		s.cfg.Logger.Warn("a node has lost its data and joins again", "node", old.ID, "name", from.Name, "address", old.Address)
	}
	return s.add(from)
}

// digestsOf is what is stored of secrets.
func digestsOf(secrets link.Secrets) (all []jobs.ID) {
	for _, secret := range secrets {
		all = append(all, kernel.ClusterSecretID(secret))
	}
	return all
}

// SecretVoid reports whether the cluster secret is void for joins, because a node was removed that may have kept it.
func (s *Store) SecretVoid() (void bool) {
	if len(s.secrets) == 0 {
		return false
	}
	s.machine.Engine.Update(func(tx metastore.Tx) {
		void = metastore.SecretVoid(tx, jobs.DefaultTenant, kernel.ClusterSecretID(s.secrets[0]))
	})
	return void
}

// lost is the member in whose place a node with an empty directory joins: the one of its name, or if that is unknown,
// of its address. ID is "" if there is none. The error is why the node cannot take its place.
func (s *Store) lost(ctx context.Context, from *link.Hello) (old Member, err error) {
	members, err := s.Members(ctx)
	if err != nil {
		return old, err
	}
	for _, m := range members {
		switch {
		case m.ID == from.Node || from.Name == "" || m.Name != from.Name && (m.Name != "" || m.Address != from.Address):
		case m.Reached:
			return old, kernel.Refuse(jobs.Conflict, "node %.80s is running at %s: give this node another name, or stop that one", from.Name, m.Address)
		default:
			if err := Removable(members, m.ID); err != nil {
				return old, fmt.Errorf("node %.80s cannot take the place of the one that lost its data: %w (carillon cluster remove), "+
					"or recover the cluster from one node (carillon cluster recover)", from.Name, err)
			}
			return m, nil
		}
	}
	return old, nil
}

// OpenAmong opens the store of a node that has a secret and peers in Config. An empty directory becomes a member of
// the peers' cluster. Only the first peer founds one, and only when all others have proved that they have no data
// either. It waits for as long as ctx lasts, and returns when the node votes. Other directories are just opened.
func OpenAmong(ctx context.Context, c Config) (*Store, error) {
	c = c.withDefaults()
	secrets, err := link.ParseSecrets(c.Secret)
	if err != nil {
		return nil, err
	}
	n, err := loadNode(c.Dir)
	switch {
	case err != nil:
		return nil, fmt.Errorf("join: %w", err)
	case c.Listen == "":
		return nil, errNoNetwork
	case n != nil:
		return Open(c)
	case hasData(c.Dir):
		return nil, kernel.Refuse(jobs.Conflict, "directory %s is not empty: join with an empty one", c.Dir)
	}
	if c.Identity == nil {
		if c.Identity, err = Identify(c.Dir); err != nil {
			return nil, err
		}
	}
	joined, err := newcomer{cfg: &c, secrets: secrets, differences: &differences{log: c.Logger}}.join(ctx)
	if err != nil {
		return nil, err
	}
	if joined {
		c.Logger.Info("the node waits for its copy of the rows")
	}
	s, err := openContext(ctx, c, nil)
	if err != nil || !joined {
		return s, err
	}
	if err := s.untilVoter(ctx); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("join cluster %s: %w", s.node.Cluster, err)
	}
	return s, nil
}

// newcomer is a node with an empty directory that looks for the cluster of its peers.
type newcomer struct {
	cfg         *Config
	secrets     link.Secrets
	differences *differences
	address     string // of this node
}

// join returns when the node is a member without data yet, or when it is to found a cluster: joined is false then.
func (n newcomer) join(ctx context.Context) (joined bool, err error) {
	hello := n.hello("") // not n itself, whose address is set below
	l, err := link.Open(link.Config{
		Listen: n.cfg.Listen, Advertise: n.cfg.Advertise, Key: n.cfg.Identity.key, Logger: n.cfg.Logger, Dialer: n.cfg.dialer, Member: n.cfg.Identity.Member,
		Self: func() link.Hello { return hello }, Serve: map[link.Purpose]func(*link.Conn){link.ForMeet: n.serve},
	})
	if err != nil {
		return false, fmt.Errorf("join: %w", err)
	}
	defer l.Close()
	n.address = l.Address()
	if err := CheckPeers(n.cfg.Peers, n.address); err != nil {
		return false, err
	}
	waits := ""
	for {
		next, err := n.decide(n.ask(ctx))
		if err != nil {
			return false, err
		}
		if next.cluster != "" {
			next.wait, err = n.enter(ctx, next)
			joined = err == nil && next.wait == ""
		}
		if err != nil {
			return false, fmt.Errorf("join cluster %s: %w", next.cluster, err)
		}
		if joined || next.found {
			n.cfg.Logger.Info("the node waits no longer for its cluster", "outcome", next.String())
			return joined, nil
		}
		if next.wait != waits && ctx.Err() == nil {
			waits = next.wait
			n.cfg.Logger.Info("the node has no data and waits for its cluster", "cause", waits)
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("join: %s: %w", waits, context.Cause(ctx))
		case <-time.After(min(n.cfg.Heartbeat, time.Second)):
		}
	}
}

func (n newcomer) hello(address string) link.Hello {
	return link.Hello{Node: n.cfg.Identity.Node(), Name: n.cfg.Node, Address: address, ApplyVersion: n.cfg.knows}
}

// serve answers the other peers, that this node has no data.
func (n newcomer) serve(c *link.Conn) {
	defer c.Close()
	q, _, ok := receive(c, n.cfg.Identity.Node(), n.secrets, n.differences)
	switch {
	case !ok:
	case q.Meet:
		_ = link.Write(c, reply{Met: &met{First: n.cfg.first()}})
	default:
		_ = link.Write(c, reply{Refused: "the node has no data", Code: jobs.Unavailable})
	}
}

// answer is what a peer answers.
type answer struct {
	peer       string // as it is listed
	node, name string
	met        met
	err        error
}

// ask asks all other peers at the same time.
func (n newcomer) ask(ctx context.Context) []answer {
	others := slices.DeleteFunc(slices.Clone(n.cfg.Peers), func(p string) bool { return strings.EqualFold(p, n.address) })
	all := make([]answer, len(others))
	var asking sync.WaitGroup
	for i, peer := range others {
		asking.Go(func() { all[i] = n.askOne(ctx, peer) })
	}
	asking.Wait()
	return all
}

func (n newcomer) askOne(ctx context.Context, peer string) answer {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	a := answer{peer: peer}
	c, err := n.dial(ctx, contact{Address: peer})
	if err != nil {
		a.err = err
		return a
	}
	defer c.Close()
	a.node, a.name = c.Peer.Node, c.Peer.Name
	r, err := exchange(ctx, c, call{Meet: true})
	if a.err = err; err == nil && r.Met == nil {
		a.err = errors.New("it has not answered the question")
	}
	if r.Met != nil {
		a.met = *r.Met
	}
	return a
}

func (n newcomer) dial(ctx context.Context, to contact) (*link.Conn, error) {
	c, err := link.Meet(ctx, n.cfg.dialer, to.Address, n.cfg.Identity.key, n.secrets, n.hello(n.address))
	if different, is := errors.AsType[*link.SecretError](err); is {
		n.differences.note("to", different.Name, to.Address, err)
	} else if err == nil {
		n.differences.note("to", c.Peer.Name, to.Address, nil)
	}
	return c, err
}

// step is what a node without data does next.
type step struct {
	found   bool   // a new cluster
	cluster string // join this one
	at      []contact
	wait    string // for this, "" = for nothing
}

func (s step) String() string {
	if s.found {
		return "founds a cluster: no peer has data"
	}
	return "joined cluster " + s.cluster
}

// decide is the rules: a member's cluster is joined; the first peer founds one when all others have no data; else the
// node waits. The error is a mistake in the configuration that waiting does not correct.
func (n newcomer) decide(answers []answer) (next step, err error) {
	nodes := map[string]string{n.cfg.Identity.Node(): n.address} // the peers of IDs
	var differ []error
	var missing []string
	var member answer
	for _, a := range answers {
		if different, is := errors.AsType[*link.SecretError](a.err); is {
			differ, missing = append(differ, different), append(missing, a.peer+" (its cluster secret differs)")
			continue
		}
		if a.err != nil {
			missing = append(missing, a.peer+" (does not answer)")
			continue
		}
		if same := nodes[a.node]; same != "" {
			return next, kernel.Invalid("peers %s and %s are the same node, %s: list each node once", same, a.peer, a.name)
		}
		nodes[a.node] = a.peer
		switch {
		case !strings.EqualFold(a.met.First, n.cfg.first()):
			return next, kernel.Refuse(jobs.Conflict, "node %s at %s has another first peer, %s, than this node, %s: set the same list of peers on all nodes",
				a.name, a.peer, cmp.Or(a.met.First, "none"), n.cfg.first())
		case a.met.Cluster == "":
		case next.cluster != "" && next.cluster != a.met.Cluster:
			return next, kernel.Refuse(jobs.Conflict, "node %s at %s belongs to cluster %s, and node %s at %s to cluster %s: list only the nodes of one, or empty the directories of the other",
				member.name, member.peer, next.cluster, a.name, a.peer, a.met.Cluster)
		default:
			next.cluster, member = a.met.Cluster, a
			next.at = append(next.at, contact{ID: a.node, Address: a.peer})
		}
	}
	switch {
	case next.cluster != "":
	case len(differ) > 0 && len(differ) == len(answers):
		return next, kernel.Refuse(jobs.Forbidden, "%s; set the same secret on all nodes, and start this one again", strings.ReplaceAll(errors.Join(differ...).Error(), "\n", "; "))
	case !strings.EqualFold(n.cfg.first(), n.address):
		next.wait = "for " + n.cfg.first() + ", the first peer, to found a cluster, or for a peer that is in one"
		if len(missing) > 0 {
			next.wait += "; missing: " + strings.Join(missing, ", ")
		}
	case len(missing) > 0:
		next.wait = "this node is the first peer and founds a cluster when no other peer has data; missing: " + strings.Join(missing, ", ")
	default:
		next.found = true
	}
	return next, nil
}

// enter asks the leader of a cluster to become a member. wait is why it is to ask again later.
func (n newcomer) enter(ctx context.Context, to step) (wait string, err error) {
	asking, cancel := context.WithTimeout(ctx, 4*rpcTimeout)
	defer cancel()
	r, err := askAround(asking, to.at, n.dial, call{Enter: to.cluster})
	switch code := jobs.CodeOf(err); {
	case err == nil:
	case code == jobs.Conflict, code == jobs.Forbidden, code == jobs.BadInput:
		return "", err
	default:
		n.cfg.Logger.Debug("not joined yet", "err", err)
		return "for cluster " + to.cluster + " to have a leader; if most of its nodes have lost their data, see carillon cluster recover", nil
	}
	saved := &node{Cluster: to.cluster, ID: n.cfg.Identity.Node(), Epoch: r.Epoch, Others: r.Others}
	n.cfg.Identity.list(saved.Others)
	return "", saved.save(n.cfg.Dir)
}
