package controlplane

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// announced is a store whose effects are published: runs that can be claimed are offered, claimed ones make room,
// changes are signalled. Commit first, publish after.
type announced struct {
	metastore.Full
	cp *ControlPlane
}

// Apply applies a batch and announces its effects.
func (a announced) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	results := a.Full.Apply(ctx, batch)
	a.cp.announce(batch, results)
	return results
}

// announce passes effects on. It does not wait for the bus.
func (cp *ControlPlane) announce(batch []kernel.Envelope, results []metastore.Result) {
	now := time.Now()
	minute := cp.cfg.Clock.Now().Unix() / 60
	var stops []bus.Signal
	var ended []*kernel.Run
	var paused []*kernel.Definition
	var sooner bool
	cp.router.mu.Lock()
	cp.leases.mu.Lock()
	cp.pulse.mu.Lock()
	leading := cp.router.leading
	for i := range results {
		cp.pulse.totals.command(batch[i].Command, &results[i])
		if results[i].Err != nil || results[i].Existing {
			continue
		}
		verb := batch[i].Command.Verb()
		if verb == kernel.VerbDrain && leading {
			if k, ok := batch[i].Command.(kernel.Drain); ok {
				stops = append(stops, cp.router.rest(batch[i].Tenant, k))
			}
		}
		if leading && cp.cfg.Paused != nil {
			paused = append(paused, gaveUp(&results[i].Effect)...)
		}
		if verb == kernel.VerbPurge {
			select {
			case cp.purged <- struct{}{}:
			default:
			}
		}
		for n, run := range results[i].Runs {
			if leading {
				if step(verb, n == 0, cp.leases.over(run), run) { // before the leases change
					cp.pulse.note(run, minute)
					if run.State == jobs.Terminated && cp.cfg.Ended != nil {
						ended = append(ended, run)
					}
				}
				cp.router.note(run, now)
				cp.leases.note(run, now)
				sooner = sooner || !run.Wake().IsZero()
			}
			if run.Lingering && run.Worker != "" {
				stops = append(stops, bus.Signal{Topic: bus.TopicCancel, Tenant: run.Tenant, To: run.Worker, Data: bus.Encode(stopOf(run))})
			}
		}
	}
	cp.pulse.mu.Unlock()
	cp.leases.mu.Unlock()
	cp.router.mu.Unlock()
	for _, run := range ended {
		cp.cfg.Ended(run)
	}
	for _, d := range paused {
		cp.cfg.Paused(d)
	}
	poke(cp.router.changed)
	if sooner {
		poke(cp.wake)
	}
	for i := range results {
		if results[i].Err == nil && !results[i].Existing {
			cp.remember(batch[i].Command.Verb(), &results[i].Effect)
		}
	}
	cp.feed.note(results)
	for _, s := range stops {
		if err := cp.cfg.Bus.Signal(context.Background(), s); err != nil {
			cp.log.Debug("a cancel was not signalled; the answer to the next heartbeat repeats it", "worker", s.To, "err", err)
		}
	}
}

// gaveUp returns the jobs that have paused themselves in a command: that happens when a run of theirs ends.
func gaveUp(e *kernel.Effect) (list []*kernel.Definition) {
	for _, d := range e.Definitions {
		if d.Paused == nil || d.Paused.By != kernel.ByItself {
			continue
		}
		for _, run := range e.Runs {
			if run.Job == d.UID && run.State == jobs.Terminated && run.Ended.Equal(d.Paused.At) {
				list = append(list, d)
				break
			}
		}
	}
	return list
}

// remember leaves pending-update keys for what an effect changed, here and, for edits, at other nodes.
func (cp *ControlPlane) remember(verb kernel.Verb, e *kernel.Effect) {
	for _, d := range e.Definitions {
		if verb == kernel.VerbFire {
			continue // only its cursor moved, which fire.go knows
		}
		cp.catalog.mark(d.Tenant, d.Key)
		s := bus.Signal{Topic: bus.TopicChanged, Tenant: d.Tenant, Data: bus.Encode(bus.Changes{Keys: []jobs.Key{d.Key}})}
		if err := cp.cfg.Bus.Signal(context.Background(), s); err != nil {
			cp.log.Debug("a changed definition was not signalled; others see its change number", "key", d.Key, "err", err)
		}
	}
	if e.Global != nil {
		cp.catalog.markGlobal(e.Global.Tenant)
	}
}

// publish sends offers: what was noted since the last call, and runs read from the store for apps that have room.
func (cp *ControlPlane) publish(ctx context.Context) error {
	for {
		select {
		case <-cp.router.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		cp.makeLanes(ctx)
		for _, s := range cp.router.short() {
			ready, err := cp.cfg.Store.Ready(ctx, s.lane.Tenant, s.lane.App, s.want)
			if err != nil {
				cp.episodes.Failed(episode.Level(err), "", "waiting runs cannot be read", "app", s.lane.App, "err", err)
				continue
			}
			cp.router.fill(s, ready, time.Now())
		}
		queue, out, expand := cp.router.ship(time.Now())
		for _, s := range out {
			cp.send(ctx, queue, s)
		}
		if len(expand) > 0 {
			go cp.expand(ctx, expand) // a commit: the offers need not wait for it
		}
	}
}

// send delivers lists of offers. A worker's personal lane may take a second to answer, so it is not waited for.
func (cp *ControlPlane) send(ctx context.Context, queue string, s shipment) {
	if s.lane.Worker == "" {
		if err := cp.cfg.Bus.Offer(ctx, queue, s.lane, s.lists...); err != nil {
			cp.router.failed(s)
			cp.lost(queue, err)
		}
		return
	}
	go func() {
		for _, list := range s.lists {
			if err := cp.cfg.Bus.Hand(ctx, s.lane, list); err != nil {
				if !errors.Is(err, bus.ErrNoReceiver) && ctx.Err() == nil {
					cp.episodes.Failed(slog.LevelWarn, s.lane.Worker, "offers did not reach a worker", "worker", s.lane.Worker, "err", err)
				}
				cp.router.failed(s)
				return
			}
		}
	}()
}

// expand turns broadcasts into one run for each worker. What fails is tried again when the offer is overdue.
func (cp *ControlPlane) expand(ctx context.Context, list []expansion) {
	batch := make([]kernel.Envelope, len(list))
	for i, s := range list {
		batch[i] = cp.envelope(s.tenant, s.command)
	}
	for i, r := range cp.store.Apply(ctx, batch) {
		switch {
		case r.Err != nil && ctx.Err() == nil:
			cp.episodes.Failed(slog.LevelWarn, "", "a broadcast is not expanded yet", "run", list[i].command.ID, "err", r.Err)
		case r.Existing && len(r.Runs) > 0:
			cp.router.expanded(list[i].tenant, r.Runs[0])
		}
	}
}

// lost records that the shared queue does not take offers: personal lanes are used until open has made it again.
func (cp *ControlPlane) lost(queue string, err error) {
	r := &cp.router
	r.mu.Lock()
	mine := r.queue == queue && queue != ""
	if mine {
		r.queue = ""
	}
	r.mu.Unlock()
	if mine {
		cp.episodes.Failed(slog.LevelWarn, "", "the queue of offers is lost and will be made again", "queue", queue, "err", err)
		poke(cp.reopen)
	}
	poke(r.changed)
}

// queuePatience is how long the shared queue may be missing without a line in the log.
const queuePatience = 10 * time.Second

// open makes the shared queue of this term, and makes it again when it is lost.
func (cp *ControlPlane) open(ctx context.Context, term uint64) error {
	for {
		queue, err := cp.cfg.Bus.Open(ctx, term)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			// A cluster that starts or changes its leader needs a moment, and each worker gets its offers meanwhile.
			cp.episodes.Lasts(queuePatience, slog.LevelWarn, "", "no shared queue of offers, each worker is offered its runs by name until there is", "err", err)
			if err := wait(ctx, time.Second); err != nil {
				return err
			}
			continue
		}
		cp.episodes.End("", "no shared queue of offers, each worker is offered its runs by name until there is")
		cp.router.again(queue)
		select {
		case <-cp.reopen:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
