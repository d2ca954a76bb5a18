package controlplane

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// Workers are limited to the app that they authenticated for, in messages beside the store, too.

// keeps refuses a worker that acts for another app.
func (cp *ControlPlane) keeps(from bus.Principal, app string) error {
	own, err := cp.ownApp(from)
	if err == nil && own != "" && own != app {
		err = kernel.Refuse(jobs.Forbidden, "%s belongs to app %s and may not speak for app %.60q", from.Actor(), own, app)
	}
	return err
}

// ownApp returns the app that a worker is limited to, "" for any. Only workers have one.
func (cp *ControlPlane) ownApp(from bus.Principal) (string, error) {
	if from.Role != bus.Worker {
		return "", kernel.Refuse(jobs.Forbidden, "%s is no worker", from.Actor())
	}
	if cp.cfg.Kept && from.App == "" {
		return "", kernel.Refuse(jobs.Forbidden, "%s names no app", from.Actor())
	}
	if !cp.cfg.Kept {
		return "", nil
	}
	return from.App, nil
}

// theirs are the log lines that a sender may have written: of attempts that it has, or has had, of runs of its app. No
// worker writes into the logs of others, or fills the disk with those of runs that never were.
func (cp *ControlPlane) theirs(ctx context.Context, from bus.Principal, lines []metastore.LogLine) []metastore.LogLine {
	own, err := cp.ownApp(from)
	if err != nil {
		return nil
	}
	runs := map[jobs.ID]*kernel.Run{}
	now := time.Now()
	kept := lines[:0]
	for _, l := range lines {
		run, asked := runs[l.Run]
		if !asked && cp.cfg.Kept { // elsewhere there is no authentication
			if run, err = cp.cfg.Store.Run(ctx, from.Tenant, l.Run); err != nil {
				run = nil
			}
			runs[l.Run] = run
		}
		if !cp.cfg.Kept || run != nil && (own == "" || run.App == own) && hadAttempt(from, run, l.Attempt) {
			kept = append(kept, sane(l, now))
		}
	}
	return kept
}

// hadAttempt reports whether an attempt of a run is or was a worker's, as far as the run remembers. The next one may
// have begun unknown to this node.
func hadAttempt(worker bus.Principal, run *kernel.Run, attempt uint32) bool {
	if attempt == 0 || attempt > run.Next() {
		return false
	}
	for _, m := range run.Moves {
		if m.State == jobs.Processing && m.Attempt == attempt {
			return worker.SpeaksFor(m.By)
		}
	}
	return attempt != run.Attempt || worker.SpeaksFor(run.Worker)
}

// Limits of a line: see metastore.LogLine.
const (
	mostText  = 8 << 10
	mostAhead = 24 * time.Hour // of our clock: lines are pruned by their own
)

// sane returns a line as a worker of ours would have written it.
func sane(l metastore.LogLine, now time.Time) metastore.LogLine {
	l.Text = plain.Short(l.Text, mostText)
	switch l.Level {
	case "DEBUG", "INFO", "WARN", "ERROR":
	default:
		l.Level = "INFO"
	}
	if l.At.Year() < 1970 || l.At.After(now.Add(mostAhead)) {
		l.At = kernel.Instant(now)
	}
	return l
}
