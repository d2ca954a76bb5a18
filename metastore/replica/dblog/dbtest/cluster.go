// Package dbtest tests that a database does what a log needs of it. Begin with [Run].
//
// It is not promised to programs outside this module.
package dbtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/metastore/replica"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog"
	"github.com/carillon-scheduler/carillon/metastore/replica/dblog/memdb"
	"github.com/carillon-scheduler/carillon/metastore/replica/logtest"
)

// Cluster is nodes of a log in a database, with a history in memory.
func Cluster(db dblog.Database) logtest.Cluster { return cluster{db, memdb.NewHistories()} }

type cluster struct {
	db    dblog.Database
	ended *memdb.Histories
}

func (c cluster) Open(t *testing.T, n int) logtest.Node {
	t.Helper()
	m := replica.NewMachine(replica.MachineConfig{History: c.ended.Node(), Fail: func(err error) { t.Errorf("node %d: %v", n, err) }, SnapshotAfter: 1 << 30, Trailing: 1, Replay: time.Hour})
	log, err := dblog.Open(t.Context(), dblog.Config{Database: c.db, Machine: m, Node: fmt.Sprint("node-", n)})
	if err != nil {
		t.Fatal(err)
	}
	return logtest.Node{Log: log, Store: replica.New(replica.Config{Machine: m, Log: log, Now: log.Now}), Hash: m.Engine.Hash, Snapshot: func() error { return log.Snapshot(t.Context()) }}
}
