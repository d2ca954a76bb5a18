package storetest

import (
	"fmt"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// batch reads an OpenBatch or a CloseBatch. The run of its end has the name NAME>THEN.
func (tl *telling) batch(w words) kernel.Command {
	name := w.name(0)
	id := kernel.DerivedID("batch of a story", name)
	tl.names[id] = name
	if w.verb == "closebatch" {
		return kernel.CloseBatch{ID: id}
	}
	k := kernel.OpenBatch{ID: id, Name: name, Then: jobs.Key(w.name(1)), Args: raw(w.take("args"))}
	for _, tenant := range []jobs.Tenant{jobs.DefaultTenant, "other"} {
		if end := (&kernel.Batch{Tenant: tenant, ID: id, Opened: tl.h.Clock.Now()}).RunID(); tl.names[end] == "" {
			tl.names[end] = name + ">" + string(k.Then)
		}
	}
	return k
}

func showBatches(tl *telling, w words) string {
	list, err := tl.h.Store.Batches(tl.t.Context(), metastore.BatchQuery{Tenant: tenantOf(w), Limit: metastore.MaxPage})
	if err != nil {
		return refusedRead(err)
	}
	return several(list, func(b *kernel.Batch) string {
		p := phrase{fmt.Sprintf("batch %s then %s by %s: %d runs", b.Name, b.Then, b.Actor, b.Total)}
		p.add(b.Succeeded > 0, "%d succeeded", b.Succeeded)
		p.add(b.Terminated > 0, "%d terminated", b.Terminated)
		p.add(b.Cancelled > 0, "%d cancelled", b.Cancelled)
		p.add(b.Skipped > 0, "%d skipped", b.Skipped)
		p.time("until", b.Until)
		p.time("closed", b.Closed)
		p.add(b.Late, "by the scheduler")
		p.time("ended", b.Ended)
		p.add(!b.Run.IsZero(), "run %s", tl.runName(b.Tenant, b.Run))
		p.add(len(b.Failures) > 0, "failures: %s", strings.ReplaceAll(ends(b.Failures), "\n", ", "))
		return strings.Join(p, ", ")
	})
}
