package raftstore

import (
	"context"
	"log/slog"

	"github.com/carillon-scheduler/carillon/metastore/replica"
)

// ErrDiverged is the error of a store whose rows differ from its cluster's. To repair it, open it with Config.Repair,
// which takes everything from the others.
var ErrDiverged = replica.ErrDiverged

// compare has all nodes compare their rows now and then, while this one leads others.
func (s *Store) compare(ctx context.Context) {
	s.KeepComparing(ctx, s.cfg.CheckEvery, func() bool {
		term, _ := s.leading.now()
		return term > 0 && len(s.servers()) > 1
	}, func(err error) {
		s.episodes.Failed(slog.LevelWarn, "", "the nodes' rows could not be compared", "err", err)
	})
}
