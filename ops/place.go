package ops

import (
	"context"
	"fmt"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// Drain drains workers, or resumes drained ones: the one of this name, or all processes with a configured name. It
// returns these workers. A drained worker finishes its runs, and stays.
func (o *Ops) Drain(ctx context.Context, who Who, name string, on bool) ([]Worker, error) {
	drained, err := o.drain(ctx, who, on, func(w Worker) bool { return w.Name == name || w.Label == name })
	if err == nil && len(drained) == 0 {
		err = kernel.Refuse(jobs.NotFound, "no online worker is named %.60q", name)
	}
	return drained, err
}

// DrainApp drains the online workers of an app, or resumes drained ones. It returns these workers. Those that come
// online later are not drained.
func (o *Ops) DrainApp(ctx context.Context, who Who, app string, on bool) ([]Worker, error) {
	drained, err := o.drain(ctx, who, on, func(w Worker) bool { return w.App == app })
	if err == nil && len(drained) == 0 {
		err = kernel.Refuse(jobs.NotFound, "app %.60q has no online worker", app)
	}
	return drained, err
}

func (o *Ops) drain(ctx context.Context, who Who, on bool, selected func(Worker) bool) ([]Worker, error) {
	if err := who.unlimited(); err != nil { // also if there is no such worker
		return nil, err
	}
	var drained []Worker
	n := 0 // commands that succeeded
	for _, w := range o.live.Workers(who.tenant()) {
		if !selected(w) {
			continue
		}
		if w.Drained != on {
			if _, err := o.apply(ctx, who, kernel.Drain{Worker: w.Name, On: on}); err != nil {
				err = fmt.Errorf("worker %s: %w", w.Name, err)
				if n > 0 {
					err = kernel.Refuse(jobs.Unknown, "%d of the workers were changed, then: %v", n, err)
				}
				return drained, err
			}
			n++
			w.Drained = on
		}
		drained = append(drained, w)
	}
	return drained, nil
}

// Nowhere returns why no worker gets a ready run, from what the workers report; "" = one gets it, or soon will.
func Nowhere(run *kernel.Run, workers []Worker) string {
	key, p := run.HandlerKey(), run.Place
	var live, have, fit, free int // of the app; with the job; with all that the run requires; that take new runs
	var room bool
	meant := false
	lacks := map[string]int{}
	for _, w := range workers {
		if w.App != run.App {
			continue
		}
		live++
		what := w.Lacks(key, run.Work, nil)
		if what != "" {
			continue
		}
		have++
		if what = w.Lacks(key, run.Work, p); what != "" {
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
	case have == 0 && run.Work == kernel.WorkExec:
		return noCommands(run.App)
	case live == 0:
		return fmt.Sprintf("no worker of the app %s is online", run.App)
	case have == 0:
		if run.Handler != "" {
			return "no online worker has the handler " + string(run.Handler)
		}
		return "no online worker has the job"
	case fit == 0 && len(lacks) > 0 && !meant:
		for what, n := range lacks {
			if n == have {
				return fmt.Sprintf("no worker with %s is online", what)
			}
		}
		if p.Pin == "" {
			return "no online worker has all tags that it requires"
		}
		fallthrough
	case fit == 0:
		return fmt.Sprintf("the worker %s, to which it is pinned, is offline", p.Pin)
	case free == 0:
		return "each worker that may take it is drained or stopping"
	case !room:
		return "each worker that may take it has no free slot"
	case p != nil && p.Route == jobs.RouteIdle:
		return "its route is idle, and each worker that may take it runs the job already"
	}
	return ""
}
