package worker

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/argschema"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/timetable"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// job is a job as this worker runs it.
type job struct {
	declaration kernel.Declaration
	handler     Handler
	source      source
}

// source is where a job comes from: a jobs.Job, or declared.
type source interface {
	Key() jobs.Key
	Args() reflect.Type
	Run(ctx context.Context, args []byte) error
	Init(ctx context.Context) error
	Close() error
}

// declared is a job that another program declares and runs: run passes its attempts on.
type declared struct {
	declaration kernel.Declaration
	run         Handler
}

func (d declared) Key() jobs.Key                              { return d.declaration.Key }
func (d declared) Args() reflect.Type                         { return nil }
func (d declared) Run(ctx context.Context, args []byte) error { return d.run(ctx, args) }
func (d declared) Init(context.Context) error                 { return nil }
func (d declared) Close() error                               { return nil }

func declare(j source) (kernel.Declaration, error) {
	switch j := j.(type) {
	case jobs.Job:
		return kernel.Declare(j)
	case declared:
		return j.declaration, j.declaration.Check()
	}
	panic(fmt.Sprintf("worker: a job is a %T", j))
}

// prepare checks a job, describes its arguments and wraps its handler.
func (w *Worker) prepare(j source) (*job, error) {
	d, err := declare(j)
	if err != nil {
		return nil, err
	}
	if err := w.checkSchedule(d); err != nil {
		return nil, err
	}
	if d.Schema == nil {
		if d.Schema, err = argschema.Describe(j.Args()); err != nil {
			return nil, fmt.Errorf("job %s: %w", j.Key(), err)
		}
	}
	if d.Schema != nil && d.Code.Args != nil { // a run without arguments of its own would fail by them
		if place, err := argschema.Checker(d.Schema)(*d.Code.Args); err != nil {
			return nil, fmt.Errorf("job %s: default arguments: %s", j.Key(), strings.TrimPrefix(place+": "+err.Error(), ": "))
		}
	}
	return &job{declaration: d, handler: w.wrapped(j.Run), source: j}, nil
}

// wrapped returns a handler within the middleware; nil stays nil.
func (w *Worker) wrapped(h Handler) Handler {
	for i := len(w.config.Middleware) - 1; i >= 0 && h != nil; i-- {
		h = w.config.Middleware[i](h)
	}
	return h
}

// handler returns what runs a job here, or nil.
func (w *Worker) handler(key jobs.Key) Handler {
	if j := w.jobs[key]; j != nil {
		return j.handler
	}
	return w.others
}

// checkSchedule reads the schedule once, so that a mistake in it stops the program at once, with the place. A schedule
// that has ended is no mistake: an old program may be started again.
func (w *Worker) checkSchedule(d kernel.Declaration) error {
	def := kernel.Definition{Tenant: w.config.Tenant, Key: d.Key, Kind: d.Kind, Code: d.Code}
	def.Policy = def.Resolve(&kernel.Global{})
	if def.Policy.Schedule == "" {
		def.Policy.Schedule = "@daily" // nothing to check but the zone, which waits for a schedule from elsewhere
		if err := timetable.Check(&def); err != nil {
			return fmt.Errorf("job %s: %w", d.Key, err)
		}
		return nil
	}
	if err := timetable.Check(&def); err != nil {
		return fmt.Errorf("job %s: schedule %q: %w", d.Key, def.Policy.Schedule, err)
	}
	return nil
}

// mostRegistered bounds the jobs in one batch: their schemas may be large.
const mostRegistered = 32

// register registers the jobs, and tries until the store has answered for each. A refusal is final: trying again would
// not change it.
func (w *Worker) register(ctx context.Context, start bool) error {
	var refused error
	for at := 0; at < len(w.order) && refused == nil; at += mostRegistered {
		keys := w.order[at:min(at+mostRegistered, len(w.order))]
		batch := make([]kernel.Envelope, len(keys))
		for i, key := range keys {
			batch[i] = w.envelope(kernel.Register{App: w.config.App, Worker: w.name, Start: start, Job: w.jobs[key].declaration})
		}
		w.send(ctx, batch, forEver, func(i int, r metastore.Result) {
			if r.Err != nil && refused == nil {
				refused = fmt.Errorf("job %s: %w", keys[i], r.Err)
			}
		})
	}
	return refused
}

// keepRegistered registers again when asked to: the store may have lost the jobs while it was unavailable, and then
// they are added as they are. A worker at work does not end because of a refusal.
func (w *Worker) keepRegistered(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.again:
		}
		if err := w.register(ctx, false); err != nil && ctx.Err() == nil {
			w.episodes.Failed(slog.LevelWarn, "", "jobs could not be registered again", "err", err)
		}
	}
}
