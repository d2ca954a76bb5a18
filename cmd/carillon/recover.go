package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/metastore/raftstore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/disk"
	"github.com/carillon-scheduler/carillon/metastore/raftstore/raftlog/hashicorp"
)

// Commands on the directory of a stopped node: join a cluster, repair it from the others, or recover it alone when a
// majority is lost. The other verbs of `carillon cluster` call a running server.

// clusterVerbs are those verbs.
func clusterVerbs() []*cobra.Command {
	return []*cobra.Command{newClusterJoin(), newClusterRepair(), newClusterRecover()}
}

func newClusterJoin() *cobra.Command {
	c := &cobra.Command{
		Use:   "join <file>",
		Short: "Run a server that joins a cluster with an invitation",
		Long: "Run a server with an empty data directory that joins a cluster, with an invitation in a file (carillon cluster invite). It has\n" +
			"the settings of carillon server and requires --node, --data and --cluster. It keeps running like carillon server; start it\n" +
			"later with carillon server and the same settings, without the invitation.",
		Example: "  carillon cluster join join.token --node n2 --data /var/lib/carillon --cluster n2.example.com:7946",
		Args:    oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			if err := c.Flags().Set("join-file", args[0]); err != nil {
				return err
			}
			cfg, err := loadConfig(c, os.Environ())
			if err != nil {
				return err
			}
			if cfg.Cluster.Addr == "" {
				return usage("--cluster is required: host:port where the other nodes reach this one")
			}
			p := &process{cfg: cfg, name: "server", out: c.OutOrStdout(), log: newLogger(cfg, os.Stderr)}
			return p.serve(c.Context())
		},
	}
	addFlags(c)
	return c
}

func oneFile(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage("%s takes one file, with an invitation in it", c.CommandPath())
	}
	return nil
}

func newClusterRepair() *cobra.Command {
	data := ""
	c := &cobra.Command{
		Use:   "repair",
		Short: "Repair a damaged node from the others",
		Long: "Repair a stopped node with damaged files. The other nodes must have a leader. The damaged files are moved to a folder in the\n" +
			"node's directory; at its next start the node copies everything from the others. It has no vote until it has caught up.",
		Example: "  carillon cluster repair --data /var/lib/carillon",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			rows, err := raftstore.RowsIn(data)
			if err != nil {
				return err
			}
			to, err := raftstore.Repair(rows)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			if to == "" {
				fmt.Fprintln(out, "Already done: start the node as usual; it copies its data from the others.")
				return nil
			}
			fmt.Fprintf(out, "The old files are in %s; delete them once the node works.\nStart the node as usual; it copies its data from the others.\n", to)
			return nil
		},
	}
	c.Flags().StringVar(&data, "data", "./.carillon", "directory of the node")
	return c
}

// confirmation is what the user types to confirm.
const confirmation = "recover"

func newClusterRecover() *cobra.Command {
	var data, reason string
	var yes bool
	c := &cobra.Command{
		Use:   "recover",
		Short: "Recover one node when a majority is lost for good",
		Long: "Recover one stopped node as a cluster of its own when a majority is lost for good, with its disks. Data that only the lost\n" +
			"nodes had is lost, and none of them may start again with its data. If several nodes are left, run this on each, type anything\n" +
			"but recover at the prompt, and recover the node with the highest term and, among these, the highest entry. The others join it\n" +
			"again with empty directories.\n\nIf a majority can start again, start it instead: then nothing is lost.",
		Example: "  carillon cluster recover --data /var/lib/carillon",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return recoverNode(c, data, reason, yes)
		},
	}
	c.Flags().StringVar(&data, "data", "./.carillon", "directory of the node")
	c.Flags().StringVar(&reason, "reason", "", "reason, recorded in the audit log")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return c
}

func recoverNode(c *cobra.Command, data, reason string, yes bool) error {
	rows, err := raftstore.RowsIn(data)
	if err != nil {
		return err
	}
	conf := raftstore.Config{Dir: rows, Logs: hashicorp.Kinds(), Logger: slog.New(slog.DiscardHandler)}
	k, err := raftstore.Look(conf)
	if err != nil {
		return err
	}
	out := c.OutOrStdout()
	fmt.Fprintf(out, "Node %s of cluster %s, epoch %d. Its log ends at term %d, entry %d.\n", k.Node, k.Cluster, k.Epoch, k.Term, k.Index)
	for _, o := range k.Others {
		fmt.Fprintf(out, "It knew %s at %s.\n", cmp.Or(o.Name, o.ID), o.Address)
	}
	if len(k.Others) == 0 {
		fmt.Fprintln(out, "It knew no others.")
	}
	fmt.Fprintf(out, "\nFROM NOW ON THIS NODE IS ITS CLUSTER. Data that only the others had is lost. None of them may start again with its data:\nempty their directories first. If a majority can start again, start it instead.\n\n")
	if !yes {
		fmt.Fprintf(out, "Type %s to continue: ", confirmation)
		reply, err := bufio.NewReader(c.InOrStdin()).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if strings.TrimSpace(reply) != confirmation {
			return usage("nothing was done")
		}
	}
	if err := raftstore.Force(conf, raftstore.By{Actor: operator(), Reason: reason}); err != nil {
		return err
	}
	if err := leaveNATSCluster(data); err != nil {
		return err
	}
	fmt.Fprintf(out, "Done: epoch %d. Start the node as usual. Then, for each other machine: carillon cluster invite, and carillon cluster join there,\nwith an empty directory.\n", k.Epoch+1)
	return nil
}

// operator returns the name of this machine's user.
func operator() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = cmp.Or(u.Username, u.Uid, name)
	}
	return "person:" + name
}

// leaveNATSCluster deletes the routes to the NATS servers of lost nodes: ours is the first of its cluster again.
func leaveNATSCluster(data string) error {
	path := filepath.Join(data, natsClusterFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	raw, err := json.Marshal(natsCluster{})
	if err == nil {
		err = os.WriteFile(path+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("delete the routes to the other nodes: %w", err)
	}
	return nil
}

// advised adds to an error about damage how to repair the node from the others.
func (p *process) advised(err error) error {
	var damaged *disk.Damaged
	if err == nil || p.cfg.Cluster.Addr == "" || !errors.As(err, &damaged) && !errors.Is(err, raftstore.ErrDiverged) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w\nif the other nodes work, repair this one from them: carillon cluster repair --data %s", err, p.cfg.Data)
}
