package controlplane

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/auditfile"
	"github.com/carillon-scheduler/carillon/internal/episode"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/internal/plain"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// The leader exports the audit: it sends each audit of each tenant to each sink, in order, and records how far the sink
// is, so that another leader continues there. What was sent but not recorded is sent again. A sink that fails does not
// hold up another one, nor any commit.

const (
	// exportEvery is how often new audits are looked for; exportRetry is the longest pause after a failure.
	exportEvery, exportRetry = time.Second, time.Minute
	// sendPatience is how long one Send may take.
	sendPatience = 30 * time.Second
	// exportBytes is about how much one Send has.
	exportBytes = 1 << 20
)

// AuditSink receives lines of the audit (auditsink.Sink).
type AuditSink interface {
	Name() string
	Send(ctx context.Context, lines [][]byte) error
	Close()
}

// export exports the audit until ctx ends.
func (cp *ControlPlane) export(ctx context.Context) error {
	names := []string{}
	for _, s := range cp.cfg.AuditSinks {
		names = append(names, s.Name())
	}
	var all sync.WaitGroup
	defer all.Wait()
	for _, s := range cp.cfg.AuditSinks {
		all.Go(func() {
			defer s.Close()
			cp.exportTo(ctx, s, names)
		})
	}
	for len(names) == 0 { // audits are not kept for sinks that are no longer configured
		if err := cp.forgetSinks(ctx); err != nil && ctx.Err() == nil {
			cp.episodes.Failed(episode.Level(err), "", "sinks of the audit could not be forgotten", "err", err)
		}
		if err := wait(ctx, exportRetry); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func (cp *ControlPlane) forgetSinks(ctx context.Context) error {
	return cp.eachGlobal(ctx, func(tenant jobs.Tenant, g *kernel.Global) error {
		if len(g.AuditSinks) == 0 {
			return nil
		}
		return cp.done(ctx, []kernel.Envelope{cp.envelope(tenant, kernel.Exported{})})
	})
}

// eachGlobal calls fn with the default tenant's Global, and those of all others.
func (cp *ControlPlane) eachGlobal(ctx context.Context, fn func(jobs.Tenant, *kernel.Global) error) error {
	g, err := cp.cfg.Store.Global(ctx, jobs.DefaultTenant)
	if err != nil {
		return err
	}
	if err := fn(jobs.DefaultTenant, g); err != nil {
		return err
	}
	tenants, err := cp.cfg.Store.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, g := range tenants {
		if err := fn(g.Tenant, g); err != nil {
			return err
		}
	}
	return nil
}

// exportTo exports to one sink. After a failure, it waits twice as long each time.
func (cp *ControlPlane) exportTo(ctx context.Context, to AuditSink, names []string) {
	pause := exportEvery
	for ctx.Err() == nil {
		failed := false
		err := cp.eachGlobal(ctx, func(tenant jobs.Tenant, g *kernel.Global) error {
			ok, err := cp.exportTenant(ctx, to, names, tenant, g)
			failed = failed || !ok
			return err
		})
		if err != nil && ctx.Err() == nil {
			cp.episodes.Failed(episode.Level(err), to.Name(), "the export of the audit is held up", "sink", to.Name(), "err", err)
		}
		if pause = min(2*pause, exportRetry); !failed && err == nil {
			pause = exportEvery
		}
		_ = wait(ctx, pause)
	}
}

// exportTenant sends all audits of a tenant that a sink lacks. It reports whether the sink received them.
func (cp *ControlPlane) exportTenant(ctx context.Context, to AuditSink, names []string, tenant jobs.Tenant, g *kernel.Global) (ok bool, err error) {
	for ctx.Err() == nil {
		if g.Audits == 0 && len(g.AuditSinks) == 0 {
			return true, nil
		}
		is := g.AuditSink(to.Name())
		if is == nil { // new: it begins with the oldest audit that is kept
			is = &kernel.AuditSink{Name: to.Name(), N: g.FirstAudit() - 1}
		} else if is.N >= g.Audits && is.Failing.IsZero() {
			return true, nil
		}
		done := *is
		if is.N < g.Audits || !is.Failing.IsZero() {
			sent, err := cp.sendAudits(ctx, to, tenant, g, &done)
			if err != nil || ctx.Err() != nil {
				return true, err
			}
			if sent != nil {
				return false, cp.exportFailed(ctx, names, tenant, is, sent)
			}
			done.Failing, done.Error = time.Time{}, ""
			if !is.Failing.IsZero() {
				cp.log.Info("a sink of the audit receives again", "sink", to.Name(), "tenant", tenant, "took", cp.cfg.Clock.Now().Sub(is.Failing))
			}
		}
		if err := cp.done(ctx, []kernel.Envelope{cp.envelope(tenant, kernel.Exported{Sinks: names, Done: []kernel.AuditSink{done}})}); err != nil {
			return true, err
		}
		if g, err = cp.cfg.Store.Global(ctx, tenant); err != nil {
			return true, err
		}
	}
	return true, nil
}

// exportFailed records a failure, once until the sink receives again: the first error is what people look for.
func (cp *ControlPlane) exportFailed(ctx context.Context, names []string, tenant jobs.Tenant, is *kernel.AuditSink, sent error) error {
	why := plain.Short(sent.Error(), kernel.MaxAuditSinkError)
	cp.episodes.Failed(slog.LevelWarn, is.Name, "a sink of the audit does not receive", "sink", is.Name, "tenant", tenant, "err", why)
	if !is.Failing.IsZero() {
		return nil
	}
	failing := *is
	failing.Failing, failing.Error = cp.cfg.Clock.Now(), why
	return cp.done(ctx, []kernel.Envelope{cp.envelope(tenant, kernel.Exported{Sinks: names, Done: []kernel.AuditSink{failing}})})
}

// sendAudits sends a page of audits, after a line for those that are not kept any more. It returns the sink's error, and
// that of the store.
func (cp *ControlPlane) sendAudits(ctx context.Context, to AuditSink, tenant jobs.Tenant, g *kernel.Global, done *kernel.AuditSink) (sent, err error) {
	list, err := cp.cfg.Store.Audits(ctx, metastore.AuditQuery{Tenant: tenant, Since: done.N + 1, Limit: metastore.MaxPage})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	var lines [][]byte
	if gap, lost := g.Beyond(done); lost { // newer ones may be purged meanwhile: the list decides
		gap.To = list[0].N - 1
		lines = append(lines, auditfile.AppendGap(nil, tenant, auditfile.Gap{Sink: to.Name(), From: gap.From, To: gap.To}))
		done.N, done.GapFrom, done.GapTo = gap.To, gap.From, gap.To
	}
	size := 0
	for _, a := range list {
		if a.N != done.N+1 {
			break // purged since g was read: a gap, the next time
		}
		lines = append(lines, auditfile.Append(nil, a))
		done.N = a.N
		if size += len(lines[len(lines)-1]); size > exportBytes {
			break
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("audit %d of tenant %s was purged while it was sent", done.N+1, tenant)
	}
	sending, cancel := context.WithTimeout(ctx, sendPatience)
	defer cancel()
	return to.Send(sending, lines), nil
}
