package embed

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore/raftstore"
	"github.com/carillon-scheduler/carillon/ops"
)

// Cluster says how a scheduler with rows in a directory is one of several, each of which has a copy.
type Cluster struct {
	// Addr is host:port where the stores of the others reach this one's.
	Addr string
	// Advertise is the address that they are told, if it is not that one.
	Advertise string
	// Route is where the bus of others comes to the one in this process, which they are told; "" = there is none.
	Route string
	// Identity is that of the node in Dir, for a program whose nodes have more in common than the store. Default: the
	// store finds it itself.
	Identity *raftstore.Identity
	// Token is an invitation with which an empty directory joins. One that has joined needs none, and ignores it.
	Token string
	// Invite makes of a token of the store what whoever is invited is told; default: the token as it is.
	Invite func(token string) (string, error)
	// Part takes the bus of a node that is removed out of those that go with this one; jobs.NotFound means that it is
	// none of them. Default: nodes have no bus of their own.
	Part func(ctx context.Context, node string) error
}

// cluster is what nodes do together, in the words of ops: each has it done by the one that leads.
type cluster struct {
	store  *raftstore.Store // nil = the rows are in a database, which all nodes share
	live   *live
	calls  bus.Calls
	invite func(string) (string, error)
	part   func(context.Context, string) error
}

var _ ops.Cluster = (*cluster)(nil)

// wish is what a node has the leader do.
type wish struct {
	What string `json:"what"`
	Node string `json:"node,omitempty"`
	// Who wants it, and why.
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
}

func (w *wish) by() raftstore.By { return raftstore.By{Actor: w.Actor, Reason: w.Reason} }

const (
	wishStatus   = "status"
	wishInvite   = "invite"
	wishRemove   = "remove"
	wishTransfer = "transfer"
)

// clusterPatience is how long what is asked of the leader may take.
const clusterPatience = 10 * time.Second

// partPatience is how much of that the buses may take to take one of them out. They choose anew who decides when that
// was the node that died, and that takes them some seconds.
const partPatience = 6 * time.Second

// serve does what other nodes ask for, until ctx ends: while this one leads.
func (c *cluster) serve(ctx context.Context, calls bus.Calls) error {
	return calls.Serve(ctx, bus.ServiceCluster, func(_ context.Context, from bus.Principal, request []byte) ([]byte, error) {
		if from.Role != bus.Node {
			return nil, kernel.Refuse(jobs.Forbidden, "%s is no node", from.Actor())
		}
		w, err := bus.Decode[wish](request)
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

// here does what was asked for, at the leader.
func (c *cluster) here(ctx context.Context, w wish) (any, error) {
	if c.store == nil && w.What != wishStatus {
		return nil, kernel.Refuse(jobs.Conflict, "the rows are in a database: a node joins by being started with it, and leadership passes on when the leader is stopped")
	}
	switch w.What {
	case wishStatus:
		return c.status(ctx)
	case wishInvite:
		token, err := c.store.Invite(ctx, w.by())
		if err == nil && c.invite != nil {
			token, err = c.invite(token)
		}
		return ops.Invitation{Token: token, Until: kernel.Instant(time.Now().Add(raftstore.InvitationTime))}, err
	case wishRemove:
		return nil, c.remove(ctx, w)
	case wishTransfer:
		c.live.plane.Because("handed over by " + cmp.Or(w.Actor, "somebody"))
		err := c.store.Transfer(ctx, w.by(), w.Node)
		if err != nil {
			c.live.plane.Because("")
		}
		return nil, err
	}
	return nil, kernel.Invalid("%.40q is nothing that a cluster does in this version", w.What)
}

// remove takes a node out: first its bus out of those of the others, which may have to agree while it is still there, and
// then its copy out of the copies that count. When only the bus could not be taken out it says so, and what was asked
// for can be asked for again.
func (c *cluster) remove(ctx context.Context, w wish) error {
	name, there, err := c.named(ctx, w.Node)
	if err != nil {
		return err
	}
	if c.part == nil || name == c.live.plane.Node() {
		return c.store.Remove(ctx, w.by(), w.Node)
	}
	parted := errors.New("how it is called is not known here")
	if name != "" {
		parting, cancel := context.WithTimeout(ctx, partPatience)
		parted = c.part(parting, name)
		cancel()
	}
	none := jobs.CodeOf(parted) == jobs.NotFound
	if there && parted != nil && !none {
		return kernel.Refuse(jobs.Conflict, "not done: %v", parted)
	}
	switch err := c.store.Remove(ctx, w.by(), w.Node); {
	case jobs.CodeOf(err) == jobs.NotFound && parted == nil:
		return nil // it was half out
	case err != nil || parted == nil || none:
		return err
	}
	return kernel.Refuse(jobs.Conflict, "node %s is no member any more, but its NATS server still counts among those of the others: %v; "+
		"ask for the same again", name, parted)
}

// named is the name of a member that is given by its name or its id, and whether it answers; a name that nobody has is
// its own. A member without which the others could not go on is refused before anything is done.
func (c *cluster) named(ctx context.Context, node string) (name string, there bool, err error) {
	members, err := c.store.Members(ctx)
	if err != nil {
		return "", false, err
	}
	for _, m := range members {
		if m.Name == node || m.ID == node {
			return m.Name, m.Reached, raftstore.Removable(members, m.ID)
		}
	}
	return node, false, nil
}

// status joins what the store knows of its copies with what nodes say of themselves.
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
		s.Tolerates, s.Says = tolerates(members)
		s.ApplyVersion = c.store.ApplyVersion()
		for _, m := range members {
			n, known := nodes[m.Name]
			if !known {
				n = ops.Node{Name: m.Name, Seen: m.LastContact}
			}
			delete(nodes, m.Name)
			if m.Reached && !m.Self {
				n.Skew = m.Skew.Round(time.Millisecond) // with the way taken out
			}
			s.Members = append(s.Members, ops.Member{Node: n, Copies: true, ID: m.ID, Store: m.Address, Voter: m.Voter, Reached: m.Reached,
				Applied: m.Applied, LogBytes: m.LogBytes, ArchiveBytes: m.ArchiveBytes, Snapshot: m.Snapshot, ApplyVersion: m.ApplyVersion})
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
	if s.Tolerates, s.Says = online-1, "all but one of the nodes may fail; the database must not"; online < 2 {
		s.Tolerates, s.Says = 0, "no fault tolerance"
	}
	return s, nil
}

// tolerates is how many nodes may fail now: those that do not answer have.
func tolerates(members []raftstore.Member) (n int, says string) {
	voters, there := 0, 0
	for _, m := range members {
		if m.Voter {
			voters++
			if m.Reached {
				there++
			}
		}
	}
	if voters == there {
		return raftstore.Tolerates(members)
	}
	switch n = there - (voters/2 + 1); {
	case n < 0:
		return 0, fmt.Sprintf("%d of %d nodes answer: nobody can lead until most of them do", there, voters)
	case n == 0:
		return 0, fmt.Sprintf("%d of %d nodes answer: no other may fail", there, voters)
	default:
		return n, fmt.Sprintf("%d of %d nodes answer: %d more may fail", there, voters, n)
	}
}

// asked has the leader do something, which may be this node.
func asked[A any](ctx context.Context, c *cluster, w wish) (answer A, err error) {
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
	case errors.Is(err, bus.ErrNobody), err != nil && jobs.CodeOf(err) == jobs.Unknown && w.What == wishStatus: // nothing was done
		return answer, kernel.Refuse(jobs.Unavailable, "the leader does not answer: %v", err)
	case err != nil:
		return answer, err
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return answer, kernel.Invalid("the leader's answer is not understood: %v", err)
	}
	return answer, nil
}

// Status asks the leader who is there. While nobody leads, what this node knows is better than nothing.
func (c *cluster) Status(ctx context.Context) (ops.ClusterStatus, error) {
	asking, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	s, err := asked[ops.ClusterStatus](asking, c, wish{What: wishStatus})
	if err != nil {
		return c.status(ctx)
	}
	for i := range s.Members {
		s.Members[i].Here = s.Members[i].Name == c.live.plane.Node()
	}
	return s, nil
}

func (c *cluster) Invite(ctx context.Context, who ops.Who) (ops.Invitation, error) {
	return asked[ops.Invitation](ctx, c, wish{What: wishInvite, Actor: who.Actor, Reason: who.Reason})
}

func (c *cluster) Remove(ctx context.Context, who ops.Who, node string) error {
	_, err := asked[any](ctx, c, wish{wishRemove, node, who.Actor, who.Reason})
	return err
}

func (c *cluster) Transfer(ctx context.Context, who ops.Who, node string) error {
	_, err := asked[any](ctx, c, wish{wishTransfer, node, who.Actor, who.Reason})
	return err
}
