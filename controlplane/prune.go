package controlplane

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// pruneEvery is how often old data is purged.
const pruneEvery = time.Minute

// prune drops expired unique keys, and old history.
func (cp *ControlPlane) prune(ctx context.Context) error {
	ticker := time.NewTicker(pruneEvery)
	defer ticker.Stop()
	d := cp.duty("prune")
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		d.begin()
		forgot := cp.forget(ctx, cp.cfg.Clock.Now())
		trimmed := cp.trim(ctx, cp.cfg.Clock.Now())
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if forgot != nil {
			cp.episodes.Began(episode.Level(forgot), "", "unique keys could not be dropped", "err", forgot)
		} else {
			cp.episodes.End("", "unique keys could not be dropped")
		}
		if trimmed != nil {
			cp.episodes.Began(episode.Level(trimmed), "", "old history could not be dropped", "err", trimmed)
		} else {
			cp.episodes.End("", "old history could not be dropped")
		}
		if err := d.end(cmp.Or(forgot, trimmed)); err != nil {
			return err
		}
	}
}

// retain purges finished runs, at the beginning and then regularly. A node with a copy of its own does so whether it
// leads or not; what nodes share is purged by the leader.
func (cp *ControlPlane) retain(ctx context.Context) error {
	ticker := time.NewTicker(pruneEvery)
	defer ticker.Stop()
	for cp.cfg.Retain != nil {
		if term, _ := cp.Leading(); term > 0 || cp.cfg.Copy {
			switch err := cp.retainOnce(ctx); {
			case err == nil:
				cp.episodes.End("", "finished runs could not be purged")
			case !errors.Is(err, metastore.ErrNotWhole) && ctx.Err() == nil:
				cp.episodes.Began(episode.Level(err), "", "finished runs could not be purged", "err", err)
			}
		}
		select {
		case <-ticker.C:
		case <-cp.purged:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// keepLogs is how long log lines of runs are kept.
const keepLogs = 30 * 24 * time.Hour

func (cp *ControlPlane) retainOnce(ctx context.Context) error {
	now := cp.cfg.Clock.Now()
	began := time.Now()
	done, err := cp.cfg.Retain.Retain(ctx, metastore.Retention{Now: now, Of: metastore.KeptBy(ctx, cp.cfg.Store, now), Bytes: max(0, cp.cfg.RetainBytes), Logs: keepLogs})
	took := time.Since(began)
	if done.Dropped > 0 {
		cp.log.Info("finished runs purged", "count", done.Dropped, "took", took, "bytes", done.Bytes)
	}
	cp.purging.mu.Lock()
	defer cp.purging.mu.Unlock()
	c := &cp.purging.Purging
	c.Total += uint64(done.Dropped)
	if done.Dropped > 0 {
		c.Runs, c.At = done.Dropped, now
	}
	if err == nil {
		c.Looked, c.Took, c.Bytes = now, took, done.Bytes
	}
	return err
}

// Purging is what this node knows of purges of finished runs.
type Purging struct {
	Looked time.Time     // when the last pass succeeded; zero = none yet
	Took   time.Duration // what that took
	Bytes  int64         // that runs and log lines took after it, about
	At     time.Time     // when runs were last purged; zero = never
	Runs   int           // purged then
	Total  uint64        // purged since this process began
	Most   int64         // bytes they may take; 0 = unlimited
	Counts time.Duration // how long counts of days are kept
}

// Purging returns what this node knows of purges of finished runs.
func (cp *ControlPlane) Purging() Purging {
	cp.purging.mu.Lock()
	defer cp.purging.mu.Unlock()
	c := cp.purging.Purging
	c.Most, c.Counts = max(0, cp.cfg.RetainBytes), cp.cfg.KeepCounts
	return c
}

func (cp *ControlPlane) forget(ctx context.Context, now time.Time) error {
	for {
		refs, err := cp.cfg.Store.Expired(ctx, now, 1000)
		if err != nil || len(refs) == 0 {
			return err
		}
		batch := make([]kernel.Envelope, len(refs))
		for i, r := range refs {
			batch[i] = cp.envelope(r.Tenant, kernel.Forget{Name: r.Name})
		}
		left := 0
		for _, r := range cp.store.Apply(ctx, batch) {
			if r.Err != nil {
				return r.Err
			}
			if r.Existing {
				left++
			}
		}
		if left == len(batch) { // by the store's clock none of them has lapsed yet: asking again would bring the same ones
			return nil
		}
	}
}

// mostTrims bounds the commits of one pass, so that years of history at once do not delay runs; the next pass
// continues.
const mostTrims = 100

// trim adds hours of which the time has passed to their days, and drops old tallies, missed ranges and what is left of
// jobs, tokens and sessions.
func (cp *ControlPlane) trim(ctx context.Context, now time.Time) error {
	before := now.Add(-cp.cfg.KeepCounts)
	err := cp.purge(ctx, before, func() ([]kernel.Ref, error) {
		return cp.cfg.Store.Hourly(ctx, now.Add(-kernel.KeepHours), kernel.MaxTrim)
	})
	if err != nil {
		return err
	}
	return cp.purge(ctx, before, func() ([]kernel.Ref, error) { return cp.cfg.Store.Aged(ctx, before, kernel.MaxTrim) })
}

// purge sends the rows that old lists to PurgeAudit, until there are none.
func (cp *ControlPlane) purge(ctx context.Context, before time.Time, old func() ([]kernel.Ref, error)) error {
	for range mostTrims {
		refs, err := old()
		if err != nil || len(refs) == 0 {
			return err
		}
		rows := map[jobs.Tenant][]kernel.Ref{}
		for _, r := range refs {
			rows[r.Tenant] = append(rows[r.Tenant], r)
		}
		batch := make([]kernel.Envelope, 0, len(rows))
		for tenant, of := range rows {
			batch = append(batch, cp.envelope(tenant, kernel.PurgeAudit{Refs: of, Before: before}))
		}
		for _, r := range cp.store.Apply(ctx, batch) {
			if r.Err != nil {
				return r.Err
			}
			if r.Existing { // none of them went: asking again would bring the same ones
				return nil
			}
		}
	}
	return nil
}
