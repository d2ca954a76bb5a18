package ops

import (
	"context"
	"fmt"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Drain has workers take nothing new, or take runs again: the one of this name, or all starts of a configured name. It
// answers with those that it told. They finish what they run, and stay.
func (o *Ops) Drain(ctx context.Context, who Who, name string, on bool) ([]Worker, error) {
	var told []Worker
	n := 0 // commands that were done
	for _, w := range o.live.Workers(who.tenant()) {
		if w.Name != name && w.Label != name {
			continue
		}
		if w.Drained != on {
			if _, err := o.apply(ctx, who, kernel.Drain{Worker: w.Name, On: on}); err != nil {
				err = fmt.Errorf("worker %s: %w", w.Name, err)
				if n > 0 {
					err = kernel.Refuse(jobs.Unknown, "%d of the workers were told, and then: %v", n, err)
				}
				return told, err
			}
			n++
			w.Drained = on
		}
		told = append(told, w)
	}
	if len(told) == 0 {
		return nil, kernel.Refuse(jobs.NotFound, "there is no worker %.60q that has been heard of lately", name)
	}
	return told, nil
}

// Nowhere says why no worker is offered a run that can be claimed, as far as the workers tell; "" = one is, or soon will be.
func Nowhere(run *kernel.Run, workers []Worker) string {
	key, p := run.Key, run.Place
	var live, have, fit, free int // of the app; with the job; with all it takes; that take something new
	var room bool
	meant := false
	lacks := map[string]int{}
	for _, w := range workers {
		if w.App != run.App {
			continue
		}
		live++
		what := w.Lacks(key, nil)
		if what != "" {
			continue
		}
		have++
		if what = w.Lacks(key, p); what != "" {
			lacks[what]++
			continue
		}
		if p != nil && p.Pin != "" && p.Pin != w.Name && p.Pin != w.Label && p.PinAway != jobs.PinAny {
			continue
		}
		meant = true
		fit++
		if w.Leaving || w.Drained {
			continue
		}
		free++
		room = room || w.Slots == 0 || w.Running < w.Slots
	}
	switch {
	case live == 0:
		return fmt.Sprintf("no worker of the app %s is alive", run.App)
	case have == 0:
		return "no worker that is alive has the job"
	case fit == 0 && len(lacks) > 0 && !meant:
		for what, n := range lacks {
			if n == have {
				return fmt.Sprintf("no worker with %s is alive", what)
			}
		}
		if p.Pin == "" {
			return "no worker that is alive has all that it needs"
		}
		fallthrough
	case fit == 0:
		return fmt.Sprintf("the worker %s, which is meant to run it, is away", p.Pin)
	case free == 0:
		return "each worker that may take it is drained or stopping"
	case !room:
		return "each worker that may take it is full"
	case p != nil && p.Route == jobs.RouteIdle:
		return "its route is idle, and each worker that may take it runs something"
	}
	return ""
}
