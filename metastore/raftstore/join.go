package raftstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/link"
)

// invitation is the content of a token.
type invitation struct {
	Cluster string    `json:"c"`
	Members []contact `json:"m"` // the one that made it is the first
	Name    string    `json:"n"`
	Secret  string    `json:"s"`
}

// contact is the address of a member, and its ID, by which it is known there.
type contact struct {
	ID      string `json:"i"`
	Address string `json:"a"`
}

// ids are those of the members that a token names.
func (i invitation) ids() (ids []string) {
	for _, m := range i.Members {
		ids = append(ids, m.ID)
	}
	return ids
}

// seal is the stored form of a token: a digest of its secret and of the members that it names. It is valid as long as
// all of these are members, because a removed one may have kept it.
func seal(secret string, members []string) jobs.ID {
	return kernel.SecretID(strings.Join(append([]string{secret}, members...), " "))
}

// By is who acts, and why, for the audits.
type By struct {
	Actor  string `json:"actor"`
	Reason string `json:"reason,omitempty"`
}

// InvitationTime is how long a token is valid.
const InvitationTime = 15 * time.Minute

const tokenTitle = "carillon-join-1."

// Invite makes a token with which one new node can join, once, within InvitationTime. Its stored form is a row with a
// digest of its secret, so it outlives a change of leaders. Only the leader can.
func (s *Store) Invite(ctx context.Context, by By) (token string, err error) {
	if s.link == nil {
		return "", errNoNetwork
	}
	if err := s.Linearizable(ctx); err != nil {
		return "", err
	}
	i := invitation{Cluster: s.node.Cluster, Members: []contact{{s.node.ID, s.link.Address()}}, Name: rand.Text()[:12], Secret: rand.Text()}
	for _, is := range s.servers() {
		if m := s.member(is); !m.Self {
			i.Members = append(i.Members, contact{m.ID, m.Address})
		}
	}
	if token, err = i.token(); err != nil {
		return "", err
	}
	return token, s.note(ctx, by, kernel.Invite{Name: i.Name, Secret: seal(i.Secret, i.ids()), Until: s.cfg.Now().Add(InvitationTime)})
}

// note applies a command about nodes. They belong to the default tenant, and so do audits of them.
func (s *Store) note(ctx context.Context, by By, k kernel.Command) error {
	e := kernel.Envelope{ID: jobs.NewID(s.cfg.Now()), Tenant: jobs.DefaultTenant, Actor: cmp.Or(by.Actor, "node:"+s.cfg.Node), Reason: by.Reason, Command: k}
	return s.Apply(ctx, []kernel.Envelope{e})[0].Err
}

func (i invitation) token() (string, error) {
	b, err := json.Marshal(i)
	return tokenTitle + base64.RawURLEncoding.EncodeToString(b), err
}

func readToken(token string) (i invitation, err error) {
	text, ok := strings.CutPrefix(strings.TrimSpace(token), tokenTitle)
	b, err := base64.RawURLEncoding.DecodeString(text)
	if ok && err == nil {
		err = json.Unmarshal(b, &i)
	}
	if !ok || err != nil || i.Cluster == "" || len(i.Members) == 0 || i.Secret == "" {
		return i, kernel.Invalid("invalid join token: want the whole token, which begins with %s", tokenTitle)
	}
	return i, nil
}

// serveJoin answers nodes that ask to join. They have proved nothing but what their token proves.
func (s *Store) serveJoin(c *link.Conn) {
	defer c.Close()
	var q call
	_ = c.SetDeadline(time.Now().Add(rpcTimeout))
	if err := link.Read(c, &q, maxCall); err != nil {
		return
	}
	_ = c.SetDeadline(time.Now().Add(4 * rpcTimeout))
	if r := s.raftNow(); r == nil || r.State() != raft.Leader {
		_ = link.Write(c, s.elsewhere())
		return
	}
	s.answerJoin(c, s.welcome(&q, &c.Peer))
}

// answerJoin answers a node that asks to join.
func (s *Store) answerJoin(c *link.Conn, answer reply) {
	if answer.Refused != "" {
		s.cfg.Logger.Warn("a node was refused", "name", c.Peer.Name, "address", c.Peer.Address, "cause", answer.Refused)
	} else {
		s.cfg.Logger.Info("node joins", "node", c.Peer.Node, "name", c.Peer.Name, "address", c.Peer.Address)
	}
	_ = link.Write(c, answer)
}

// welcome makes a member of a node with a token, without a vote yet.
func (s *Store) welcome(q *call, from *link.Hello) reply {
	ctx, cancel := context.WithTimeout(s.ctx, 2*rpcTimeout)
	defer cancel()
	if err := s.Linearizable(ctx); err != nil {
		return refusal(err)
	}
	node, _ := jobs.ParseID(from.Node)
	join := kernel.Join{Name: q.Invite, Secret: seal(q.Secret, q.Members), Node: node, Called: from.Name, Address: from.Address}
	if !s.invites(join) { // without a token a node learns nothing about the members
		return refusal(kernel.Refuse(jobs.Forbidden, "unknown join token: it was used, is older than %v, or belongs to another cluster; create a new one", InvitationTime))
	}
	s.changes.Lock()
	defer s.changes.Unlock()
	for _, id := range q.Members {
		if s.identity.Member(id) != nil {
			return refusal(kernel.Refuse(jobs.Forbidden, "the token was made before node %s was removed, which may have kept it: create a new one", id))
		}
	}
	if err := s.acceptable(from, ""); err != nil {
		return refusal(err)
	}
	if err := s.note(ctx, By{Actor: "node:" + from.Name}, join); err != nil {
		return refusal(err)
	}
	return s.add(from)
}

// add makes a member of a node, and returns what it needs to know. The caller has locked changes.
func (s *Store) add(from *link.Hello) reply {
	others := []other{{s.node.ID, s.cfg.Node, s.link.Address()}}
	for _, is := range s.servers() {
		if m := s.member(is); !m.Self && m.ID != from.Node {
			others = append(others, other{m.ID, m.Name, m.Address})
		}
	}
	if err := changed("add a node", s.raft.AddNonvoter(raft.ServerID(from.Node), raft.ServerAddress(from.Address), 0, enqueueTimeout)); err != nil {
		return refusal(err)
	}
	s.nudge()
	return reply{Epoch: s.node.Epoch, Others: others}
}

// acceptable returns why a node cannot join. old is the ID of the member in whose place it joins, if any.
func (s *Store) acceptable(from *link.Hello, old string) error {
	if from.Node == "" || from.Address == "" || len(from.Node) > 100 || len(from.Name) > 200 {
		return kernel.Invalid("a node that joins must send its id and its address")
	}
	if skew := time.Until(from.Now); skew.Abs() > mostSkew {
		return kernel.Refuse(jobs.Conflict, "the clock of the node is off by %v: set it right first", skew.Round(time.Second))
	}
	if inForce := s.machine.InForce(); from.ApplyVersion < inForce {
		return kernel.Refuse(jobs.Conflict, "the node knows version %d of the rules, and version %d is in force here: start a newer program there", from.ApplyVersion, inForce)
	}
	for _, is := range s.servers() {
		m := s.member(is)
		switch {
		case m.ID == old:
		case m.ID == from.Node && !m.Voter && m.Address == from.Address && (m.Name == "" || m.Name == from.Name):
		// It asks again: the answer was lost.
		case m.ID == from.Node:
			return kernel.Refuse(jobs.Conflict, "node id %s is in use, by node %s at %s: do not copy a directory to make a second node", m.ID, m.Name, m.Address)
		case m.Address == from.Address:
			return kernel.Refuse(jobs.Conflict, "address %s is in use, by node %s: remove that node first if it is gone", m.Address, cmp.Or(m.Name, m.ID))
		case m.Name != "" && m.Name == from.Name:
			return kernel.Refuse(jobs.Conflict, "a node is called %.80q already, at %s", m.Name, m.Address)
		}
	}
	return nil
}

// invites reports whether an invitation is valid for a node now.
func (s *Store) invites(k kernel.Join) (good bool) {
	s.machine.Engine.Update(func(tx metastore.Tx) { good = metastore.Invited(tx, k, jobs.DefaultTenant, s.cfg.Now()) })
	return good
}

// Join makes a node of an empty directory a member of a cluster, by a token from Invite, and returns its store when
// it has caught up and votes. If the node is a member already, its directory is opened and the token ignored: a node
// may be started with the same arguments again and again. When ctx ends too early the store is closed; Open, or Join
// again, continues.
func Join(ctx context.Context, c Config, token string) (*Store, error) {
	i, err := readToken(token)
	if err != nil {
		return nil, err
	}
	c = c.withDefaults()
	n, err := loadNode(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	switch {
	case c.Listen == "":
		return nil, errNoNetwork
	case n != nil && n.Cluster != i.Cluster:
		return nil, kernel.Refuse(jobs.Conflict, "directory %s has the data of another cluster, %s: join with an empty one", c.Dir, n.Cluster)
	case n == nil && hasData(c.Dir):
		return nil, kernel.Refuse(jobs.Conflict, "directory %s is not empty: join with an empty one", c.Dir)
	case n == nil:
		if c.Identity == nil {
			if c.Identity, err = Identify(c.Dir); err != nil {
				return nil, err
			}
		}
		// The address that others get must be where this node will listen.
		if c.listener, err = net.Listen("tcp", c.Listen); err != nil {
			return nil, fmt.Errorf("join: %w", err)
		}
		if err := introduce(ctx, &c, i); err != nil {
			_ = c.listener.Close()
			return nil, fmt.Errorf("join cluster %s: %w", i.Cluster, err)
		}
	}
	s, err := openContext(ctx, c, nil)
	if err != nil {
		return nil, err
	}
	if err := s.untilVoter(ctx); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("join cluster %s: %w", i.Cluster, err)
	}
	return s, nil
}

func hasData(dir string) bool {
	for _, name := range append([]string{archiveFolder}, logFiles...) {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// introduce sends a token to the leader and stores its answer.
func introduce(ctx context.Context, c *Config, i invitation) error {
	address, err := link.Reachable(c.Advertise, c.listener.Addr())
	if err != nil {
		return err
	}
	n := &node{Cluster: i.Cluster, ID: c.Identity.Node()} // the same for each request
	hello := link.Hello{Cluster: i.Cluster, Node: n.ID, Name: c.Node, Address: address, Purpose: link.ForJoin, ApplyVersion: c.knows}
	dial := func(ctx context.Context, to contact) (*link.Conn, error) {
		return link.DialFirst(ctx, to.Address, c.Identity.key, to.is, hello)
	}
	q := call{Invite: i.Name, Secret: i.Secret, Members: i.ids()}
	for until := time.Now().Add(joinPatience); ; {
		r, err := askAround(ctx, i.Members, dial, q)
		switch {
		case err == nil:
			n.Epoch, n.Others = r.Epoch, r.Others
			c.Identity.list(n.Others)
			return n.save(c.Dir)
		case ctx.Err() != nil || !elsewhere(err) || time.Now().After(until):
			return err
		}
		select { // no leader, for a moment
		case <-ctx.Done():
		case <-time.After(min(c.Heartbeat, time.Second)):
		}
	}
}

// joinPatience is how long a node that joins asks the members, while none of them leads.
const joinPatience = 30 * time.Second

// errNoAnswer is the error of a request that may have arrived. A join can be repeated.
var errNoAnswer = errors.New("no answer arrived")

// elsewhere reports whether another member may answer what this one did not.
func elsewhere(err error) bool {
	if failed, ok := errors.AsType[*net.OpError](err); ok && failed.Op == "dial" {
		return true
	}
	return errors.Is(err, jobs.Unavailable) || errors.Is(err, errNoAnswer)
}

// askAround asks members, and those they name, until one answers as the leader. The error is of the last that did
// not.
func askAround(ctx context.Context, at []contact, dial func(context.Context, contact) (*link.Conn, error), q call) (r reply, err error) {
	err = kernel.Refuse(jobs.Unavailable, "no node leads")
	for _, whom := range at {
		for range 3 {
			conn, failed := dial(ctx, whom)
			if failed != nil {
				err = failed
				break
			}
			r, failed = exchange(ctx, conn, q)
			_ = conn.Close()
			if failed != nil && jobs.CodeOf(failed) == jobs.Unknown {
				failed = fmt.Errorf("%w: %w", errNoAnswer, failed)
			}
			switch {
			case failed == nil && r.Leader == "":
				return r, nil
			case failed == nil:
				whom = contact{r.LeaderID, r.Leader}
				continue
			case !elsewhere(failed):
				return r, failed
			}
			err = failed
			break
		}
	}
	return r, err
}

// is refuses every node but the contact.
func (c contact) is(node string) error {
	if node != c.ID {
		return fmt.Errorf("node %s answers, where %s was expected", node, c.ID)
	}
	return nil
}

// untilVoter waits until this node has a vote.
func (s *Store) untilVoter(ctx context.Context) error {
	for {
		for _, is := range s.servers() {
			if string(is.ID) == s.node.ID && is.Suffrage == raft.Voter {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not caught up yet: %w", context.Cause(ctx))
		case <-s.failed:
			return s.leading.over()
		case <-time.After(min(s.cfg.Heartbeat, time.Second) / 5): // it only looks at local state
		}
	}
}
