package controlplane

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/internal/dispatch"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
)

// acknowledge waits until the runs that a batch has cancelled have certainly begun, or never do: a push of them may be
// on its way to a worker that has not answered yet. It mostly answers within a millisecond; one that cannot be reached
// accepts no push after two thirds of a lease. For a caller that does not wait so long the outcome is unknown.
func (cp *ControlPlane) acknowledge(ctx context.Context, batch []kernel.Envelope, results []metastore.Result) {
	for i := range batch {
		run := results[i].Run()
		if batch[i].Command.Verb() != kernel.VerbCancel || results[i].Err != nil || run == nil || !run.Lingering {
			continue
		}
		if err := cp.certain(ctx, dispatch.Attempt{Run: dispatch.Run{Tenant: batch[i].Tenant, ID: run.ID}, N: run.Attempt}); err != nil {
			results[i] = metastore.Result{Err: err}
		}
	}
}

// certain waits until it is certain whether an attempt has begun.
func (cp *ControlPlane) certain(ctx context.Context, a dispatch.Attempt) error {
	b := &cp.board
	b.mu.Lock()
	term := b.term
	for {
		if b.term != term {
			b.mu.Unlock()
			return kernel.OutcomeUnknown("run %s is cancelled, and may begin for a moment: another node leads", a.ID)
		}
		sent := b.Sender().Find(a)
		now := b.now()
		var until dispatch.Stamp
		if sent != nil {
			until = b.Sender().MayBegin(sent, now)
		}
		if until == 0 {
			b.mu.Unlock()
			return nil
		}
		if b.cancels == nil {
			b.cancels = make(chan struct{})
		}
		changed, left := b.cancels, until-now
		b.mu.Unlock()
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return kernel.OutcomeUnknown("run %s is cancelled, and may begin for %v: its worker %s has not answered", a.ID, left, sent.Worker().Name)
		}
		timer.Stop()
		b.mu.Lock()
	}
}

// wakeCancels has cancels look again that wait for an answer of a worker. The lock is held.
func (b *board) wakeCancels() {
	if b.cancels != nil {
		close(b.cancels)
		b.cancels = nil
	}
}
