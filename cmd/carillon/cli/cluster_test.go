package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
)

// cluster status with three nodes: a leader, a standby that answers, and an offline node.
func TestClusterTable(t *testing.T) {
	now := time.Date(2026, 11, 21, 22, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *time.Time { return new(now.Add(-d)) }
	c := api.Cluster{
		Tolerates: 0, Text: "2 of 3 nodes answer: no other may fail",
		Nodes: []api.Member{
			{Name: "n1", Address: "https://n1:8080", Online: true, Leads: true, Term: 7, Seen: ago(0), Since: ago(time.Hour),
				Copy: &api.Copy{ID: "a", Voter: true, Reached: true, Current: true, Applied: 123_456, LogBytes: 70 << 20, ArchiveBytes: 3 << 30}},
			{Name: "n2", Address: "https://n2:8080", Online: true, Here: true, Seen: ago(2 * time.Second), Skew: -0.0123,
				Copy: &api.Copy{ID: "b", Voter: true, Reached: true, Current: true, Applied: 123_455, LogBytes: 68 << 20, ArchiveBytes: 3 << 30}},
			{Name: "n3", Address: "https://n3:8080", Seen: ago(90 * time.Second), Copy: &api.Copy{ID: "c", Voter: true}},
		},
		Elections: []api.Election{
			{Node: "n1", Term: 7, Since: ago(time.Hour)},
			{Node: "n3", Term: 6, Since: ago(26 * time.Hour), Until: ago(time.Hour), Why: "it was stopped"},
			{Node: "n2", Term: 3, Until: ago(26 * time.Hour), Why: "another node took over"},
		},
	}
	p := &page{now: now}
	clusterTable(p, &c)
	const want = `
NODE  STATE             SEEN       COMMIT  LOG       ARCHIVE  CLOCK  PAGES
n1    leads, term 7     now        123456  70.0 MiB  3.0 GiB  0s     https://n1:8080
n2    standby, answers  2.0s ago   123455  68.0 MiB  3.0 GiB  -12ms  https://n2:8080
n3    offline           1m30s ago  -       -         -        0s     https://n3:8080
2 of 3 nodes answer: no other may fail

TERM  LEADER  FROM      TO        ENDED BECAUSE
7     n1      1h ago    -         -
6     n3      1d2h ago  1h ago    it was stopped
3     n2      -         1d2h ago  another node took over
`
	if got := strings.TrimSpace(p.String()); got != strings.TrimSpace(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A voter that was restarted is catching up until it has all recent commits.
func TestClusterTableOfACatchUp(t *testing.T) {
	c := api.Cluster{Nodes: []api.Member{{Name: "n2", Online: true, Copy: &api.Copy{ID: "b", Voter: true, Reached: true, Applied: 7}}}}
	p := &page{}
	clusterTable(p, &c)
	if got := p.String(); !strings.Contains(got, "n2    catching up") {
		t.Errorf("got\n%s", got)
	}
}

// Nodes that each fire a share of the jobs are not standbys.
func TestClusterTableOfShares(t *testing.T) {
	c := api.Cluster{Tolerates: 1, Nodes: []api.Member{
		{Name: "n1", Online: true, Leads: true, Term: 7, Share: &api.Share{Node: "n1", Jobs: 151}},
		{Name: "n2", Online: true, Here: true, Share: &api.Share{Node: "n2", Jobs: 149}},
		{Name: "n3", Share: &api.Share{Node: "n3", Jobs: 0}},
	}}
	p := &page{}
	clusterTable(p, &c)
	for _, want := range []string{"n1    leads, term 7, 151 jobs ", "n2    fires, 149 jobs, answers ", "n3    offline "} {
		if got := p.String(); !strings.Contains(got, want) {
			t.Errorf("%q is missing:\n%s", want, got)
		}
	}
}

// overview lists nodes that each fire a share of the jobs, and nothing if the leader fires all.
func TestOverviewListsFiringNodes(t *testing.T) {
	o := api.Overview{Leader: "n1", Shares: []api.Share{{Node: "n1", Jobs: 151, Fired: 9}, {Node: "n2", Jobs: 149, Here: true}}}
	p := &page{}
	overviewPage(p, "http://n2:8080", &o)
	if got := p.String(); !strings.Contains(got, "n1 (151 jobs), n2 (149 jobs)\n") {
		t.Errorf("got\n%s", got)
	}
	o.Shares = nil
	p = &page{}
	overviewPage(p, "http://n2:8080", &o)
	if got := p.String(); strings.Contains(got, "fired by") {
		t.Errorf("got\n%s", got)
	}
}
