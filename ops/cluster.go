package ops

import (
	"context"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Cluster is what several nodes do together. Each of them answers; what only the leader can do is done there.
type Cluster interface {
	Status(ctx context.Context) (ClusterStatus, error)
	Invite(ctx context.Context, who Who) (Invitation, error)
	// Remove takes a node that is no more out of the cluster, by its name.
	Remove(ctx context.Context, who Who, node string) error
	// Transfer has another node lead: the one of a name, or any if that is "".
	Transfer(ctx context.Context, who Who, node string) error
}

// ClusterStatus is who is there, and what may happen to them.
type ClusterStatus struct {
	Tolerates int    // how many nodes may fail, and all goes on
	Says      string // the same in words
	// ApplyVersion is the version of the rules that is in force; 0 = not known.
	ApplyVersion uint32
	Members      []Member
	Elections    []Election // the last terms, newest first
}

// Election is a term in which a node led.
type Election struct {
	Node  string
	Term  uint64
	Since time.Time // zero = not known
	Until time.Time // zero = it leads, or it is not known when that ended
	Why   string    // it ended
}

// Member is a node, with what the cluster knows of its copy of the rows, if each has one.
type Member struct {
	Node
	Share        *Share // what it fires; nil if the one that leads fires all
	Copies       bool   // it keeps a copy; without, what follows means nothing
	ID           string // by which its copy is known
	Store        string // where the others reach that
	Voter        bool   // its copy counts
	Reached      bool   // it answered just now; what follows is only known then
	Applied      uint64 // the last commit in its copy
	LogBytes     int64
	ArchiveBytes int64
	Snapshot     time.Time // when it wrote its rows out last; zero = not since it was started
	ApplyVersion uint32    // the newest version of the rules that it knows
}

// Invitation lets one new node join, once.
type Invitation struct {
	Token string
	Until time.Time
}

// ClusterStatus says who is there.
func (o *Ops) ClusterStatus(ctx context.Context, _ Who) (s ClusterStatus, err error) {
	if o.cluster == nil {
		s.Says = "no fault tolerance"
		for _, n := range o.live.Nodes() {
			s.Members = append(s.Members, Member{Node: n})
		}
	} else if s, err = o.cluster.Status(ctx); err != nil {
		return s, err
	}
	for _, f := range o.live.Shares() {
		i := slices.IndexFunc(s.Members, func(m Member) bool { return m.Name == f.Node })
		if i < 0 { // it is known by its row in the database alone, whose lease is seconds long
			i = len(s.Members)
			s.Members = append(s.Members, Member{Node: Node{Name: f.Node, Here: f.Here, Online: true, Seen: o.Now()}})
		}
		s.Members[i].Share = &f
	}
	return s, nil
}

// Invite makes a token with which one new node can join.
func (o *Ops) Invite(ctx context.Context, who Who) (Invitation, error) {
	if err := o.several(who); err != nil {
		return Invitation{}, err
	}
	return o.cluster.Invite(ctx, who)
}

// RemoveNode takes a node out of the cluster.
func (o *Ops) RemoveNode(ctx context.Context, who Who, node string) error {
	if err := o.several(who); err != nil {
		return err
	}
	return o.cluster.Remove(ctx, who, node)
}

// Transfer has another node lead.
func (o *Ops) Transfer(ctx context.Context, who Who, node string) error {
	if err := o.several(who); err != nil {
		return err
	}
	return o.cluster.Transfer(ctx, who, node)
}

// FinalizeUpgrade puts the newest version of the rules that this node knows in force, and answers with it: older programs
// cannot be nodes any more. It is refused while a node does not know that version.
func (o *Ops) FinalizeUpgrade(ctx context.Context, who Who) (version uint32, err error) {
	if who.tenant() != jobs.DefaultTenant {
		return 0, kernel.Refuse(jobs.Forbidden, "tenant %s may not finalize an upgrade: all tenants share the nodes", who.tenant())
	}
	_, err = o.apply(ctx, who, kernel.FinalizeUpgrade{To: kernel.ApplyVersion})
	return kernel.ApplyVersion, err
}

// several refuses what takes a cluster; and all but the default tenant, since nodes are everybody's.
func (o *Ops) several(who Who) error {
	if who.tenant() != jobs.DefaultTenant {
		return kernel.Refuse(jobs.Forbidden, "the nodes are not tenant %s's", who.tenant())
	}
	if o.cluster == nil {
		return kernel.Refuse(jobs.Conflict, "this scheduler is one process, and no other can join: start it with cluster.addr")
	}
	return nil
}
