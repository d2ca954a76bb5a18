package raftstore

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// checkEvery is how often the nodes compare their rows by default.
var checkEvery = 5 * time.Minute

// ErrDiverged is the error of a store whose rows differ from its cluster's. To repair it, open it with Config.Repair,
// which takes everything from the others.
var ErrDiverged = replica.ErrDiverged

// compare has all nodes compare their rows now and then, while this one leads others.
func (s *Store) compare(ctx context.Context) {
	ticker := time.NewTicker(s.cfg.CheckEvery)
	defer ticker.Stop()
	last := ^uint64(0) // none: rows that were restored from a snapshot have not been compared either
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if term, _ := s.leading.now(); term == 0 || len(s.servers()) < 2 {
			continue
		}
		var err error
		if last, err = s.CompareChanges(ctx, last); err != nil && ctx.Err() == nil {
			s.episodes.Failed(slog.LevelWarn, "", "the nodes' rows could not be compared", "err", err)
		}
	}
}
