package embed

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/oklog/run"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
	"github.com/carillon-scheduler/carillon/worker"
)

// restartPause is the delay before a failed control plane is restarted.
const restartPause = time.Second

// Run runs an open scheduler until ctx ends, then stops it in order: the worker takes no more runs and waits for its
// handlers (Config.Worker.Grace), then the control plane stops. The error names runs whose outcome could not be
// reported (worker.UnreportedError). Call Run once, and then Close.
func (s *Scheduler) Run(ctx context.Context) error {
	working, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	planning, stopPlan := context.WithCancel(context.WithoutCancel(ctx))
	stopped, stop := context.WithCancel(ctx)
	defer func() { stopWork(); stopPlan(); stop() }()

	// Interrupts are called in this order, each after the one before has returned.
	var g run.Group
	g.Add(func() error {
		select {
		case <-stopped.Done():
			return nil
		case err := <-s.failed: // usually the disk: commits are no longer durable
			return err
		}
	}, func(error) { s.stopping.Store(true); s.recordDenials(); s.transfer(); stop() })
	// The group returns only the error of the actor that ends first, and workers end later.
	failures := make([]error, len(s.workers()))
	var idle sync.WaitGroup
	grace := sync.OnceValue(func() <-chan time.Time { return time.After(s.grace) })
	for i, w := range s.workers() {
		ended := make(chan struct{})
		idle.Add(1)
		g.Add(func() error {
			defer idle.Done()
			defer close(ended)
			s.settle(working)
			failures[i] = w.Run(working)
			return failures[i]
		}, func(error) {
			stopWork()
			select {
			case <-ended:
			case <-grace(): // the last reports of this worker and of HTTP workers take the same time
			}
		})
	}
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	g.Add(func() error { <-serving.Done(); return nil }, func(error) { s.httpWorkers.close(); idle.Wait(); s.recordDenials(); stopServing() })
	g.Add(func() error { return s.plan(planning) }, func(error) { stopPlan() })
	if s.deliver != nil {
		delivering, stopDelivery := context.WithCancel(context.WithoutCancel(ctx))
		g.Add(func() error { return s.deliver(delivering, s.store.leads, leaders{s.store}) }, func(error) { stopDelivery() })
	}
	if s.provider != nil {
		checking, stopChecks := context.WithCancel(context.WithoutCancel(ctx))
		g.Add(func() error { return s.provider.Run(checking) }, func(error) { stopChecks() })
	}
	err := g.Run()
	for _, failure := range failures {
		if missing, is := errors.AsType[*worker.UnreportedError](failure); is && !errors.Is(err, failure) {
			err = errors.Join(err, missing)
		}
	}
	return err
}

// recordDenials records refused requests that would be lost with this process.
func (s *Scheduler) recordDenials() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.ops.RecordDenials(ctx, true)
}

// runs is a worker, or several.
type runs interface{ Run(context.Context) error }

// workers returns the workers in this process.
func (s *Scheduler) workers() (list []runs) {
	for _, w := range []*worker.Worker{s.worker, s.httpWorker} {
		if w != nil {
			list = append(list, w)
		}
	}
	if s.httpTenants != nil {
		list = append(list, s.httpTenants)
	}
	return list
}

// transfer transfers leadership to another node, if there is one, so that requests need not wait for an election.
func (s *Scheduler) transfer() {
	if y, can := s.elector.(controlplane.Yielder); can && s.store.leads() && s.accompanied() {
		s.plane.Because("it was stopped")
		if err := y.Yield(); err != nil {
			s.log.Info("cannot transfer leadership", "err", err)
		}
	}
}

// accompanied reports whether another node could lead.
func (s *Scheduler) accompanied() bool {
	return slices.ContainsFunc(s.plane.Nodes(), func(n controlplane.Node) bool { return n.Online && !n.Here })
}

// settled is how long a worker waits for a leader before it starts without one.
const settled = 2 * time.Second

// settle waits for a leader: a worker that starts together with its control plane must not log that none answers.
func (s *Scheduler) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settled)
	defer cancel()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for !s.ops.Live().Leader().Known() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// plan runs the control plane and restarts it when it fails, for example while the bus is unavailable. It returns the
// error if this process has not known a leader yet, or if another node has the same name.
func (s *Scheduler) plan(ctx context.Context) error {
	for {
		err := s.plane.Run(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if _, since := s.plane.Leading(); since.IsZero() && !s.plane.Followed() || errors.Is(err, controlplane.ErrTwin) {
			return err
		}
		s.episodes.Failed(episode.Level(err), "", "control plane failed, restarting", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(restartPause):
		}
	}
}

// Run opens a scheduler, runs it until ctx ends, and closes it.
func Run(ctx context.Context, cfg Config, js ...jobs.Job) error {
	s, err := Open(ctx, cfg, js...)
	if err != nil {
		return err
	}
	return errors.Join(s.Run(ctx), s.Close())
}

// Start opens and runs a scheduler, and returns when a node leads and the jobs are registered. Start runs waiting jobs
// before it returns: handlers cannot use the returned Scheduler, and get their client from carillon.ClientFrom(ctx).
// ctx limits the start only; call Stop to end the scheduler.
func Start(ctx context.Context, cfg Config, js ...jobs.Job) (*Scheduler, error) {
	s, err := Open(ctx, cfg, js...)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel, s.done = cancel, make(chan struct{})
	go func() {
		defer close(s.done)
		s.err = s.Run(running)
	}()
	if err := s.await(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Done returns a channel that is closed when a scheduler of Start has ended: by Stop, or by an error that Stop returns.
func (s *Scheduler) Done() <-chan struct{} { return s.done }

// Stop stops a scheduler of Start in the order of Run, and closes it.
func (s *Scheduler) Stop() error {
	s.cancel()
	<-s.done
	return errors.Join(s.err, s.Close())
}

// lookAgain is the interval at which a condition is polled.
const lookAgain = 10 * time.Millisecond

// await waits until a node leads and the jobs are registered.
func (s *Scheduler) await(ctx context.Context) error {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		if s.Ready(ctx) == nil && s.registered(ctx) {
			return nil
		}
		select {
		case <-s.done:
			return errors.New("embed: the scheduler ended before it was ready")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// registered reports whether the store has all jobs.
func (s *Scheduler) registered(ctx context.Context) bool {
	if len(s.keys) == 0 {
		return true
	}
	known, err := s.store.Definitions(ctx, metastore.DefinitionQuery{Tenant: s.tenant, Keys: s.keys})
	return err == nil && len(known) == len(s.keys)
}
