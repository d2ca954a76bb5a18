package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/carillon-scheduler/carillon/ops"
)

// Cluster describes the nodes.
type Cluster struct {
	Tolerates int    `json:"tolerates" doc:"Nodes that may fail without an outage."`
	Text      string `json:"text" doc:"The same as text." example:"one node may fail"`
	// ApplyVersion is missing where the rows are in a database or in memory.
	ApplyVersion uint32     `json:"applyVersion,omitempty" doc:"The version of the rules in force: programs that do not support it cannot be nodes." example:"1"`
	SecretVoid   bool       `json:"secretVoid,omitempty" doc:"No node joins by the cluster secret until it is changed, because a node was removed that may have kept it."`
	Nodes        []Member   `json:"nodes" nullable:"false"`
	Elections    []Election `json:"elections" nullable:"false" doc:"The latest terms, newest first."`
}

// Election is a term of a leader.
type Election struct {
	Node  string     `json:"node"`
	Term  uint64     `json:"term"`
	Since *time.Time `json:"since,omitempty" doc:"Missing: not known."`
	Until *time.Time `json:"until,omitempty" doc:"Missing: it is the leader, or the end is not known."`
	Why   string     `json:"why,omitempty" doc:"Why it ended." example:"it was stopped"`
}

// Member is a node of the cluster.
type Member struct {
	Name    string     `json:"name"`
	Address string     `json:"address,omitempty" doc:"Address of its pages."`
	Version string     `json:"version,omitempty"`
	Here    bool       `json:"here" doc:"This node sent the response."`
	Online  bool       `json:"online" doc:"A heartbeat arrived within the last ten seconds."`
	Seen    *time.Time `json:"seen,omitempty" doc:"When its last heartbeat arrived."`
	Leads   bool       `json:"leads" doc:"It is the leader, which fires due times and dispatches runs."`
	Term    uint64     `json:"term,omitempty" doc:"The leader's term."`
	Since   *time.Time `json:"since,omitempty" doc:"Since when it is the leader."`
	Skew    float64    `json:"skew" doc:"Its clock less the leader's, in seconds; without a leader, less the clock of the answering node."`
	NATS    string     `json:"nats,omitempty" doc:"State of its embedded NATS server; only for the default tenant." example:"5 clients, 2 other servers"`
	Share   *Share     `json:"share,omitempty" doc:"The jobs that it fires, with distributed triggering; only for the default tenant."`
	Copy    *Copy      `json:"copy,omitempty" doc:"Its copy of the rows; missing: they are in a database, or only in the memory of this node, or the caller is not of the default tenant."`
}

// Copy is a node's copy of the rows.
type Copy struct {
	ID           string     `json:"id"`
	Address      string     `json:"address,omitempty" doc:"Address for the other nodes."`
	Voter        bool       `json:"voter" doc:"It has caught up, and counts for the quorum."`
	Reached      bool       `json:"reached" doc:"It answered just now; the fields below are only known then."`
	Current      bool       `json:"current" doc:"It has all recent commits: a voter counts for fault tolerance only then."`
	Applied      uint64     `json:"applied,omitempty" doc:"Its last commit."`
	LogBytes     int64      `json:"logBytes,omitempty"`
	ArchiveBytes int64      `json:"archiveBytes,omitempty"`
	Snapshot     *time.Time `json:"snapshot,omitempty" doc:"Its latest snapshot; missing: none since it started."`
	ApplyVersion uint32     `json:"applyVersion,omitempty" doc:"The newest version of the rules that its program supports." example:"1"`
}

// FinalizedUpgrade is the response of finalize-upgrade.
type FinalizedUpgrade struct {
	ApplyVersion uint32 `json:"applyVersion" doc:"The version of the rules in force." example:"1"`
}

// Invitation lets one new node join.
type Invitation struct {
	Token string    `json:"token" doc:"For carillon cluster join. It is shown only once."`
	Until time.Time `json:"until"`
}

func clusterOf(s *ops.ClusterStatus) Cluster {
	out := Cluster{Tolerates: s.Tolerates, Text: s.Text, ApplyVersion: s.ApplyVersion, SecretVoid: s.SecretVoid, Nodes: make([]Member, len(s.Members))}
	for i, m := range s.Members {
		n := Member{Name: m.Name, Address: m.Address, Version: m.Version, Here: m.Here, Online: m.Online, Seen: when(m.Seen),
			Leads: m.Term > 0, Term: m.Term, Since: when(m.Since), Skew: m.Skew.Seconds(), NATS: m.NATS}
		if m.Share != nil {
			n.Share = new(shareOf(*m.Share))
		}
		if m.Copies {
			n.Copy = &Copy{ID: m.ID, Address: m.Store, Voter: m.Voter, Reached: m.Reached, Current: m.Current, Applied: m.Applied, LogBytes: m.LogBytes, ArchiveBytes: m.ArchiveBytes, Snapshot: when(m.Snapshot), ApplyVersion: m.ApplyVersion}
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
	register(a, ops.Viewer, huma.Operation{OperationID: "get-cluster", Method: http.MethodGet, Path: "/cluster", Tags: tags, Summary: "Show the nodes and their state"},
		func(ctx context.Context, _ *none) (*struct{ Body Cluster }, error) {
			s, err := a.ops.ClusterStatus(ctx, who(ctx))
			if err != nil {
				return nil, err
			}
			return &struct{ Body Cluster }{clusterOf(&s)}, nil
		})
	register(a, ops.Admin, huma.Operation{OperationID: "invite-node", Method: http.MethodPost, Path: "/cluster/invitations", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Invite a node", Description: "The token is single use. A node has full access."},
		func(ctx context.Context, _ *none) (*struct{ Body Invitation }, error) {
			i, err := a.ops.Invite(ctx, who(ctx))
			if err != nil {
				return nil, err
			}
			return &struct{ Body Invitation }{Invitation{i.Token, i.Until}}, nil
		})
	register(a, ops.Admin, huma.Operation{OperationID: "remove-node", Method: http.MethodDelete, Path: "/cluster/nodes/{name}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Remove a node from the cluster", Description: "For a node that is lost. It can join again with a new invitation and an empty directory. The cluster secret, if there is one, is void for joins until it is changed. The leader cannot be removed: transfer leadership first."},
		func(ctx context.Context, in *struct {
			Name string `path:"name" maxLength:"200"`
		}) (*struct{}, error) {
			return nil, a.ops.RemoveNode(ctx, who(ctx), in.Name)
		})
	register(a, ops.Admin, huma.Operation{OperationID: "finalize-upgrade", Method: http.MethodPost, Path: "/cluster/finalize-upgrade", Tags: tags,
		Summary: "Finalize an upgrade", Description: "Puts the newest version of the rules that this node supports in force. All nodes must answer and support it, else 409. It cannot be undone: older programs can no longer be nodes."},
		func(ctx context.Context, _ *none) (*struct{ Body FinalizedUpgrade }, error) {
			version, err := a.ops.FinalizeUpgrade(ctx, who(ctx))
			if err != nil {
				return nil, err
			}
			return &struct{ Body FinalizedUpgrade }{FinalizedUpgrade{version}}, nil
		})
	register(a, ops.Admin, huma.Operation{OperationID: "transfer-leadership", Method: http.MethodPost, Path: "/cluster/transfer", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Transfer leadership to another node"},
		func(ctx context.Context, in *struct {
			Body struct {
				To string `json:"to,omitempty" maxLength:"200" doc:"The next leader. Default: any other node."`
			}
		}) (*struct{}, error) {
			return nil, a.ops.Transfer(ctx, who(ctx), in.Body.To)
		})
}
