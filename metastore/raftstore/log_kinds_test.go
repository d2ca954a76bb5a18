package raftstore

import "github.com/carillon-scheduler/carillon/metastore/raftstore/raftlog/hashicorp"

// The kinds of log, by name.
const (
	LogBolt = "boltdb"
	LogWAL  = "wal"
)

func init() { kinds = append(hashicorp.Kinds()[:1:1], kinds...) }
