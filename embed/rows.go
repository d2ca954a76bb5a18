package embed

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/metastore/memstore"
	"github.com/carillon-scheduler/carillon/metastore/raftstore"
)

// rows is where rows are kept, with what belongs to it.
type rows struct {
	store   metastore.Full
	logs    metastore.Logs
	elector controlplane.Elector // nil = alone
	prune   func(time.Time) error
	failed  <-chan error // nil = it cannot fail
}

// keep is how long runs that are over, and what they logged, can be read. Beyond keepBytes of them the oldest go.
const (
	keep      = 30 * 24 * time.Hour
	keepBytes = 8 << 30
)

// openRows opens the store: durable if there is a directory for it, in memory otherwise.
func (s *Scheduler) openRows(cfg Config) (rows, error) {
	if cfg.Dir == "" {
		return rows{store: memstore.Open(memstore.Config{}), logs: memstore.NewLogs(0)}, nil
	}
	store, err := raftstore.Open(raftstore.Config{Dir: cfg.Dir, Node: cfg.Node, Logger: cfg.Logger})
	if err != nil {
		return rows{}, err
	}
	s.close = append(s.close, store.Close)
	prune := func(now time.Time) error { return store.Prune(context.Background(), now.Add(-keep), keepBytes) }
	return rows{store: store, logs: store.Logs(), elector: store, prune: prune, failed: store.Err()}, nil
}
