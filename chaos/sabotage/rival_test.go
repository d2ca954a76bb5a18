package sabotage

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// rival is what a former leader does that has not noticed yet that another one leads: it starts runs that this one has
// just started, on another worker, and pushes what it believes to have started.
type rival struct {
	mu    sync.Mutex
	bus   bus.Bus
	heads map[bus.Address]bus.Push // of the last push to each worker
	n     int
}

// note remembers how a worker is addressed.
func (r *rival) note(to bus.Address, push []byte) {
	p, err := bus.DecodePush(push)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.Runs = nil
	r.heads[to] = p
}

// start has the rival do so now and then.
func (r *rival) start(ctx context.Context, rows metastore.Full, batch []kernel.Envelope) {
	for _, e := range batch {
		k, ok := e.Command.(kernel.Start)
		if !ok {
			continue
		}
		to, p, found := r.other(k.Worker)
		if !found {
			continue
		}
		k.Worker = to.Worker
		result := rows.Apply(ctx, []kernel.Envelope{{ID: jobs.NewID(time.Now()), Tenant: e.Tenant, Actor: "leader:rival", Command: k}})[0]
		if result.Err != nil || result.Existing {
			continue
		}
		p.Runs = result.Runs
		parcels, _ := p.Pack(1 << 20)
		_, _ = r.bus.Push(ctx, to, parcels[0].Bytes)
	}
}

// other returns another worker than the named one, for every eighth start.
func (r *rival) other(than string) (to bus.Address, p bus.Push, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n++; r.n%8 != 0 {
		return to, p, false
	}
	var all []bus.Address
	for a := range r.heads {
		if a.Worker != than {
			all = append(all, a)
		}
	}
	if len(all) == 0 {
		return to, p, false
	}
	to = slices.MaxFunc(all, func(a, b bus.Address) int { return int(r.heads[a].Heard - r.heads[b].Heard) })
	return to, r.heads[to], true
}
