package controlplane

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// announced is a store whose effects are told: what can be claimed is offered, what was claimed makes room, what
// changed is signalled. Commit first, publish after.
type announced struct {
	metastore.Full
	cp *ControlPlane
}

// Apply applies and announces.
func (a announced) Apply(ctx context.Context, batch []jobs.Envelope) []metastore.Result {
	results := a.Full.Apply(ctx, batch)
	a.cp.announce(results)
	return results
}

// announce passes effects on. It does not wait for the bus.
func (cp *ControlPlane) announce(results []metastore.Result) {
	now := time.Now()
	var stops []bus.Signal
	var sooner bool
	cp.router.mu.Lock()
	cp.leases.mu.Lock()
	leading := cp.router.leading
	for i := range results {
		if results[i].Err != nil || results[i].Existing {
			continue
		}
		for _, in := range results[i].Instances {
			if leading {
				cp.router.note(in, now)
				cp.leases.note(in, now)
				sooner = sooner || !in.Wake().IsZero()
			}
			if in.Lingering && in.Worker != "" {
				stops = append(stops, bus.Signal{Topic: bus.TopicCancel, Tenant: in.Tenant, To: in.Worker, Data: bus.Encode(stopOf(in))})
			}
		}
	}
	cp.leases.mu.Unlock()
	cp.router.mu.Unlock()
	poke(cp.router.changed)
	if sooner {
		poke(cp.wake)
	}
	for i := range results {
		if results[i].Err == nil && !results[i].Existing {
			cp.remember(&results[i].Effect)
		}
	}
	cp.feed.note(results)
	for _, s := range stops {
		if err := cp.cfg.Bus.Signal(context.Background(), s); err != nil {
			cp.log.Debug("a cancel was not signalled; the next beat tells it", "worker", s.To, "err", err)
		}
	}
}

// remember leaves pending-update keys for what an effect changed, here and, for edits, at other nodes.
func (cp *ControlPlane) remember(e *jobs.Effect) {
	for _, d := range e.Definitions {
		if len(e.Instances) > 0 || len(e.Missed) > 0 {
			continue // a fire: its cursor moved, and fire.go knows
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

// publish sends offers: what was noted since the last call went out, and what is read of the store for apps that
// have room.
func (cp *ControlPlane) publish(ctx context.Context) error {
	for {
		select {
		case <-cp.router.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		queue, lanes := cp.router.unmade()
		for _, lane := range lanes {
			if err := cp.cfg.Bus.Offer(ctx, queue, lane); err != nil {
				cp.lost(queue, err)
			}
		}
		for _, s := range cp.router.short() {
			ready, err := cp.cfg.Store.Ready(ctx, s.lane.Tenant, s.lane.App, s.want)
			if err != nil {
				cp.log.Error("waiting runs cannot be read", "app", s.lane.App, "err", err)
				continue
			}
			cp.router.fill(s, ready, time.Now())
		}
		queue, out := cp.router.ship()
		for _, s := range out {
			cp.send(ctx, queue, s)
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
				if !errors.Is(err, bus.ErrNobody) && ctx.Err() == nil {
					cp.log.Warn("offers did not reach a worker", "worker", s.lane.Worker, "err", err)
				}
				cp.router.failed(s)
				return
			}
		}
	}()
}

// lost notes that the shared queue does not take offers: personal lanes are used until open has made it again.
func (cp *ControlPlane) lost(queue string, err error) {
	r := &cp.router
	r.mu.Lock()
	mine := r.queue == queue && queue != ""
	if mine {
		r.queue = ""
	}
	r.mu.Unlock()
	if mine {
		cp.log.Warn("the queue of offers is lost and will be made again", "queue", queue, "err", err)
		poke(cp.reopen)
	}
	poke(r.changed)
}

// open makes the shared queue of this term, and makes it again whenever it is lost. What is missing on the bus is
// logged by name, once for each new reason.
func (cp *ControlPlane) open(ctx context.Context, term uint64) error {
	said := ""
	for {
		queue, err := cp.cfg.Bus.Open(ctx, term)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if err.Error() != said {
				said = err.Error()
				cp.log.Error("no shared queue of offers, each worker is offered its runs by name until there is", "err", err)
			}
			if err := wait(ctx, time.Second); err != nil {
				return err
			}
			continue
		}
		said = ""
		cp.router.again(queue)
		select {
		case <-cp.reopen:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
