package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Started attempts are pushed to their workers: what a commit has started at once, what is not answered again. Package
// internal/dispatch has the rules.

const (
	// pushTime is how long one push may take. Meanwhile it is repeated: a late answer is no worse than a later one.
	pushTime = time.Second
	// repeatEvery is how often unanswered pushes are looked at.
	repeatEvery = 100 * time.Millisecond
)

// delivery is what goes to one worker.
type delivery struct {
	to   bus.Address
	push bus.Push
}

// deliveries gathers the attempts to push by worker. The lock is held.
func (b *board) deliveries(list []*dispatch.Sent) []delivery {
	if len(list) == 0 {
		return nil
	}
	at := map[dispatch.Worker]int{}
	var all []delivery
	for _, sent := range list {
		k, w := kept(sent), sent.Worker()
		if k == nil || k.run == nil {
			continue
		}
		i, known := at[w]
		if !known {
			head := b.Sender().Push(w)
			i = len(all)
			at[w] = i
			all = append(all, delivery{bus.Address{Tenant: w.Tenant, App: k.app, Worker: w.Name}, bus.Push{Process: head.Process, Heard: head.Heard, Lease: head.Lease}})
		}
		all[i].push.Runs = append(all[i].push.Runs, k.run)
	}
	return all
}

// deliver pushes, without waiting. The lock of the board is not held.
func (cp *ControlPlane) deliver(list []delivery) {
	for _, d := range list {
		cp.pushes.Load().Call(d)
	}
}

// push pushes to one worker, and takes in its answers.
func (cp *ControlPlane) push(d delivery) {
	ctx, term := cp.ready.now()
	if ctx == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pushTime)
	defer cancel()
	d.push.Term = term
	cp.board.still(&d.push) // it may have waited for other pushes
	if len(d.push.Runs) == 0 {
		return
	}
	parcels, large := d.push.Pack(cp.cfg.Bus.Limit())
	for _, run := range large {
		cp.tooLarge(ctx, run)
	}
	for i, p := range parcels {
		raw, err := cp.cfg.Bus.Push(ctx, d.to, p.Bytes)
		var answer bus.PushAnswer
		if err == nil {
			answer, err = bus.Decode[bus.PushAnswer](raw)
		}
		switch {
		case err == nil:
			cp.answered(d.to, p.Runs, answer)
			continue
		case errors.Is(err, bus.ErrNoReceiver):
			for _, p := range parcels[i:] {
				cp.undelivered(p.Runs)
			}
		case ctx.Err() == nil:
			cp.episodes.Failed(slog.LevelWarn, d.to.Worker, "runs did not reach a worker", "worker", d.to.Worker, "err", err)
		}
		return
	}
}

// still leaves those runs in a push of which the attempts have not ended.
func (b *board) still(p *bus.Push) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.Runs = slices.DeleteFunc(p.Runs, func(run *kernel.Run) bool {
		sent := b.Sender().Find(attemptOf(run))
		return sent == nil || sent.Over()
	})
}

// answered takes in a worker's answer.
func (cp *ControlPlane) answered(to bus.Address, runs []*kernel.Run, answer bus.PushAnswer) {
	if answer.Late {
		return
	}
	verdicts := make(map[bus.Attempt]dispatch.Verdict, len(answer.Refused)+len(answer.Over))
	for _, a := range answer.Refused {
		verdicts[a] = dispatch.Refused
	}
	for _, a := range answer.Over {
		verdicts[a] = dispatch.Over
	}
	var acts dispatch.Acts
	var begun []*kernel.Run
	w := dispatch.Worker{Tenant: to.Tenant, Name: to.Worker}
	b := &cp.board
	b.mu.Lock()
	now := b.now()
	for _, run := range runs {
		sent := b.Sender().Find(attemptOf(run))
		if sent == nil {
			continue
		}
		v := verdicts[bus.Attempt{ID: run.ID, N: run.Attempt}]
		if v == 0 {
			v = dispatch.Began
		}
		b.Answer(sent, w, v, &acts)
		if k := kept(sent); k != nil && v != dispatch.Refused {
			if run := k.confirm(now); run != nil {
				begun = append(begun, run)
			}
		}
	}
	b.wakeCancels()
	b.refused += uint64(len(acts.Unstart))
	b.unstart = append(b.unstart, acts.Unstart...)
	b.mu.Unlock()
	cp.begun(begun)
	poke(b.changed)
}

// undelivered takes in that no process has received some runs.
func (cp *ControlPlane) undelivered(runs []*kernel.Run) {
	var acts dispatch.Acts
	b := &cp.board
	b.mu.Lock()
	for _, run := range runs {
		b.Undelivered(attemptOf(run), &acts)
	}
	b.unstart = append(b.unstart, acts.Unstart...)
	b.mu.Unlock()
	poke(b.changed)
}

// begun counts attempts that have begun, by their workers' word.
func (cp *ControlPlane) begun(runs []*kernel.Run) {
	if len(runs) == 0 {
		return
	}
	minute := cp.cfg.Clock.Now().Unix() / 60
	cp.pulse.mu.Lock()
	defer cp.pulse.mu.Unlock()
	for _, run := range runs {
		cp.pulse.note(run, minute)
	}
}

// tooLarge ends an attempt whose run no message of the bus can carry: no worker could ever run it.
func (cp *ControlPlane) tooLarge(ctx context.Context, run *kernel.Run) {
	text := fmt.Sprintf("the run is larger than a message of the bus, which has %d bytes: put large data elsewhere and a reference into the arguments, or raise the server's max_payload", cp.cfg.Bus.Limit())
	cp.log.Error("a run is too large for the bus", "key", run.Key, "run", run.ID, "bytes", len(run.Args)+len(run.Checkpoint))
	r := cp.store.Apply(ctx, []kernel.Envelope{cp.envelope(run.Tenant, kernel.Finish{ID: run.ID, Worker: run.Worker, Attempt: run.Attempt, Outcome: kernel.OutcomeFatal, Error: text})})
	if err := r[0].Err; err != nil && jobs.CodeOf(err) != jobs.Stale && jobs.CodeOf(err) != jobs.Conflict {
		cp.episodes.Failed(slog.LevelWarn, "", "a run that is too large for the bus was not ended", "run", run.ID, "err", err)
	}
}

// repeat pushes again what is not answered, while there is such.
func (cp *ControlPlane) repeat(ctx context.Context, term uint64) error {
	timer := time.NewTimer(repeatEvery)
	defer timer.Stop()
	b := &cp.board
	poke(b.asked)
	for {
		select {
		case <-timer.C:
		case <-b.asked:
		case <-ctx.Done():
			return ctx.Err()
		}
		var acts dispatch.Acts
		cp.confirm(term)
		b.mu.Lock()
		b.Sender().Tick(b.now(), &acts)
		b.repeated += uint64(len(acts.Push))
		list := b.deliveries(acts.Push)
		again := b.Sender().Waits()
		b.repeating = again
		b.mu.Unlock()
		cp.deliver(list)
		if timer.Stop(); again {
			timer.Reset(repeatEvery)
		}
	}
}

// lookAfter has pushes looked after until all are answered. The lock is held.
func (b *board) lookAfter() {
	if !b.repeating {
		b.repeating = true
		poke(b.asked)
	}
}

// confirm records until when it is certain that this process leads.
func (cp *ControlPlane) confirm(term uint64) {
	at := cp.cfg.Elector.Confirmed(term)
	if at.IsZero() {
		return
	}
	b := &cp.board
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Sender().Confirm(b.stamp(at))
}
