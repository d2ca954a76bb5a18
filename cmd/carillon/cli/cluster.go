package cli

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/api"
)

func (a *asker) clusterCommand() *cobra.Command {
	return group("cluster", "Manage the nodes of a cluster", lines("carillon cluster status", "carillon cluster invite > join.token"),
		a.clusterStatus(), a.clusterInvite(), a.clusterRemove(), a.clusterTransfer(), a.clusterFinalize())
}

func (a *asker) clusterStatus() *cobra.Command {
	var every watch
	c := &cobra.Command{Use: "status", Short: "Show the nodes and their state", Args: none,
		Example: lines("carillon cluster status", "carillon cluster status --watch", "carillon cluster status -o json"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.watched(ctx, every, func(ctx context.Context) (view, error) {
				got, err := a.link.get(ctx, "/cluster", nil)
				if err != nil {
					return view{}, err
				}
				var all api.Cluster
				if err := got.into(&all); err != nil {
					return view{}, err
				}
				v := view{raw: got.raw, text: func(p *page) { clusterTable(p, &all) }}
				for _, n := range all.Nodes {
					v.names = append(v.names, n.Name)
				}
				return v, nil
			})
		})}
	every.addFlag(c)
	return c
}

func clusterTable(p *page, c *api.Cluster) {
	var rows [][]string
	for _, n := range c.Nodes {
		state := "offline"
		switch {
		case n.Leads:
			state = fmt.Sprintf("leads, term %d", n.Term)
		case n.Online && n.Copy != nil && (!n.Copy.Voter || n.Copy.Reached && !n.Copy.Current):
			state = "catching up"
		case n.Online && n.Share != nil:
			state = "fires"
		case n.Online:
			state = "standby"
		}
		if n.Online && n.Share != nil {
			state += fmt.Sprintf(", %d jobs", n.Share.Jobs)
		}
		if n.Here {
			state += ", answers"
		}
		commit, size, archive := "-", "-", "-"
		if n.Copy != nil && n.Copy.Reached {
			commit, size, archive = fmt.Sprint(n.Copy.Applied), bytesText(n.Copy.LogBytes), bytesText(n.Copy.ArchiveBytes)
		}
		skew := time.Duration(n.Skew * float64(time.Second)).Round(time.Millisecond)
		rows = append(rows, []string{clean(n.Name), state, or(p.ago(n.Seen), "-"), commit, size, archive, skew.String(), or(clean(n.Address), "-")})
	}
	p.table([]string{"NODE", "STATE", "SEEN", "COMMIT", "LOG", "ARCHIVE", "CLOCK", "PAGES"}, rows)
	summary := c.Text
	if c.Tolerates == 0 {
		summary = p.paint(yellow, summary)
	}
	p.line("%s", summary)
	if c.SecretVoid {
		p.line("%s", p.paint(yellow, secretVoid))
	}
	if known := knownByAll(c); known > c.ApplyVersion && c.ApplyVersion > 0 {
		p.line("%s", p.paint(yellow, fmt.Sprintf("rules version %d is active, all nodes support version %d: run carillon cluster finalize-upgrade", c.ApplyVersion, known)))
	}
	rows = nil
	for _, e := range c.Elections[:min(len(c.Elections), shownElections)] {
		rows = append(rows, []string{fmt.Sprint(e.Term), clean(e.Node), or(p.ago(e.Since), "-"), or(p.ago(e.Until), "-"), or(clean(e.Why), "-")})
	}
	if len(rows) > 0 {
		p.line("")
		p.table([]string{"TERM", "LEADER", "FROM", "TO", "ENDED BECAUSE"}, rows)
	}
}

// knownByAll returns the newest rules version that all nodes support, 0 if one has not reported its version.
func knownByAll(c *api.Cluster) (known uint32) {
	for i, n := range c.Nodes {
		switch {
		case n.Copy == nil:
			return 0
		case i == 0 || n.Copy.ApplyVersion < known:
			known = n.Copy.ApplyVersion
		}
	}
	return known
}

// shownElections is how many terms a table shows; JSON has all.
const shownElections = 5

// bytesText formats a number of bytes.
func bytesText(n int64) string {
	const unit = 1024
	v, i := float64(n), 0
	for ; v >= unit && i < 4; i++ {
		v /= unit
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGT"[i-1])
}

func (a *asker) clusterInvite() *cobra.Command {
	return &cobra.Command{Use: "invite", Short: "Create an invitation for a new node", Args: none,
		Long: "Create an invitation for one new node: single use, expires after 15 minutes, printed once. A node has full access, so\n" +
			"protect the invitation like a password. On the new machine:\n\n" +
			"  carillon cluster join join.token --node n2 --data /var/lib/carillon --cluster n2.example.com:7946",
		Example: lines("carillon cluster invite > join.token"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			got, err := a.link.do(ctx, request{method: "POST", path: "/cluster/invitations", body: map[string]any{}})
			if err != nil {
				return err
			}
			var i api.Invitation
			if err := got.into(&i); err != nil {
				return err
			}
			if a.human() {
				a.remark("an invitation for one node, until %s. It is shown this once:", i.Until.Local().Format("15:04"))
			}
			quiet := a.quiet
			a.quiet = false // a secret is printed even with -q
			defer func() { a.quiet = quiet }()
			return a.show(view{raw: got.raw, names: []string{i.Token}, text: func(p *page) { p.line("%s", i.Token) }})
		})}
}

func (a *asker) clusterRemove() *cobra.Command {
	return &cobra.Command{Use: "remove <node>", Short: "Remove a node for good", Args: one("the name of a node"),
		Long: "Remove a node for good. It no longer counts for the majority, the other nodes refuse it, and earlier invitations are void,\n" +
			"as is the cluster secret for nodes that join, until it is changed.\n" +
			"Tokens in files on the node stay valid: the command lists them; replace and revoke them. To remove the leader, transfer\n" +
			"leadership first (carillon cluster transfer).",
		Example: lines("carillon cluster remove n3"), ValidArgsFunction: a.completeNodes,
		RunE: a.does(func(ctx context.Context, args []string) error {
			got, err := a.link.do(ctx, request{method: "DELETE", path: "/cluster/nodes/" + url.PathEscape(args[0])})
			if err != nil {
				return err
			}
			err = a.show(view{raw: empty(got.raw), names: args, text: func(p *page) { p.line("node %s is removed", args[0]) }})
			if err == nil && a.human() {
				a.leftTokens(ctx, args[0])
				a.voidSecret(ctx)
			}
			return err
		})}
}

// voidSecret reports that nodes cannot join by the cluster secret any more.
func (a *asker) voidSecret(ctx context.Context) {
	var c api.Cluster
	got, err := a.link.get(ctx, "/cluster", nil)
	if err == nil {
		err = got.into(&c)
	}
	if err != nil {
		a.remark("whether the cluster secret is void is unknown: %v; see carillon cluster status", err)
	} else if c.SecretVoid {
		a.remark("%s", secretVoid)
	}
}

const secretVoid = "the cluster secret is void: no node joins by it until secret-file has a new one on all nodes, and they have restarted"

// leftTokens lists the tokens that a removed node granted itself and stored in files.
func (a *asker) leftTokens(ctx context.Context, node string) {
	var all struct{ Items []api.Token }
	got, err := a.link.get(ctx, "/tokens", nil)
	if err == nil {
		err = got.into(&all)
	}
	if err != nil {
		a.remark("the tokens that the node stored in files are unknown: %v; see carillon tokens list", err)
		return
	}
	for _, t := range all.Items {
		if t.By == "node:"+node {
			a.remark("token %s (%s, %s) is in a file of that node: replace it, then carillon tokens revoke %s", t.ID, clean(t.Name), t.Role, t.ID)
		}
	}
}

func (a *asker) clusterTransfer() *cobra.Command {
	return &cobra.Command{Use: "transfer [node]", Short: "Transfer leadership", Args: counted("the name of a node, or nothing", 0, 1),
		Example: lines("carillon cluster transfer", "carillon cluster transfer n2"), ValidArgsFunction: a.completeNodes,
		RunE: a.does(func(ctx context.Context, args []string) error {
			body := map[string]any{}
			if len(args) > 0 {
				body["to"] = args[0]
			}
			got, err := a.link.do(ctx, request{method: "POST", path: "/cluster/transfer", body: body})
			if err != nil {
				return err
			}
			return a.show(view{raw: empty(got.raw), names: args, text: func(p *page) { p.line("leadership transferred") }})
		})}
}

func (a *asker) clusterFinalize() *cobra.Command {
	return &cobra.Command{Use: "finalize-upgrade", Short: "Finalize an upgrade: activate its new rules", Args: none,
		Long: "Activate the newest rules version that all nodes support, after every node runs the new program. All nodes must be online.\n" +
			"This is irreversible: a node with an older program then stops. Until then, older programs can be nodes, and new features are\n" +
			"refused. The leader finalizes by itself when all nodes have known the new version for a day.",
		Example: lines("carillon cluster finalize-upgrade"),
		RunE: a.does(func(ctx context.Context, _ []string) error {
			got, err := a.link.do(ctx, request{method: "POST", path: "/cluster/finalize-upgrade", body: map[string]any{}})
			if err != nil {
				return err
			}
			var done api.FinalizedUpgrade
			if err := got.into(&done); err != nil {
				return err
			}
			version := fmt.Sprint(done.ApplyVersion)
			return a.show(view{raw: got.raw, names: []string{version}, text: func(p *page) { p.line("rules version %s is active", version) }})
		})}
}

// empty is an answer without a body as JSON.
func empty(raw []byte) []byte {
	if len(raw) == 0 {
		return []byte("{}")
	}
	return raw
}

func (a *asker) completeNodes(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var all api.Cluster
	if len(args) > 0 || !a.asked(c, "/cluster", nil, &all) {
		return nil, noFiles
	}
	var names []string
	for _, n := range all.Nodes {
		names = append(names, n.Name)
	}
	return names, noFiles
}
