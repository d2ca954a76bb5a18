package embed

import (
	"cmp"
	"context"

	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/metastore/busstore"
	"github.com/carillon-scheduler/carillon/metrics"
	"github.com/carillon-scheduler/carillon/worker"
	"github.com/carillon-scheduler/carillon/worker/httpjob"
)

// openHTTPWorker makes a second worker, which runs HTTP jobs.
func (s *Scheduler) openHTTPWorker(ctx context.Context, cfg Config) error {
	if cfg.HTTPJobs == nil {
		return nil
	}
	c := worker.Config{Tenant: cfg.Worker.Tenant, App: cmp.Or(cfg.HTTPJobs.App, httpjob.App), Grace: cfg.Worker.Grace, Logger: cfg.Worker.Logger}
	if cfg.Worker.Name != "" {
		c.Name = cfg.Worker.Name + ".http"
	}
	as, err := c.Principal()
	if err != nil {
		return err
	}
	runner, err := httpjob.New(s.store, *cfg.HTTPJobs)
	if err != nil {
		return err
	}
	c.Others, c.Only = runner.Run, kernel.WorkHTTP
	s.runner = runner
	b, err := s.openBus(ctx, cfg, as)
	if err != nil {
		return err
	}
	s.httpWorker, err = worker.New(c, s.store, busstore.Heed(b, as), runner.Jobs()...)
	return err
}

// shares adds the metrics of distributed triggering.
func (s *Scheduler) shares(add func(metrics.Value)) {
	shares := s.plane.Shares()
	mine := 0
	for _, f := range shares {
		if f.Here {
			mine = f.Jobs
		}
	}
	add(metrics.Value{Name: "firing_nodes", Help: "Nodes that each fire a share of the jobs, as seen by this process; 0 if the leader fires all.", Value: float64(len(shares))})
	add(metrics.Value{Name: "firing_jobs", Help: "Recurring jobs in this process's share; 0 if the leader fires all.", Value: float64(mine)})
	add(metrics.Value{Name: "due_times_rescued_total", Help: "Overdue due times of other nodes' shares that this process has fired.", Value: float64(s.plane.Rescued())})
}

// extra adds the metrics that no other part of this process has.
func (s *Scheduler) extra(add func(metrics.Value)) {
	s.alarmed(add)
	s.shares(add)
	var open []httpjob.Circuit
	var refused uint64
	if s.runner != nil {
		open, refused = s.runner.Circuits()
	}
	add(metrics.Value{Name: "httpjob_circuits_open", Help: "Targets of HTTP jobs that did not answer and are not called for a while (open circuits).", Value: float64(len(open))})
	add(metrics.Value{Name: "httpjob_put_off_total", Help: "Calls of HTTP jobs put off because the circuit of their target was open.", Value: float64(refused)})
}
