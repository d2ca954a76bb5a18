package embed

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore"
	"github.com/carillon-scheduler/carillon/ops"
)

// Cluster configures one of several nodes, each of which keeps a copy of the rows in its directory.
type Cluster struct {
	// Addr is the host:port at which this node's store listens for the other nodes.
	Addr string
	// Advertise is the address that the other nodes use; default: Addr.
	Advertise string
	// Route is the address at which the other nodes' NATS servers reach the one in this process; "" = this process has
	// none.
	Route string
	// Identity is the node's identity, for programs that use it outside the store, too. Default: the store reads it
	// from Dir.
	Identity *raftstore.Identity
	// Token is an invitation with which an empty directory joins a cluster. A node that has joined ignores it.
	Token string
	// Peers are the addresses of all nodes, and Secret is what they have in common, instead of Token: empty directories
	// become one cluster, which the first peer founds when no other has data. A Secret may have several lines; the first
	// is used, all are accepted.
	Peers  []string
	Secret string
	// Invite turns the store's token into the invitation for a new node; default: the token itself.
	Invite func(token string) (string, error)
}

// cluster implements ops.Cluster: every node sends its requests to the leader.
type cluster struct {
	store  *raftstore.Store // nil = the rows are in a database, which all nodes share
	live   *live
	calls  bus.Calls
	invite func(string) (string, error)
}

var _ ops.Cluster = (*cluster)(nil)

// clusterRequest is what a node asks of the leader.
type clusterRequest struct {
	What string `json:"what"`
	Node string `json:"node,omitempty"`
	// For the audit.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
}

func (w *clusterRequest) by() raftstore.By { return raftstore.By{Actor: w.Actor, Reason: w.Reason} }

const (
	requestStatus   = "status"
	requestInvite   = "invite"
	requestRemove   = "remove"
	requestTransfer = "transfer"
)

// clusterPatience is the timeout of a request to the leader.
const clusterPatience = 10 * time.Second

// serve answers the requests of other nodes until ctx ends: while this node leads.
func (c *cluster) serve(ctx context.Context, calls bus.Calls) error {
	return calls.Serve(ctx, bus.ServiceCluster, func(_ context.Context, from bus.Principal, request []byte) ([]byte, error) {
		if from.Role != bus.Node {
			return nil, kernel.Refuse(jobs.Forbidden, "%s is not a node", from.Actor())
		}
		w, err := bus.Decode[clusterRequest](request)
		if err != nil {
			return nil, err
		}
		// Not under the context of this term, which a transfer ends.
		ctx, cancel := context.WithTimeout(context.Background(), clusterPatience)
		defer cancel()
		answer, err := c.here(ctx, w)
		if err != nil {
			return nil, err
		}
		return bus.Encode(answer), nil
	})
}

// here executes a request on the leader.
func (c *cluster) here(ctx context.Context, w clusterRequest) (any, error) {
	if c.store == nil && w.What != requestStatus {
		return nil, kernel.Refuse(jobs.Conflict, "the rows are in a database: a node joins by being started with it, and leadership passes on when the leader is stopped")
	}
	switch w.What {
	case requestStatus:
		return c.status(ctx)
	case requestInvite:
		token, err := c.store.Invite(ctx, w.by())
		if err == nil && c.invite != nil {
			token, err = c.invite(token)
		}
		return ops.Invitation{Token: token, Until: kernel.Instant(time.Now().Add(raftstore.InvitationTime))}, err
	case requestRemove:
		return nil, c.store.Remove(ctx, w.by(), w.Node)
	case requestTransfer:
		c.live.plane.Because("leadership transferred by " + cmp.Or(w.Actor, "an unknown actor"))
		err := c.store.Transfer(ctx, w.by(), w.Node)
		if err != nil {
			c.live.plane.Because("")
		}
		return nil, err
	}
	return nil, kernel.Invalid("unknown cluster request %.40q: upgrade this node", w.What)
}

// status joins the store's members with the heartbeats of nodes.
func (c *cluster) status(ctx context.Context) (s ops.ClusterStatus, err error) {
	for _, r := range c.live.plane.Elections() {
		s.Elections = append(s.Elections, ops.Election(r))
	}
	nodes := map[string]ops.Node{}
	for _, n := range c.live.Nodes() {
		nodes[n.Name] = n
	}
	if c.store != nil {
		members, err := c.store.Members(ctx)
		if err != nil {
			return s, err
		}
		s.Tolerates, s.Text = raftstore.Tolerates(members)
		s.ApplyVersion, s.SecretVoid = c.store.ApplyVersion(), c.store.SecretVoid()
		for _, m := range members {
			n, known := nodes[m.Name]
			if !known {
				n = ops.Node{Name: m.Name, Seen: m.LastContact}
			}
			delete(nodes, m.Name)
			if m.Reached && !m.Self {
				n.Skew = m.Skew.Round(time.Millisecond) // without the network delay
			}
			s.Members = append(s.Members, ops.Member{Node: n, Copies: true, ID: m.ID, Store: m.Address, Voter: m.Voter, Reached: m.Reached,
				Current: m.Current, Applied: m.Applied, LogBytes: m.LogBytes, ArchiveBytes: m.ArchiveBytes, Snapshot: m.Snapshot, ApplyVersion: m.ApplyVersion})
		}
		return s, nil
	}
	online := 0
	for _, n := range c.live.Nodes() {
		s.Members = append(s.Members, ops.Member{Node: n})
		if n.Online {
			online++
		}
	}
	if s.Tolerates, s.Text = online-1, "all but one of the nodes may fail; the database must not"; online < 2 {
		s.Tolerates, s.Text = 0, "no fault tolerance"
	}
	return s, nil
}

// asked sends a request to the leader, which may be this node.
func asked[A any](ctx context.Context, c *cluster, w clusterRequest) (answer A, err error) {
	if term, _ := c.live.plane.Leading(); term > 0 {
		a, err := c.here(ctx, w)
		if err != nil || a == nil {
			return answer, err
		}
		return a.(A), nil
	}
	ctx, cancel := context.WithTimeout(ctx, clusterPatience)
	defer cancel()
	raw, err := c.calls.Call(ctx, bus.ServiceCluster, bus.Encode(w))
	switch {
	case errors.Is(err, bus.ErrNoReceiver), err != nil && jobs.CodeOf(err) == jobs.Unknown && w.What == requestStatus: // nothing was done
		return answer, kernel.Refuse(jobs.Unavailable, "the leader does not answer: %v", err)
	case err != nil:
		return answer, err
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return answer, kernel.Invalid("invalid response of the leader: %v", err)
	}
	return answer, nil
}

// Status asks the leader for the members. While there is no leader, it returns what this node knows.
func (c *cluster) Status(ctx context.Context) (ops.ClusterStatus, error) {
	asking, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	s, err := asked[ops.ClusterStatus](asking, c, clusterRequest{What: requestStatus})
	if err != nil {
		return c.status(ctx)
	}
	for i := range s.Members {
		s.Members[i].Here = s.Members[i].Name == c.live.plane.Node()
	}
	return s, nil
}

func (c *cluster) Invite(ctx context.Context, who ops.Who) (ops.Invitation, error) {
	return asked[ops.Invitation](ctx, c, clusterRequest{What: requestInvite, Actor: who.Actor, Reason: who.Reason})
}

func (c *cluster) Remove(ctx context.Context, who ops.Who, node string) error {
	_, err := asked[any](ctx, c, clusterRequest{requestRemove, node, who.Actor, who.Reason})
	return err
}

func (c *cluster) Transfer(ctx context.Context, who ops.Who, node string) error {
	_, err := asked[any](ctx, c, clusterRequest{requestTransfer, node, who.Actor, who.Reason})
	return err
}
