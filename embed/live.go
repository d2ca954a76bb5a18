package embed

import (
	"context"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/ops"
)

// live is what a control plane knows, in the words of ops.
type live struct {
	plane *controlplane.ControlPlane
	node  string
}

var _ ops.Live = live{}

func (l live) Workers(tenant jobs.Tenant) []ops.Worker {
	members := l.plane.Workers(tenant)
	list := make([]ops.Worker, len(members))
	for i, m := range members {
		list[i] = ops.Worker{WorkerInfo: m.WorkerInfo, Running: m.Running, Seen: m.Seen, Leaving: m.Leaving}
	}
	return list
}

func (l live) Attempt(run jobs.ID) (ops.Attempt, bool) {
	a, known := l.plane.Attempt(run)
	return ops.Attempt{Progress: a.Progress, Stuck: a.Stuck}, known
}

func (l live) Leader() ops.Leader {
	term, since := l.plane.Leading()
	if term == 0 {
		return ops.Leader{}
	}
	return ops.Leader{Node: l.node, Epoch: term, Here: true, Since: since}
}

func (l live) Watch(ctx context.Context, tenant jobs.Tenant, fn func(bus.Changes)) {
	l.plane.Watch(ctx, tenant, fn)
}
