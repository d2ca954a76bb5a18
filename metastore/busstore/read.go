package busstore

import (
	"context"
	"errors"

	"github.com/carillon-scheduler/carillon/bus"
	"github.com/carillon-scheduler/carillon/internal/kernel"
	"github.com/carillon-scheduler/carillon/jobs"
	"github.com/carillon-scheduler/carillon/metastore"
)

// The client's reads. They have no effects, so each is repeated after any failure on the way.

// ask repeats a read until it is answered, ctx ends or half a minute has passed.
func ask[R kernel.Row](ctx context.Context, s *store, v verb, q question) (reply, []R, error) {
	if q.Tenant == "" {
		q.Tenant = s.as.Tenant
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request := encodeQuestion(v, q)
	var p pause
	for tries := 0; ; tries++ {
		answer, err := s.call(ctx, request, tries)
		if err == nil {
			return decodeRows[R](answer)
		}
		if code := jobs.CodeOf(err); code != jobs.Unknown && code != jobs.Unavailable {
			return reply{}, nil, err
		}
		if errors.Is(err, bus.ErrClosed) || !p.wait(ctx) {
			return reply{}, nil, kernel.Refuse(jobs.Unavailable, "read %s: %v", v, err)
		}
	}
}

// one is the only row of an answer.
func one[R kernel.Row](ctx context.Context, s *store, v verb, q question) (row R, err error) {
	_, rows, err := ask[R](ctx, s, v, q)
	if err == nil && len(rows) != 1 {
		err = kernel.Invalid("busstore: %d rows in the answer, want one", len(rows))
	}
	if err != nil {
		return row, err
	}
	return rows[0], nil
}

// Definition is one job.
func (s *store) Definition(ctx context.Context, tenant jobs.Tenant, key jobs.Key) (*kernel.Definition, error) {
	return one[*kernel.Definition](ctx, s, askDefinition, question{Tenant: tenant, Key: key})
}

// Definitions lists jobs, in as many answers as it takes.
func (s *store) Definitions(ctx context.Context, q metastore.DefinitionQuery) ([]*kernel.Definition, error) {
	next := aboutDefinitions(q)
	var all []*kernel.Definition
	for {
		r, rows, err := ask[*kernel.Definition](ctx, s, askDefinitions, next)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
		if !r.More || len(rows) == 0 {
			return all, nil
		}
		if q.Limit > 0 {
			next.Limit = q.Limit - len(all)
		}
		switch last := rows[len(rows)-1]; {
		case q.Since > 0 || q.Changes:
			next.Since = last.Change
		case q.Tenant == "*":
			next.Skip = len(all) // keys of several tenants have no order that After could name
		default:
			next.After = last.Key
		}
	}
}

// Run is one run.
func (s *store) Run(ctx context.Context, tenant jobs.Tenant, id jobs.ID) (*kernel.Run, error) {
	return one[*kernel.Run](ctx, s, askRun, question{Tenant: tenant, ID: id})
}

// Runs lists runs. A page may be shorter than asked for, if a full one is more than the bus carries.
func (s *store) Runs(ctx context.Context, q metastore.RunQuery) (metastore.Page, error) {
	r, rows, err := ask[*kernel.Run](ctx, s, askRuns, aboutRuns(q))
	return metastore.Page{Runs: rows, Next: r.Next, Searched: r.Searched}, err
}

// Ledger lists the missed ranges of a job: as many of the newest as the bus carries.
func (s *store) Ledger(ctx context.Context, tenant jobs.Tenant, job jobs.ID, limit int) ([]*kernel.Missed, error) {
	_, rows, err := ask[*kernel.Missed](ctx, s, askLedger, question{Tenant: tenant, ID: job, Limit: limit})
	return rows, err
}

// Counts returns how many runs there are.
func (s *store) Counts(ctx context.Context, q metastore.CountQuery) (metastore.Counts, error) {
	r, rows, err := ask[*kernel.Tally](ctx, s, askCounts, aboutCounts(q))
	c := metastore.Counts{Live: r.Live, Waiting: r.Waiting, Jobs: r.Jobs, Bytes: r.Bytes}
	if c.Live == nil {
		c.Live = map[jobs.State]int{}
	}
	for _, t := range rows {
		c.Tallies = append(c.Tallies, *t)
	}
	return c, err
}

// Global is the settings and state of the whole tenant.
func (s *store) Global(ctx context.Context, tenant jobs.Tenant) (*kernel.Global, error) {
	return one[*kernel.Global](ctx, s, askGlobal, question{Tenant: tenant})
}

// Tenants lists the settings of the tenants that were created, in as many answers as it takes.
func (s *store) Tenants(ctx context.Context) ([]*kernel.Global, error) {
	return every[*kernel.Global](ctx, s, askTenants, jobs.DefaultTenant)
}

// Token is one token.
func (s *store) Token(ctx context.Context, tenant jobs.Tenant, id string) (*kernel.Token, error) {
	return one[*kernel.Token](ctx, s, askToken, question{Tenant: tenant, Name: id})
}

// Tokens lists the tokens of a tenant, or of all, in as many answers as it takes.
func (s *store) Tokens(ctx context.Context, tenant jobs.Tenant) ([]*kernel.Token, error) {
	return every[*kernel.Token](ctx, s, askTokens, tenant)
}

// Calendars lists the calendars of a tenant, in as many answers as it takes.
func (s *store) Calendars(ctx context.Context, tenant jobs.Tenant) ([]*kernel.Calendar, error) {
	return every[*kernel.Calendar](ctx, s, askCalendars, tenant)
}

// Occasions lists open occasions of a job, in as many answers as it takes.
func (s *store) Occasions(ctx context.Context, tenant jobs.Tenant, job jobs.ID, limit int) ([]*kernel.Occasion, error) {
	return everyOf[*kernel.Occasion](ctx, s, askOccasions, question{Tenant: tenant, ID: job, Limit: limit})
}

// Batches lists batches, in as many answers as it takes.
func (s *store) Batches(ctx context.Context, q metastore.BatchQuery) ([]*kernel.Batch, error) {
	return everyOf[*kernel.Batch](ctx, s, askBatches, aboutBatches(q))
}

// Sessions lists the sessions of a tenant, in as many answers as it takes.
func (s *store) Sessions(ctx context.Context, tenant jobs.Tenant) ([]*kernel.Session, error) {
	return every[*kernel.Session](ctx, s, askSessions, tenant)
}

// AlarmSettings lists the targets and rules of alarms of a tenant, or of all, in as many answers as it takes.
func (s *store) AlarmSettings(ctx context.Context, tenant jobs.Tenant) ([]*kernel.AlarmSettings, error) {
	return every[*kernel.AlarmSettings](ctx, s, askAlarmSettings, tenant)
}

// Alarms lists alarms, in as many answers as it takes.
func (s *store) Alarms(ctx context.Context, q metastore.AlarmQuery) ([]*kernel.Alarm, error) {
	return everyOf[*kernel.Alarm](ctx, s, askAlarms, aboutAlarms(q))
}

// every reads a list of a tenant in as many answers as it takes.
func every[R kernel.Row](ctx context.Context, s *store, v verb, tenant jobs.Tenant) ([]R, error) {
	return everyOf[R](ctx, s, v, question{Tenant: tenant})
}

// everyOf reads a list in as many answers as it takes.
func everyOf[R kernel.Row](ctx context.Context, s *store, v verb, q question) (all []R, _ error) {
	for {
		q.Skip = len(all)
		r, rows, err := ask[R](ctx, s, v, q)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
		if !r.More || len(rows) == 0 {
			return all, nil
		}
	}
}

// Session is one session.
func (s *store) Session(ctx context.Context, tenant jobs.Tenant, id string) (*kernel.Session, error) {
	return one[*kernel.Session](ctx, s, askSession, question{Tenant: tenant, Name: id})
}

// History is the former versions of a job.
func (s *store) History(ctx context.Context, tenant jobs.Tenant, job jobs.ID) (*kernel.History, error) {
	return one[*kernel.History](ctx, s, askHistory, question{Tenant: tenant, ID: job})
}

// Audits lists the audit lines. There may be fewer than requested, if those are more than the bus carries.
func (s *store) Audits(ctx context.Context, q metastore.AuditQuery) ([]*kernel.Audit, error) {
	_, rows, err := ask[*kernel.Audit](ctx, s, askAudits, aboutAudits(q))
	return rows, err
}
