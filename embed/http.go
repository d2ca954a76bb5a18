package embed

import (
	"context"

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
	c := httpWorkerConfig(cfg, cfg.HTTPJobs)
	c.Tenant = cfg.Worker.Tenant
	as, err := c.Principal()
	if err != nil {
		return err
	}
	runner, err := httpjob.New(s.store, *cfg.HTTPJobs)
	if err != nil {
		return err
	}
	c.Others = runner.Run
	s.runner = runner
	b, err := s.openBus(ctx, cfg, as)
	if err != nil {
		return err
	}
	if s.httpWorker, err = worker.New(c, s.store, busstore.Heed(b, as), runner.Jobs()...); err != nil {
		return err
	}
	if cfg.TenantHTTPJobs != nil && (cfg.Tokens || cfg.Who != nil) {
		s.httpTenants = &httpTenants{s: s, cfg: cfg, own: as.Tenant}
	}
	return nil
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
