package raftstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Members may be programs of two versions while they are replaced one by one. The version of the rules in force
// (metastore.Rules) is one that all of them know. Each entry of the log and each snapshot names the version in force
// when it was written, and a node that does not know it stops before it, with metastore.ErrTooOld. There is no way
// back from raising the version, so all members must answer and know the new one, and a person requests it, or a day
// passes.

// finalizeAfter is how long all members of a leader know a newer version before it puts that in force by itself.
const finalizeAfter = 24 * time.Hour

// mayRaise returns why a version of the rules cannot be put in force yet. Earlier answers of members do not count: an
// older program may have replaced them since.
func (s *Store) mayRaise(ctx context.Context, to uint32) error {
	if to <= s.machine.InForce() {
		return nil
	}
	if err := s.leads(); err != nil {
		return err
	}
	members, err := s.Members(ctx)
	if err != nil {
		return err
	}
	var late []string
	for _, m := range members {
		switch name := cmp.Or(m.Name, m.ID); {
		case !m.Reached:
			late = append(late, fmt.Sprintf("node %s does not answer", name))
		case m.ApplyVersion < to:
			late = append(late, fmt.Sprintf("node %s knows version %d", name, m.ApplyVersion))
		}
	}
	if len(late) > 0 {
		return kernel.Refuse(jobs.Conflict, "not done: all nodes must know version %d of the rules: %s; start a newer program there, or remove the node", to, strings.Join(late, ", "))
	}
	return nil
}

// finalize puts the version that this node knows in force once all members have known it for a day, while this node
// leads.
func (s *Store) finalize(ctx context.Context) {
	if s.machine.InForce() >= s.cfg.knows {
		return
	}
	var since time.Time // all members know it
	tick := time.NewTicker(min(time.Minute, s.cfg.finalizeAfter/4))
	defer tick.Stop()
	for s.machine.InForce() < s.cfg.knows {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.mayRaise(ctx, s.cfg.knows); err != nil {
			since = time.Time{}
			continue
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) < s.cfg.finalizeAfter {
			continue
		}
		switch err := s.note(ctx, By{Reason: fmt.Sprintf("all nodes have known it for %v", s.cfg.finalizeAfter)}, kernel.FinalizeUpgrade{To: s.cfg.knows}); {
		case err == nil:
			s.cfg.Logger.Info("upgrade finalized", "rules", s.cfg.knows)
		case ctx.Err() == nil && !errors.Is(err, jobs.Conflict):
			s.cfg.Logger.Warn("the upgrade could not be finalized", "rules", s.cfg.knows, "err", err)
		}
	}
}
