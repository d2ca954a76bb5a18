package controlplane

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Where rows are in a database, other processes may commit, too: a program that opens it, a follower. The leader starts
// runs, keeps leases, and counts, all from memory that follows its own commits. When others have committed it reads
// what may have changed: definitions, live runs, what is ready.

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
	under := make(map[dispatch.Run]bool, len(leased))
	for _, run := range leased {
		under[runOf(run)] = true
	}
	cp.follow(leased...)
	for _, a := range cp.board.vanished(under, began) {
		run, err := cp.cfg.Store.Run(ctx, a.Tenant, a.ID)
		switch {
		case errors.Is(err, jobs.NotFound):
			cp.board.drop(a)
		case err != nil:
			return err
		default:
			cp.follow(run)
		}
	}
	apps, err := cp.cfg.Store.ReadyApps(ctx)
	if err != nil {
		return err
	}
	cp.board.sweep(apps)
	poke(cp.board.changed)
	return nil
}

// follow takes in rows as other processes have left them: an unknown attempt has begun, a known one has ended.
func (cp *ControlPlane) follow(rows ...*kernel.Run) {
	minute := cp.cfg.Clock.Now().Unix() / 60
	var acts dispatch.Acts
	var ended []*kernel.Run
	b := &cp.board
	b.mu.Lock()
	cp.pulse.mu.Lock()
	now := b.now()
	for _, run := range rows {
		sent := b.current(run)
		k := kept(sent)
		known := k != nil && k.N == run.Attempt
		over := known && k.over != nil
		if (run.State.Final() || run.State == jobs.Failed) && !over {
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
		b.note(run, sent, now, &acts)
	}
	cp.pulse.mu.Unlock()
	pushes := b.deliveries(acts.Push)
	b.mu.Unlock()
	cp.deliver(pushes)
	for _, run := range ended {
		cp.cfg.Ended(run)
	}
}

// vanished lists the attempts that were known before began, and are not under way any more.
func (b *board) vanished(under map[dispatch.Run]bool, began time.Time) (list []dispatch.Attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.stamp(began)
	for k := range b.attempts {
		if !under[k.Run] && k.since < at {
			list = append(list, k.Attempt)
		}
	}
	return list
}
