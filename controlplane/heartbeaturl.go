package controlplane

import (
	"context"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

const (
	// heartbeatURLEvery is how often the leader requests the heartbeat URL.
	heartbeatURLEvery = time.Minute
	// heartbeatURLPatience is how long the commit before a request may take.
	heartbeatURLPatience = 20 * time.Second
)

// requestHeartbeatURL requests the heartbeat URL while this process leads and can commit: a service elsewhere notices when the
// requests stop, which no alarm of a cluster that is down could report.
func (cp *ControlPlane) requestHeartbeatURL(ctx context.Context, term uint64) error {
	if cp.cfg.Heartbeat == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	ticker := time.NewTicker(heartbeatURLEvery)
	defer ticker.Stop()
	for {
		if err := cp.commits(ctx, term); err == nil {
			if err := cp.cfg.Heartbeat(ctx); err == nil {
				cp.episodes.End("", "the heartbeat URL cannot be requested")
			} else if ctx.Err() == nil {
				cp.episodes.Began(slog.LevelWarn, "", "the heartbeat URL cannot be requested", "err", err)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// commits returns nil if the store commits a command of this term. Repeating the one that began it changes nothing.
func (cp *ControlPlane) commits(ctx context.Context, term uint64) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeatURLPatience)
	defer cancel()
	return cp.store.Apply(ctx, []kernel.Envelope{cp.envelope(jobs.DefaultTenant, kernel.Lead{Term: term, Node: cp.cfg.Node})})[0].Err
}
