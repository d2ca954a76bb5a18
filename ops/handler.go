package ops

import (
	"context"
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
)

// A job may name another job as its handler: workers that have the code of that one run both, each with its own
// schedule, settings and arguments. So many jobs can be made for one piece of code, without a worker that knows them.

// schema returns the JSON Schema of a job's arguments: that of its handler. nil = none, or the handler is not known.
func (o *Ops) schema(ctx context.Context, who Who, d *kernel.Definition) ([]byte, error) {
	if d.HandlerKey() == d.Key {
		return d.Schema, nil
	}
	h, err := o.store.Definition(ctx, who.tenant(), d.HandlerKey())
	if jobs.CodeOf(err) == jobs.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return h.Schema, nil
}

// checkHandler checks a job as it will be after a change, if that sets its handler, requests, command or arguments: they
// fit each other.
func (o *Ops) checkHandler(ctx context.Context, who Who, after *kernel.Definition, set *kernel.Settings) error {
	p := &after.Policy
	if set.Handler == nil && set.HTTP == nil && set.Exec == nil && set.Args == nil {
		return nil
	}
	if p.Args == nil || set.Handler == nil && set.Args == nil {
		return nil
	}
	schema, err := o.schema(ctx, who, after)
	if err != nil {
		return err
	}
	return o.args.Check(schema, p.Args)
}

// warnHandler adds a warning if no online worker has the handler of a job or runs its command, and has the job show its
// handler's schema.
func (o *Ops) warnHandler(ctx context.Context, who Who, j *Job) error {
	if why := commandless(j.Definition, o.live.Workers(who.tenant())); why != "" {
		j.Warnings = append(j.Warnings, why)
	}
	if j.Policy.Handler == "" {
		return nil
	}
	d := *j.Definition
	var err error
	if d.Schema, err = o.schema(ctx, who, &d); err != nil {
		return err
	}
	j.Definition = &d
	if !slices.ContainsFunc(o.live.Workers(who.tenant()), func(w Worker) bool { return w.App == d.App && w.Serves(&d) }) {
		j.Warnings = append(j.Warnings, fmt.Sprintf("no online worker of the app %s has the handler %s: its runs wait for one", d.App, d.Policy.Handler))
	}
	return nil
}

// code names what a worker must have for a job: a handler, or the job itself.
func code(d *kernel.Definition, itself string) string {
	if d.Policy.Handler != "" {
		return "its handler " + d.Policy.Handler
	}
	return itself
}
