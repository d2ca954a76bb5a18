package controlplane

import (
	"context"
	"slices"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// announced is a store whose effects are published: ready runs are started, started ones pushed, changes signalled.
// Commit first, publish after.
type announced struct {
	metastore.Full
	cp *ControlPlane
}

// Apply applies a batch and announces its effects. What can travel with it does.
func (a announced) Apply(ctx context.Context, batch []kernel.Envelope) []metastore.Result {
	cp := a.cp
	ends := cp.idle(batch)
	if ends {
		if r := cp.travel.join(batch); r != nil {
			if results := r.ride(ctx); results != nil {
				return results
			}
		}
	}
	riders := cp.travel.leave(ends)
	starts, term := cp.ahead(batch)
	all := batch
	if len(riders)+len(starts) > 0 {
		all = slices.Clone(batch)
		for _, s := range starts {
			all = append(all, cp.envelope(s.Tenant, kernel.Start{ID: s.ID, Worker: s.Worker, Attempt: s.N, Term: term, Skills: &s.skills}))
		}
		for _, r := range riders {
			all = append(all, r.batch...)
		}
	}
	results := a.Full.Apply(metastore.WithLate(ctx, cp.announce), all)
	cp.announce(all, results)
	n := len(batch)
	if len(starts) > 0 {
		cp.startedEarly(starts, results[:n], results[n:n+len(starts)], term)
	}
	arrived(riders, results[n+len(starts):])
	cp.acknowledge(ctx, batch, results[:n:n])
	return results[:n:n]
}

// announce passes effects on. It does not wait for the bus.
func (cp *ControlPlane) announce(batch []kernel.Envelope, results []metastore.Result) {
	minute := cp.cfg.Clock.Now().Unix() / 60
	var stops []bus.Signal
	var sooner bool
	var acts dispatch.Acts
	b := &cp.board
	b.mu.Lock()
	cp.pulse.mu.Lock()
	leading, now := b.term > 0, b.now()
	for i := range results {
		cp.pulse.totals.command(batch[i].Command, &results[i])
		if results[i].Err != nil || results[i].Existing {
			continue
		}
		verb := batch[i].Command.Verb()
		if verb == kernel.VerbDrain && leading {
			if k, ok := batch[i].Command.(kernel.Drain); ok {
				stops = append(stops, b.rest(batch[i].Tenant, k))
			}
		}
		if g := results[i].Global; g != nil && leading {
			switch b.tenancy(g); {
			case g.Tenancy.Deleted.On:
				b.vacate(g.Tenant)
				poke(cp.dissolving)
			case verb == kernel.VerbDropTenant:
				cp.pulse.forget(g.Tenant)
				cp.refusals.forget(g.Tenant)
			}
		}
		switch verb {
		case kernel.VerbResume, kernel.VerbPause, kernel.VerbDelete, kernel.VerbConfigure:
			sooner = true // what it ends may have held runs
		}
		if verb == kernel.VerbSetAlarmTarget {
			poke(cp.ruled)
		}
		if verb == kernel.VerbPurge {
			select {
			case cp.purged <- struct{}{}:
			default:
			}
		}
		for n, run := range results[i].Runs {
			if leading {
				sent, over := b.current(run), false
				if k := kept(sent); k != nil && k.N == run.Attempt {
					over = k.over != nil                     // it had ended before, and only its handler ran on
					if verb == kernel.VerbFinish && n == 0 { // its end may come before the answer to its push
						if begun := k.confirm(now); begun != nil {
							cp.pulse.note(begun, minute)
						}
					}
				}
				if step(verb, n == 0, over, run) { // before the board changes
					cp.pulse.note(run, minute)
				}
				if k := b.note(run, sent, now, &acts); k != nil && verb == kernel.VerbStart && n == 0 {
					k.ours = true
				}
				if verb == kernel.VerbFinish && n == 1 && len(b.needed) < mostKnown {
					b.needed[kernel.DefinitionRef(results[i].Runs[0].Tenant, results[i].Runs[0].Key)] = true
				}
				if verb == kernel.VerbCreate && n == 0 || verb == kernel.VerbFire {
					b.ahead.learn(run)
				}
				sooner = sooner || !run.Wake().IsZero()
			}
			if run.Lingering && run.Worker != "" {
				stops = append(stops, bus.Signal{Topic: bus.TopicCancel, Tenant: run.Tenant, To: run.Worker, Data: bus.Encode(stopOf(run))})
			}
		}
	}
	cp.pulse.mu.Unlock()
	b.wakeCancels()
	b.pushed += uint64(len(acts.Push))
	pushes := b.deliveries(acts.Push)
	b.mu.Unlock()
	cp.deliver(pushes)
	poke(b.changed)
	if sooner {
		poke(cp.wake)
	}
	for i := range results {
		if err := results[i].Err; err != nil {
			cp.Refused(batch[i].Tenant, err)
		} else if !results[i].Existing {
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
