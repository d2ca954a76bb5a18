package raftstore

import (
	"testing"

	"github.com/carillon-scheduler/carillon/metastore/replica/logtest"
)

func TestLog(t *testing.T) {
	logtest.Run(t, func(t *testing.T) logtest.Cluster {
		c := &cluster{t: t}
		t.TempDir() // so that the directories go after the nodes
		return &logCluster{c}
	})
}

// logCluster is a cluster whose nodes the suite opens and closes.
type logCluster struct{ *cluster }

func (c *logCluster) Open(t *testing.T, n int) logtest.Node {
	t.Helper()
	if n < len(c.stores) {
		return logNode(c.start(n))
	}
	adjust := func(conf *Config) { conf.SnapshotAfter, conf.Trailing = 1<<30, 1 }
	if n == 0 {
		c.configs, c.stores = append(c.configs, nodeConfig(t, 0, adjust)), append(c.stores, nil)
		return logNode(c.start(0))
	}
	return logNode(c.join(adjust))
}

func logNode(s *Store) logtest.Node {
	return logtest.Node{Log: s, Store: s, Hash: s.machine.Engine.Hash, Snapshot: s.snapshot}
}
