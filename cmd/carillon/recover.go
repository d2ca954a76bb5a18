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
)

// What is done with the directory of a node that is stopped: join with it, repair it from the others, or go on with it
// alone when a majority is lost. The other verbs of `carillon cluster` ask a server that runs.

// clusterVerbs are those verbs.
func clusterVerbs() []*cobra.Command {
	return []*cobra.Command{newClusterJoin(), newClusterRepair(), newClusterRecover()}
}

func newClusterJoin() *cobra.Command {
	c := &cobra.Command{
		Use:   "join <file>",
		Short: "Run a server that joins a cluster with an invitation",
		Long: "Run a server in an empty data directory that joins a cluster, with the invitation that is in the file (carillon cluster invite).\n" +
			"It takes the settings of carillon server, and needs --node, --data and --cluster among them. It goes on running, as a server\n" +
			"does; later it is started by carillon server with the same settings, and needs the invitation no more.",
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
				return usage("say where the other nodes reach this one: --cluster host:port")
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
		Short: "Have a damaged node take its data from the others",
		Long: "Have a node whose files are damaged take its data from the others. It must be stopped, and the others must have a leader.\n" +
			"What it has is moved aside, into a folder within its directory; when it is started next, as always, it takes everything anew.\n" +
			"Until it has caught up it has no vote.",
		Example: "  carillon cluster repair --data /var/lib/carillon",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			rows := filepath.Join(data, "rows")
			to, err := raftstore.Repair(rows)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			if to == "" {
				fmt.Fprintln(out, "This was done before: start the node as always, and it takes its data from the others.")
				return nil
			}
			fmt.Fprintf(out, "What the node had is in %s now; throw it away when all is well.\nStart the node as always, and it takes its data from the others.\n", to)
			return nil
		},
	}
	c.Flags().StringVar(&data, "data", "./.carillon", "directory of the node")
	return c
}

// confirmation is what a person types who means it.
const confirmation = "recover"

func newClusterRecover() *cobra.Command {
	var data, reason string
	var yes bool
	c := &cobra.Command{
		Use:   "recover",
		Short: "Go on with one node when a majority is lost for good",
		Long: "Go on with one node alone when most of the nodes are lost for good, with their disks. It must be stopped. What only the lost\n" +
			"nodes knew is lost, and none of them may come back with its data. If several nodes are left, look at each (say anything but\n" +
			"recover when asked) and recover the one whose log goes furthest; the others join it anew, with empty directories.\n\n" +
			"If most of the nodes can come back, start them instead: nothing is lost then.",
		Example: "  carillon cluster recover --data /var/lib/carillon",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return recoverNode(c, data, reason, yes)
		},
	}
	c.Flags().StringVar(&data, "data", "./.carillon", "directory of the node")
	c.Flags().StringVar(&reason, "reason", "", "why, for the record of changes")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask; for scripts whose author has thought about it")
	return c
}

func recoverNode(c *cobra.Command, data, reason string, yes bool) error {
	conf := raftstore.Config{Dir: filepath.Join(data, "rows"), Logger: slog.New(slog.DiscardHandler)}
	k, err := raftstore.Look(conf)
	if err != nil {
		return err
	}
	out := c.OutOrStdout()
	fmt.Fprintf(out, "Node %s of cluster %s, epoch %d. Its log goes to term %d, entry %d.\n", k.Node, k.Cluster, k.Epoch, k.Term, k.Index)
	for _, o := range k.Others {
		fmt.Fprintf(out, "It knew %s at %s.\n", cmp.Or(o.Name, o.ID), o.Address)
	}
	if len(k.Others) == 0 {
		fmt.Fprintln(out, "It knew no others.")
	}
	fmt.Fprintf(out, "\nFROM NOW ON THIS NODE IS ITS CLUSTER. What only the others knew is lost. None of them may come back with the data\nthat it has: empty their directories before they are started. If most of them can come back, start them instead.\n\n")
	if !yes {
		fmt.Fprintf(out, "Type %s to go on: ", confirmation)
		said, err := bufio.NewReader(c.InOrStdin()).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if strings.TrimSpace(said) != confirmation {
			return usage("nothing was done")
		}
	}
	if err := raftstore.Force(conf, raftstore.By{Actor: operator(), Reason: reason}); err != nil {
		return err
	}
	if err := breakBond(data); err != nil {
		return err
	}
	fmt.Fprintf(out, "Done: epoch %d. Start the node as always. Then, for each other machine: carillon cluster invite, and carillon cluster join there,\nwith an empty directory.\n", k.Epoch+1)
	return nil
}

// operator is who sits at this machine.
func operator() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = cmp.Or(u.Username, u.Uid, name)
	}
	return "person:" + name
}

// breakBond forgets where the NATS servers of lost nodes are: ours is the first one of its cluster again.
func breakBond(data string) error {
	path := filepath.Join(data, bondFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	raw, err := json.Marshal(bond{})
	if err == nil {
		err = os.WriteFile(path+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("forget the other nodes: %w", err)
	}
	return nil
}

// advised says what to do about damage, where others have the data, too.
func (p *process) advised(err error) error {
	var damaged *disk.Damaged
	if err == nil || p.cfg.Cluster.Addr == "" || !errors.As(err, &damaged) && !errors.Is(err, raftstore.ErrDiverged) || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w\nif the other nodes are well, this one can take its data from them: carillon cluster repair --data %s", err, p.cfg.Data)
}
