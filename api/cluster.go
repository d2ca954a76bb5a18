package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/ops"
)

// Cluster is who the nodes are.
type Cluster struct {
	Tolerates int    `json:"tolerates" doc:"How many nodes may fail, and all goes on."`
	Says      string `json:"says" doc:"The same in words." example:"one node may fail"`
	// ApplyVersion is missing where the rows are in a database or in memory.
	ApplyVersion uint32     `json:"applyVersion,omitempty" doc:"The version of the rules that is in force: programs that do not know it cannot be nodes." example:"1"`
	Nodes        []Member   `json:"nodes" nullable:"false"`
	Elections    []Election `json:"elections" nullable:"false" doc:"The last terms, newest first."`
}

// Election is a term in which a node led.
type Election struct {
	Node  string     `json:"node"`
	Term  uint64     `json:"term"`
	Since *time.Time `json:"since,omitempty" doc:"Missing: not known."`
	Until *time.Time `json:"until,omitempty" doc:"Missing: it leads, or it is not known when that ended."`
	Why   string     `json:"why,omitempty" doc:"Why it ended." example:"it was stopped"`
}

// Member is a node of the cluster.
type Member struct {
	Name    string     `json:"name"`
	Address string     `json:"address,omitempty" doc:"Where its pages are."`
	Version string     `json:"version,omitempty"`
	Here    bool       `json:"here" doc:"It is the one that answers."`
	Online  bool       `json:"online" doc:"It was heard of within the last ten seconds."`
	Seen    *time.Time `json:"seen,omitempty" doc:"When it was heard of last."`
	Leads   bool       `json:"leads" doc:"It fires and offers."`
	Term    uint64     `json:"term,omitempty" doc:"That it leads."`
	Since   *time.Time `json:"since,omitempty" doc:"Since when it leads."`
	Skew    float64    `json:"skew" doc:"Its clock less that of the one that leads, or, if nobody does, that answers, in seconds."`
	NATS    string     `json:"nats,omitempty" doc:"How the NATS server in it is, in a few words." example:"5 clients, 2 other servers"`
	Share   *Share     `json:"share,omitempty" doc:"What it fires, where several nodes fire a share of the jobs each."`
	Copy    *Copy      `json:"copy,omitempty" doc:"What it keeps of the rows; missing: they are in a database, or nowhere but here."`
}

// Copy is what a node keeps of the rows.
type Copy struct {
	ID           string     `json:"id"`
	Address      string     `json:"address,omitempty" doc:"Where the other nodes reach it."`
	Voter        bool       `json:"voter" doc:"It has caught up, and counts."`
	Reached      bool       `json:"reached" doc:"It answered just now; what follows is only known then."`
	Applied      uint64     `json:"applied,omitempty" doc:"The last commit in it."`
	LogBytes     int64      `json:"logBytes,omitempty"`
	ArchiveBytes int64      `json:"archiveBytes,omitempty"`
	Snapshot     *time.Time `json:"snapshot,omitempty" doc:"When it wrote its rows out last; missing: not since it was started."`
	ApplyVersion uint32     `json:"applyVersion,omitempty" doc:"The newest version of the rules that its program knows." example:"1"`
}

// FinalizedUpgrade is the answer of finalize-upgrade.
type FinalizedUpgrade struct {
	ApplyVersion uint32 `json:"applyVersion" doc:"The version of the rules that is in force now." example:"1"`
}

// Invitation lets one new node join, once.
type Invitation struct {
	Token string    `json:"token" doc:"For carillon cluster join. It is shown here and never again."`
	Until time.Time `json:"until"`
}

func clusterOf(s *ops.ClusterStatus) Cluster {
	out := Cluster{Tolerates: s.Tolerates, Says: s.Says, ApplyVersion: s.ApplyVersion, Nodes: make([]Member, len(s.Members))}
	for i, m := range s.Members {
		n := Member{Name: m.Name, Address: m.Address, Version: m.Version, Here: m.Here, Online: m.Online, Seen: when(m.Seen),
			Leads: m.Term > 0, Term: m.Term, Since: when(m.Since), Skew: m.Skew.Seconds(), NATS: m.NATS}
		if m.Share != nil {
			n.Share = new(shareOf(*m.Share))
		}
		if m.Copies {
			n.Copy = &Copy{ID: m.ID, Address: m.Store, Voter: m.Voter, Reached: m.Reached, Applied: m.Applied, LogBytes: m.LogBytes, ArchiveBytes: m.ArchiveBytes, Snapshot: when(m.Snapshot), ApplyVersion: m.ApplyVersion}
		}
		out.Nodes[i] = n
	}
	out.Elections = make([]Election, len(s.Elections))
	for i, e := range s.Elections {
		out.Elections[i] = Election{Node: e.Node, Term: e.Term, Since: when(e.Since), Until: when(e.Until), Why: e.Why}
	}
	return out
}

func (a *API) routeCluster() {
	tags := []string{"cluster"}
	register(a, ops.Viewer, huma.Operation{OperationID: "get-cluster", Method: http.MethodGet, Path: "/cluster", Tags: tags, Summary: "Who the nodes are, and how they are"},
		func(ctx context.Context, _ *none) (*struct{ Body Cluster }, error) {
			s, err := a.ops.ClusterStatus(ctx, who(ctx))
			if err != nil {
				return nil, err
			}
			return &struct{ Body Cluster }{clusterOf(&s)}, nil
		})
	register(a, ops.Admin, huma.Operation{OperationID: "invite-node", Method: http.MethodPost, Path: "/cluster/invitations", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Let one new node join", Description: "Who has the token becomes a node, once, and nodes may do everything."},
		func(ctx context.Context, _ *none) (*struct{ Body Invitation }, error) {
			i, err := a.ops.Invite(ctx, who(ctx))
			if err != nil {
				return nil, err
			}
			return &struct{ Body Invitation }{Invitation{i.Token, i.Until}}, nil
		})
	register(a, ops.Admin, huma.Operation{OperationID: "remove-node", Method: http.MethodDelete, Path: "/cluster/nodes/{name}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Take a node out of the cluster", Description: "For one that does not come back. It can join again with a new invitation and an empty directory. The one that leads cannot be removed: transfer first."},
		func(ctx context.Context, in *struct {
			Name string `path:"name" maxLength:"200"`
		}) (*struct{}, error) {
			return nil, a.ops.RemoveNode(ctx, who(ctx), in.Name)
		})
	register(a, ops.Admin, huma.Operation{OperationID: "finalize-upgrade", Method: http.MethodPost, Path: "/cluster/finalize-upgrade", Tags: tags,
		Summary: "Finalize an upgrade", Description: "Put the newest version of the rules that this node knows in force. All nodes must answer and know it (409). There is no way back: older programs can no longer be nodes."},
		func(ctx context.Context, _ *none) (*struct{ Body FinalizedUpgrade }, error) {
			version, err := a.ops.FinalizeUpgrade(ctx, who(ctx))
			if err != nil {
				return nil, err
			}
			return &struct{ Body FinalizedUpgrade }{FinalizedUpgrade{version}}, nil
		})
	register(a, ops.Admin, huma.Operation{OperationID: "transfer-leadership", Method: http.MethodPost, Path: "/cluster/transfer", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Have another node lead"},
		func(ctx context.Context, in *struct {
			Body struct {
				To string `json:"to,omitempty" maxLength:"200" doc:"The node that shall lead; left out: any other."`
			}
		}) (*struct{}, error) {
			return nil, a.ops.Transfer(ctx, who(ctx), in.Body.To)
		})
}
