package controlplane

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Where rows are in a database, other processes may commit, too: a program that opens it, a follower. The leader offers
// runs, keeps leases, and counts, all from memory that follows its own commits. When others have committed it reads
// what may have changed: definitions, live runs, what can be claimed.

// besideEvery is the minimum interval between two such reads.
const besideEvery = 50 * time.Millisecond

// followOthers reads what others have committed, when they have.
func (cp *ControlPlane) followOthers(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	watching, end := make(chan error, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); <-end }()
	go func() {
		defer close(end)
		watching <- cp.cfg.WatchCommits(ctx, func() { poke(changed) })
	}()
	d := cp.duty("follow others")
	for {
		select {
		case <-changed:
		case err := <-watching:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
		d.begin()
		err := cp.readOthers(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			cp.episodes.Failed(slog.LevelWarn, "", "commits of other processes were not read yet", "err", err)
			poke(changed)
		}
		if err := d.end(err); err != nil {
			return err
		}
		if err := wait(ctx, besideEvery); err != nil {
			return err
		}
	}
}

func (cp *ControlPlane) readOthers(ctx context.Context) error {
	began := time.Now()
	if err := cp.catalog.look(ctx, cp.cfg.Store); err != nil {
		return err
	}
	poke(cp.wake)
	leased, err := cp.cfg.Store.Leased(ctx)
	if err != nil {
		return err
	}
	under := make(map[runRef]bool, len(leased))
	for _, run := range leased {
		under[runOf(run)] = true
	}
	cp.follow(leased...)
	for _, gone := range cp.vanished(under, began) {
		run, err := cp.cfg.Store.Run(ctx, gone.tenant, gone.id)
		switch {
		case errors.Is(err, jobs.NotFound):
			cp.leases.forget(gone.runRef, gone.attempt)
		case err != nil:
			return err
		default:
			cp.follow(run)
		}
	}
	for _, lane := range cp.router.offering() {
		offered := cp.router.offeredBefore(lane, began)
		if len(offered) == 0 {
			continue
		}
		ready, err := cp.cfg.Store.Ready(ctx, lane.Tenant, lane.App, len(offered)+leastWindow)
		if err != nil {
			return err
		}
		for _, run := range ready {
			delete(offered, run.ID)
		}
		for id := range offered {
			if under[runRef{lane.Tenant, id}] {
				continue
			}
			run, err := cp.cfg.Store.Run(ctx, lane.Tenant, id)
			if err != nil && !errors.Is(err, jobs.NotFound) {
				return err
			}
			if err == nil {
				cp.follow(run)
			}
		}
	}
	lanes, err := cp.cfg.Store.Lanes(ctx)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		cp.router.backlogged(l.Tenant, l.App, l.Ready)
	}
	poke(cp.router.changed)
	return nil
}

// follow takes in rows as other processes have left them: an unknown attempt has begun, a known one has ended, an
// offered run is claimed.
func (cp *ControlPlane) follow(rows ...*kernel.Run) {
	now := time.Now()
	minute := cp.cfg.Clock.Now().Unix() / 60
	var ended []*kernel.Run
	cp.router.mu.Lock()
	cp.leases.mu.Lock()
	cp.pulse.mu.Lock()
	for _, run := range rows {
		k := cp.leases.held[runOf(run)]
		known := k != nil && k.attempt == run.Attempt
		over := known && k.over != nil
		switch {
		case run.State == jobs.Processing && !known:
			cp.pulse.note(run, minute)
		case (run.State.Final() || run.State == jobs.Failed) && !over:
			if !known && run.Attempt > 0 {
				begun := *run
				begun.State = jobs.Processing
				cp.pulse.note(&begun, minute)
			}
			cp.pulse.note(run, minute)
			if run.State == jobs.Terminated && cp.cfg.Ended != nil {
				ended = append(ended, run)
			}
		}
		cp.router.note(run, now)
		cp.leases.note(run, now)
	}
	cp.pulse.mu.Unlock()
	cp.leases.mu.Unlock()
	cp.router.mu.Unlock()
	for _, run := range ended {
		cp.cfg.Ended(run)
	}
}

// absent is an attempt that this node believed to be under way.
type absent struct {
	runRef
	attempt uint32
}

// vanished lists the attempts that were known before began, and are not under way any more.
func (cp *ControlPlane) vanished(under map[runRef]bool, began time.Time) (list []absent) {
	l := &cp.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	for of, k := range l.held {
		if !under[of] && k.since.Before(began) {
			list = append(list, absent{of, k.attempt})
		}
	}
	return list
}

// offering lists the apps that have offers out.
func (r *router) offering() (list []bus.Lane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for lane, a := range r.apps {
		if len(a.out) > 0 {
			list = append(list, lane)
		}
	}
	return list
}

// offeredBefore returns the runs of an app that were offered before began.
func (r *router) offeredBefore(lane bus.Lane, began time.Time) map[jobs.ID]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := map[jobs.ID]bool{}
	if a := r.apps[lane]; a != nil {
		for id, o := range a.out {
			if o.at.Before(began) {
				ids[id] = true
			}
		}
	}
	return ids
}
