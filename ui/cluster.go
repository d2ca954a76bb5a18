package ui

import (
	"fmt"
	"net/http"
	"time"

	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/ops"
)

// clusterPage is the nodes and their state.
type clusterPage struct {
	visitor
	ops.ClusterStatus
	Nodes  []nodeRow
	Copies bool // the nodes keep copies, which have sizes
}

// nodeRow is a node.
type nodeRow struct {
	ops.Member
	State, Tone   string // the state, and its severity
	Log, Archive  string
	Clock         string
	Off           bool // its clock is off by more than the tolerance
	CanBeTheFirst bool // it is a follower that can become the leader
}

// clockBearable is how far clocks may differ before a page reports it: due times come by the leader's.
const clockBearable = metastore.ClockSlack

func (u *UI) cluster(r *http.Request, v visitor) (answer, error) {
	s, err := u.ops.ClusterStatus(r.Context(), v.Who)
	if err != nil {
		return answer{}, err
	}
	p := clusterPage{visitor: v, ClusterStatus: s}
	for _, m := range s.Members {
		n := nodeRow{Member: m, State: "offline", Tone: "bad"}
		switch {
		case m.Term > 0:
			n.State, n.Tone = "leader", "good"
		case m.Online && m.Copies && (!m.Voter || m.Reached && !m.Current):
			n.State, n.Tone = "catching up", "warn"
		case m.Online && m.Share != nil:
			n.State, n.Tone = "triggering", "good"
		case m.Online:
			n.State, n.Tone = "follower", ""
			n.CanBeTheFirst = m.Copies && v.Admin()
		}
		if m.Copies {
			p.Copies = true
			if m.Reached {
				n.Log, n.Archive = bytesOf(m.LogBytes), bytesOf(m.ArchiveBytes)
			}
		}
		if m.Online && m.Term == 0 {
			n.Clock, n.Off = m.Skew.Round(time.Millisecond).String(), m.Skew.Abs() > clockBearable
		}
		p.Nodes = append(p.Nodes, n)
	}
	return answer{page: "cluster", title: "Cluster", data: p}, nil
}

// transfer transfers leadership to another node.
func (u *UI) transfer(r *http.Request, v visitor) (answer, error) {
	if err := u.ops.Transfer(r.Context(), v.Who, r.PostFormValue("to")); err != nil {
		return answer{}, err
	}
	return goTo("/cluster", "transfer"), nil
}

// bytesOf formats a number of bytes.
func bytesOf(n int64) string {
	v, unit := float64(n), ""
	for _, u := range []string{"Ki", "Mi", "Gi", "Ti"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, u
	}
	if unit == "" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %sB", v, unit)
}
