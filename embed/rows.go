package embed

import (
	"context"
	"io"
	"time"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/backup"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore"
	"github.com/carillon-scheduler/carillon/metastore/sqlstore"
)

// rows is the store with everything that depends on its kind.
type rows struct {
	store   metastore.Full
	clock   *metastore.Clock // stamps its commits
	logs    metastore.Logs
	elector controlplane.Elector // nil = a single node
	retain  metastore.Retainer   // nil = no retention
	failed  <-chan error         // nil = it cannot fail
	where   string               // for the pages
	copies  copies               // nil = no other process has them

	cluster *raftstore.Store // nil = the store knows of no nodes

	backup func(ctx context.Context, to io.Writer) error // nil = nothing to back up

	// deliver applies commands that programs wrote into the same database, until ctx ends; nil = there are none.
	deliver func(ctx context.Context, leads func() bool, to metastore.Applier) error
	// members lists the nodes that each fire a share of the jobs; nil = the leader fires all.
	members metastore.Membership
}

// openRows opens the store in the database or directory of cfg, and in memory without one.
func (s *Scheduler) openRows(ctx context.Context, cfg Config) (rows, error) {
	clock := &metastore.Clock{Wall: wall}
	if cfg.Database != "" {
		return s.openDatabase(ctx, cfg, clock)
	}
	if cfg.Dir == "" {
		ended := memstore.NewArchive(0)
		store := &metastore.Local{Engine: memstore.New(memstore.Config{Archive: ended}), Now: clock.Now}
		logs := memstore.NewLogs(0)
		ended.Dropping(logs)
		return rows{store: store, retain: ended, clock: clock, logs: logs, where: "in memory: nothing survives this process"}, nil
	}
	dir, err := raftstore.RowsIn(cfg.Dir)
	if err != nil {
		return rows{}, err
	}
	conf := raftstore.Config{Dir: dir, Node: cfg.Node, Logger: cfg.Logger, Now: clock.Now, Logs: cfg.RaftLogs, Log: cfg.RaftLog}
	var store *raftstore.Store
	switch c := cfg.Cluster; {
	case c == nil:
		store, err = raftstore.Open(conf)
	case c.Secret != "" && c.Token != "":
		err = kernel.Invalid("embed: both Token and Secret are given: set one of them")
	default:
		conf.Listen, conf.Advertise, conf.Identity = c.Addr, c.Advertise, c.Identity
		conf.Peers, conf.Secret = c.Peers, c.Secret
		switch {
		case c.Secret != "":
			store, err = raftstore.OpenAmong(ctx, conf)
		case c.Token != "":
			store, err = raftstore.Join(ctx, conf, c.Token)
		default:
			store, err = raftstore.Open(conf)
		}
	}
	if err != nil {
		return rows{}, err
	}
	s.close = append(s.close, store.Close)
	return rows{store: store, clock: clock, logs: store.Logs(), elector: store, retain: store, failed: store.Err(), where: "on disk, in " + cfg.Dir, copies: store, cluster: store,
		backup: func(ctx context.Context, to io.Writer) error { return writeBackup(ctx, to, cfg, store) }}, nil
}

// openDatabase opens a store in PostgreSQL or MariaDB, whose clock stamps commits.
func (s *Scheduler) openDatabase(ctx context.Context, cfg Config, clock *metastore.Clock) (rows, error) {
	store, err := sqlstore.Open(ctx, sqlstore.Config{URL: cfg.Database, Node: cfg.Node, Logger: cfg.Logger, Live: cfg.LiveTable, Copy: cfg.Triggering == Distributed})
	if err != nil {
		return rows{}, err
	}
	s.database, s.close = store, append(s.close, store.Close)
	r := rows{store: store, clock: clock, logs: store.Logs(), elector: store, retain: store, failed: store.Err(), where: store.Where(), copies: store, deliver: store.Deliver,
		backup: func(context.Context, io.Writer) error { return kernel.Refuse(jobs.Conflict, "%s", store.HowToBackUp()) }}
	if cfg.Triggering == Distributed {
		r.members = store
	}
	return r, nil
}

// oldest is the maximum age of a copy in a backup from a node that does not lead.
const oldest = 10 * time.Second

// writeBackup backs up a node's copy: on the leader it has all that was acknowledged, elsewhere it may be oldest old.
func writeBackup(ctx context.Context, to io.Writer, cfg Config, store *raftstore.Store) error {
	if err := store.Linearizable(ctx); err != nil {
		if age := store.Age(); age > oldest {
			return kernel.Refuse(jobs.Unavailable, "this node's copy may be %v old, and it cannot reach the leader: back up the leader", age.Round(time.Second))
		}
	}
	_, err := backup.Write(ctx, to, backup.Head{At: time.Now().UTC(), Version: cfg.Version, From: "node " + cfg.Node}, store.Content())
	return err
}
