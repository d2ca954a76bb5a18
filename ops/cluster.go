package ops

import (
	"context"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Cluster is the cluster of nodes. Every node answers; what only the leader can do is forwarded to it.
type Cluster interface {
	Status(ctx context.Context) (ClusterStatus, error)
	Invite(ctx context.Context, who Who) (Invitation, error)
	// Remove removes a lost node from the cluster, by its name.
	Remove(ctx context.Context, who Who, node string) error
	// Transfer transfers leadership to a node by its name, or to any other if that is "".
	Transfer(ctx context.Context, who Who, node string) error
}

// ClusterStatus is the nodes and the state of the cluster.
type ClusterStatus struct {
	Tolerates int    // nodes that may fail without an outage
	Text      string // the same as text
	// ApplyVersion is the version of the rules in force; 0 = not known.
	ApplyVersion uint32
	// SecretVoid reports that no node joins by the cluster secret, until it is changed: a node was removed that may have
	// kept it.
	SecretVoid bool
	Members    []Member
	Elections  []Election // the latest terms, newest first
}

// Election is a term of a leader.
type Election struct {
	Node  string
	Term  uint64
	Since time.Time // zero = not known
	Until time.Time // zero = it is the leader, or the end is not known
	Why   string    // it ended
}

// Member is a node, with what the cluster knows of its copy of the rows, if each has one.
type Member struct {
	Node
	Share        *Share // what it fires; nil if the leader fires all
	Copies       bool   // it has a copy; without, the fields below mean nothing
	ID           string // identifies its copy
	Store        string // address of the copy for other nodes
	Voter        bool   // its copy counts for the quorum
	Reached      bool   // it answered just now; the fields below are only known then
	Current      bool   // its copy has all recent commits
	Applied      uint64 // the last commit in its copy
	LogBytes     int64
	ArchiveBytes int64
	Snapshot     time.Time // its latest snapshot; zero = none since it started
	ApplyVersion uint32    // the newest version of the rules that it supports
}

// Invitation lets one new node join.
type Invitation struct {
	Token string
	Until time.Time
}

// ClusterStatus returns the nodes and the state of the cluster. Other tenants than the default one see which nodes live
// and lead: commits, bytes and shares of jobs would show them how busy the others are.
func (o *Ops) ClusterStatus(ctx context.Context, who Who) (s ClusterStatus, err error) {
	if o.cluster == nil {
		s.Text = "no fault tolerance"
		for _, n := range o.live.Nodes() {
			s.Members = append(s.Members, Member{Node: n})
		}
	} else if s, err = o.cluster.Status(ctx); err != nil {
		return s, err
	}
	if who.tenant() != jobs.DefaultTenant {
		members := make([]Member, len(s.Members))
		for i, m := range s.Members {
			members[i].Node = m.Node
			members[i].NATS = ""
		}
		s.Members, s.SecretVoid = members, false
	}
	for _, f := range o.shares(who) {
		i := slices.IndexFunc(s.Members, func(m Member) bool { return m.Name == f.Node })
		if i < 0 { // it is only known by its row in the database, whose lease lasts seconds
			i = len(s.Members)
			s.Members = append(s.Members, Member{Node: Node{Name: f.Node, Here: f.Here, Online: true, Seen: o.Now()}})
		}
		s.Members[i].Share = &f
	}
	return s, nil
}

// shares returns the nodes that fire a share of the jobs each; none for tenants that must not see how many these are.
func (o *Ops) shares(who Who) []Share {
	if who.tenant() != jobs.DefaultTenant {
		return nil
	}
	return o.live.Shares()
}

// Invite creates a token with which one new node can join.
func (o *Ops) Invite(ctx context.Context, who Who) (Invitation, error) {
	if err := o.several(who); err != nil {
		return Invitation{}, err
	}
	return o.cluster.Invite(ctx, who)
}

// RemoveNode removes a node from the cluster.
func (o *Ops) RemoveNode(ctx context.Context, who Who, node string) error {
	if err := o.several(who); err != nil {
		return err
	}
	return o.cluster.Remove(ctx, who, node)
}

// Transfer transfers leadership to another node.
func (o *Ops) Transfer(ctx context.Context, who Who, node string) error {
	if err := o.several(who); err != nil {
		return err
	}
	return o.cluster.Transfer(ctx, who, node)
}

// FinalizeUpgrade puts the newest version of the rules that this node supports in force, and returns it: older programs
// cannot be nodes any more. It is refused while a node does not support that version.
func (o *Ops) FinalizeUpgrade(ctx context.Context, who Who) (version uint32, err error) {
	_, err = o.apply(ctx, who, kernel.FinalizeUpgrade{To: kernel.ApplyVersion})
	return kernel.ApplyVersion, err
}

// several refuses requests that need a cluster, callers with a scope, and all tenants but the default one, since tenants share the nodes.
func (o *Ops) several(who Who) error {
	if err := who.unlimited(); err != nil {
		return err
	}
	if who.tenant() != jobs.DefaultTenant {
		return kernel.Refuse(jobs.Forbidden, "tenant %s may not manage nodes", who.tenant())
	}
	if o.cluster == nil {
		return kernel.Refuse(jobs.Conflict, "this scheduler is not a cluster: to let nodes join, start it with cluster.addr")
	}
	return nil
}
