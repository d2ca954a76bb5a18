package raftstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/link"
)

// rpcTimeout is how long another node may take to answer. Large requests get more: see pace.go.
const rpcTimeout = 5 * time.Second

// openLink listens for other nodes, if this one may have any.
func (s *Store) openLink() error {
	if s.cfg.Listen == "" {
		return nil
	}
	l, err := link.Open(link.Config{
		Listen: s.cfg.Listen, Listener: s.cfg.listener, Advertise: s.cfg.Advertise, Key: s.identity.key, Logger: s.cfg.Logger, Dialer: s.cfg.dialer,
		Self: s.hello, Member: s.identity.Member, Removed: s.removedForSure,
		Serve: map[link.Purpose]func(*link.Conn){
			link.ForArchive: s.serveArchive, link.ForCall: s.serveCall, link.ForJoin: s.serveJoin, link.ForMeet: s.serveMeet,
		},
	}, link.ForRaft)
	if err != nil {
		return err
	}
	s.link = l
	return nil
}

// recheck closes connections of nodes that have been removed, until ctx ends. New ones are checked as they come.
func (s *Store) recheck(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.cfg.Heartbeat):
			s.link.Recheck()
		}
	}
}

// sureWithin is how long a leader takes to be sure that it still leads.
const sureWithin = 2 * time.Second

// removedForSure reports that a node is not a member, and that this node leads: any other may lag behind the leader
// that has added the node.
func (s *Store) removedForSure(node string) bool {
	r := s.raftNow()
	if r == nil || r.State() != raft.Leader {
		return false
	}
	ctx, cancel := context.WithTimeout(s.ctx, sureWithin)
	defer cancel()
	return s.Linearizable(ctx) == nil && s.identity.Member(node) != nil
}

// hello is this node's introduction.
func (s *Store) hello() link.Hello {
	return link.Hello{Cluster: s.node.Cluster, Epoch: s.node.Epoch, Node: s.node.ID, Name: s.cfg.Node, ApplyVersion: s.cfg.knows}
}

// peer is what is known of another node.
func (s *Store) peer(id string) (link.Peer, bool) {
	if s.link == nil {
		return link.Peer{}, false
	}
	return s.link.Peer(id)
}

// transport is how raft reaches other nodes.
func (s *Store) transport(id raft.ServerID, to logger) raft.Transport {
	if s.link == nil {
		_, trans := raft.NewInmemTransport(raft.ServerAddress(id))
		return trans
	}
	return s.listen(s.ctx, raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: stream{s.link.Stream(link.ForRaft), s}, MaxPool: keptConnections, Timeout: rpcTimeout, Logger: to,
	}))
}

// stream is the connections between the rafts of nodes.
type stream struct {
	net.Listener
	store *Store
}

var _ raft.StreamLayer = stream{}

// Dial connects to the raft of the member at an address, and to no other that may now be there.
func (t stream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(t.store.ctx, timeout)
	defer cancel()
	whom := ""
	for _, m := range t.store.servers() {
		if m.Address == address {
			whom = string(m.ID)
		}
	}
	c, err := t.store.link.Dial(ctx, string(address), whom, link.ForRaft)
	if err != nil {
		return nil, err
	}
	return &paced{Conn: c}, nil
}

// call is a request of one node to another; the field that is set is its kind.
type call struct {
	Status   bool   `json:"status,omitempty"`   // a request for its status
	Announce bool   `json:"announce,omitempty"` // the asker is at the address of its hello
	Rejoin   bool   `json:"rejoin,omitempty"`   // the asker has lost its data and must not vote until it has it again
	Secret   string `json:"secret,omitempty"`   // of a token: the asker wants to join
	Invite   string `json:"invite,omitempty"`   // the token's name
	// Members are the IDs of those that the token names.
	Members []string `json:"members,omitempty"`
	Meet    bool     `json:"meet,omitempty"`  // what the node knows of a cluster; of nodes that have proved the secret
	Enter   string   `json:"enter,omitempty"` // the cluster that such a node wants to join
}

// reply answers a call.
type reply struct {
	Status   *status   `json:"status,omitempty"`
	Leader   string    `json:"leader,omitempty"`   // the address to ask instead
	LeaderID string    `json:"leaderId,omitempty"` // the node there
	Refused  string    `json:"refused,omitempty"`
	Code     jobs.Code `json:"code,omitempty"`
	Epoch    uint64    `json:"epoch,omitempty"`
	Others   []other   `json:"others,omitempty"`
	Met      *met      `json:"met,omitempty"`
}

// status is the state of a node.
type status struct {
	Now          time.Time `json:"now"`
	Leads        bool      `json:"leads,omitempty"`
	Applied      uint64    `json:"applied"`
	Last         uint64    `json:"last"` // entry in its log
	LogBytes     int64     `json:"logBytes"`
	ArchiveBytes int64     `json:"archiveBytes"`
	Snapshot     time.Time `json:"snapshot,omitzero"` // time of its last one
	Ended        uint64    `json:"ended"`             // the archive's last number
	AgeMS        int64     `json:"ageMs"`
	ApplyVersion uint32    `json:"applyVersion"` // the newest version of the rules that it knows
	Whole        bool      `json:"whole"`        // see Store.Whole
}

const maxCall = 64 << 10

// ask sends a request to the node at an address; id is the expected one, "" for any.
func (s *Store) ask(ctx context.Context, address, id string, q call) (r reply, err error) {
	if s.link == nil {
		return r, errNoNetwork
	}
	c, err := s.link.Dial(ctx, address, id, link.ForCall)
	if err != nil {
		return r, err
	}
	defer c.Close()
	return exchange(ctx, c, q)
}

// exchange sends a call and waits for its reply.
func exchange(ctx context.Context, c *link.Conn, q call) (r reply, err error) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if err := link.Write(c, q); err != nil {
		return r, err
	}
	if err := link.Read(c, &r, maxCall); err != nil {
		return r, errors.Join(context.Cause(ctx), err)
	}
	if r.Refused != "" {
		return r, kernel.Refuse(r.Code, "%s", r.Refused)
	}
	return r, nil
}

var errNoNetwork = kernel.Refuse(jobs.Unavailable, "this node does not listen for others: set its address")

// askLeader sends a request to the leader, wherever it is, until it is answered or ctx ends.
func (s *Store) askLeader(ctx context.Context, q call) (reply, error) {
	var last error
	for {
		for _, address := range s.addresses() {
			for range 2 {
				r, err := s.ask(ctx, address, "", q)
				if err != nil {
					if last = err; jobs.CodeOf(err) == jobs.Conflict || jobs.CodeOf(err) == jobs.NotFound {
						return r, err
					}
					break
				}
				if r.Leader == "" {
					return r, nil
				}
				s.identity.introduce(r.LeaderID)
				address, last = r.Leader, fmt.Errorf("the leader at %s does not answer", r.Leader)
			}
		}
		select {
		case <-ctx.Done():
			if last == nil {
				last = errors.New("no other member is known")
			}
			return reply{}, fmt.Errorf("ask the leader: %w", last)
		case <-time.After(s.cfg.Heartbeat):
		}
	}
}

// addresses are where a leader may be, or a node that knows it.
func (s *Store) addresses() (all []string) {
	for _, m := range s.known() {
		all = append(all, m.Address)
	}
	for _, p := range s.cfg.Peers { // the others may have other addresses than when this node last ran
		if p != s.link.Address() && !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// serveCall answers another member's requests.
func (s *Store) serveCall(c *link.Conn) {
	defer c.Close()
	var q call
	_ = c.SetDeadline(time.Now().Add(rpcTimeout))
	if err := link.Read(c, &q, maxCall); err != nil {
		return
	}
	_ = c.SetDeadline(time.Now().Add(4 * rpcTimeout))
	_ = link.Write(c, s.reply(&q, &c.Peer))
}

func (s *Store) reply(q *call, from *link.Hello) reply {
	if q.Status {
		st := s.status()
		return reply{Status: &st}
	}
	r := s.raftNow()
	if r == nil || r.State() != raft.Leader {
		return s.elsewhere()
	}
	var err error
	switch {
	case q.Announce:
		err = s.moved(from)
	case q.Rejoin:
		err = s.rejoined(from)
	default:
		err = kernel.Invalid("unknown request: it needs a newer version")
	}
	return refusal(err)
}

// elsewhere names the leader, as far as this node knows.
func (s *Store) elsewhere() reply {
	if r := s.raftNow(); r != nil {
		if address, id := r.LeaderWithID(); address != "" && string(id) != s.node.ID {
			return reply{Leader: string(address), LeaderID: string(id)}
		}
	}
	return reply{Refused: "there is no leader at the moment", Code: jobs.Unavailable}
}

func refusal(err error) reply {
	if err == nil {
		return reply{}
	}
	return reply{Refused: err.Error(), Code: jobs.CodeOf(err)}
}

// status is the state of this node.
func (s *Store) status() status {
	index, since, taken := s.machine.Bounds.Now()
	_, archived := s.archive.Size()
	st := status{Now: s.cfg.Now(), Applied: index, LogBytes: since, ArchiveBytes: archived, Snapshot: taken, Ended: s.archive.Last(), ApplyVersion: s.cfg.knows}
	if r := s.raftNow(); r != nil {
		st.Leads = r.State() == raft.Leader
		s.nodeMu.Lock()
		if s.node.Began { // a node gets a vote only once it would notice the loss of its log
			st.Last = r.LastIndex()
		}
		s.nodeMu.Unlock()
	}
	st.AgeMS, st.Whole = s.Age().Milliseconds(), s.Whole()
	return st
}
