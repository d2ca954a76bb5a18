package ops

import (
	"cmp"
	"context"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore"
)

// App is a worker group: its jobs and its online workers.
type App struct {
	Name     string
	Jobs     int
	Paused   int
	Disabled int
	Workers  int
	Drained  int
	Slots    int // of all these workers; 0 = one of them has no limit, or there are none
	Running  int // attempts on these workers
}

// Apps lists the worker groups that have jobs or online workers, by name.
func (o *Ops) Apps(ctx context.Context, who Who) ([]App, error) {
	found := map[string]*App{}
	of := func(name string) *App {
		if found[name] == nil {
			found[name] = &App{Name: name}
		}
		return found[name]
	}
	now := o.Now()
	if err := metastore.EachDefinition(ctx, o.store, who.tenant(), func(part []*kernel.Definition) error {
		for _, d := range part {
			if kernel.SystemKey(d.Key) {
				continue
			}
			a := of(d.App)
			a.Jobs++
			if d.Policy.Disabled {
				a.Disabled++
			}
			if paused(d, now) {
				a.Paused++
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	unlimited := map[string]bool{}
	for _, w := range o.live.Workers(who.tenant()) {
		a := of(w.App)
		a.Workers++
		a.Running += w.Running
		if w.Drained {
			a.Drained++
		}
		unlimited[w.App] = unlimited[w.App] || w.Slots == 0
		if a.Slots += w.Slots; unlimited[w.App] {
			a.Slots = 0
		}
	}
	list := make([]App, 0, len(found))
	for _, a := range found {
		list = append(list, *a)
	}
	slices.SortFunc(list, func(a, b App) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}
